// Judging one reader study: sentence first, then each model's heatmap and the questions about it.

import { get, post } from "./api.js";
import { answerLayers, shapeLayers } from "./display.js";
import { TRUTH } from "./colours.js";
import { announce, button, check, fill, form, h, slider } from "./dom.js";
import { bind } from "./keys.js";
import { outbox } from "./outbox.js";
import { questionForm } from "./questions.js";
import { room } from "./room.js";

const state = { id: null, study: null, items: [], item: null, maps: null, alias: null, ratings: {}, truth: false };
const drafts = new Map(); // ratings that were begun and not saved, by item and heatmap
let panel = null;
let turn = 0;
let retry = null; // what `failed` offers to try again

const path = (item = null, rest = "") => `/reader-studies/${encodeURIComponent(state.id)}${item === null ? "" : `/items/${encodeURIComponent(item)}`}${rest}`;

/** Begin or resume a reader study. */
export async function startJudging(place, id) {
  panel = place;
  Object.assign(state, { id, item: null, maps: null, alias: null });
  state.study = await get(path());
  await loadItems();
  const { next } = state;
  await openItem(next ?? state.items.at(-1)?.id);
  if (!next) announce("Everything is done. Thank you! You can look at your answers again with “Previous”.");
}

async function loadItems() {
  const { items, next } = await get(path(null, "/items"));
  Object.assign(state, { items, next });
}

/** Open an item; `alias` says which of its heatmaps, by default the first without an answer. */
async function openItem(id, alias = null) {
  if (!id) return fill(panel, h("p", {}, "This study has no images for you."));
  const now = ++turn;
  try {
    const item = await get(path(id));
    const title = `Image ${1 + state.items.indexOf(rowOf(id))} of ${state.items.length}`, image = await room.fetched(item.study);
    if (now !== turn) return null;
    room.take({ key: item.study, judged: true, title, annotations: [], phrases: [], regions: {}, located_findings: [] }, image);
    Object.assign(state, { item, maps: null, truth: false });
    if (item.state === "open") return showChoice();
    await openMaps(alias);
  } catch (error) { failed(error, () => openItem(id, alias)); }
  return null;
}

/** Say what went wrong and offer to try again; what was answered is safe. */
function failed(error, again) {
  retry = again;
  fill(panel, h("p", { class: "warning failed", role: "alert" }, error.message),
    h("p", {}, outbox.waiting.length ? "Your answers are kept and will be saved when the store is back." : "Your answers so far are saved."),
    button("Try again", again, { class: "main" }), " ", button("All studies", () => room.go("judge"), { class: "quiet" }));
}

const rowOf = (id) => state.items.find((one) => one.id === id);
const beside = (by) => state.items[state.items.indexOf(rowOf(state.item?.id)) + by]?.id;
const step = (by) => openItem(beside(by) ?? state.item?.id);

function header() {
  const done = state.items.filter((item) => item.state === "done").length;
  return h("header", {}, h("div", { class: "row between" }, h("h2", {}, state.study.title),
    h("span", { class: "soft" }, h("progress", { max: state.items.length, value: done, "aria-label": "Progress" }), ` ${done} of ${state.items.length} done`)),
    h("div", { class: "chips" }, button("Previous", () => step(-1), { disabled: !beside(-1), title: "Previous image (,)" }),
      button("Next", () => step(1), { disabled: !beside(1), title: "Next image (.)" }), button("Undo", undo, { title: "Take the last answer back (z)" }),
      button("Stop for now", () => room.go("judge"), { class: "quiet" })));
}

/** Before any map is shown: the reader chooses a sentence, or writes one. */
function showChoice() {
  const { item, study } = state;
  room.stage.main.say(room.study.title, "Choose a sentence first. The heatmaps are shown afterwards.");
  const choose = async (body) => {
    state.item = await post(path(item.id, "/prompt"), body);
    Object.assign(rowOf(item.id), { state: state.item.state, prompt: state.item.prompt });
    await openItem(item.id);
  };
  fill(panel, header(), h("section", {}, h("h3", {}, item.custom ? "Write a prompt of your own" : "Which sentence do you want to judge?"),
    h("p", { class: "soft" }, "Choose one that you can see in the image. It is fixed from then on."),
    h("ol", { class: "sentences numbered", tabIndex: -1 }, item.sentences.map(({ index, text }) => h("li", {}, button(text, () => choose({ phrase: index }), { class: "sentence" })))),
    study.custom_prompts && ownPrompt("Use my own", (text) => choose({ text }))));
  panel.querySelector(".sentences")?.focus({ preventScroll: true }); // not a sentence: Enter, pressed twice to save, would choose it for good
}

async function openMaps(alias) {
  const { item } = state;
  state.maps ??= (await get(path(item.id, "/maps"))).maps;
  for (const { about, body } of outbox.waiting) if (about.item === item.id) item.answers[about.alias] = { ...body, waiting: true };
  state.alias = alias ?? item.aliases.find((name) => !item.answers[name]) ?? item.aliases[0];
  const { version, waiting, key, ...ratings } = item.answers[state.alias] ?? {};
  state.ratings = drafts.get(draft()) ?? { ...ratings, answers: { ...ratings.answers } };
  drafts.set(draft(), state.ratings);
  showQuestions();
  panel.scrollTop = 0;
}

const draft = () => `${state.item.id} ${state.alias}`;

function showQuestions() {
  const { item, study, alias } = state, place = item.aliases.indexOf(alias);
  const saved = item.answers[alias];
  const own = async (text) => {
    const added = await post(path(item.id, "/custom"), { text });
    await loadItems();
    await openItem(added.id);
  };
  fill(panel, header(),
    h("section", { class: "asked" }, h("p", { class: "prompt" }, `“${item.prompt}”`),
      h("div", { class: "chips", role: "group", "aria-label": "Heatmaps" }, item.aliases.map((name) => button(`Map ${name}${item.answers[name] ? " ✓" : ""}`, () => openMaps(name), { "aria-pressed": String(name === alias) })))),
    questionForm(study.questions, state.ratings, { saved, last: place === item.aliases.length - 1, save }),
    h("section", {}, item.truth && check("Show the truth (v)", state.truth, (on) => { state.truth = on; draw(); }),
      slider("Opacity of the heatmap", room.display.opacity, (value) => { room.set({ opacity: value }); }),
      study.custom_prompts && h("details", {}, h("summary", {}, "Ask a prompt of your own on this image"), ownPrompt("Add", own))));
  draw();
}

function ownPrompt(label, act) {
  const words = h("input", { "aria-label": "Prompt of your own", placeholder: "left pleural effusion", maxLength: room.session.limits.phrase_characters, required: true });
  return form(() => words.value.trim() && act(words.value.trim()), { class: "row" }, words, h("button", {}, label));
}

/** Draw the heatmap in question, and the truth if it is allowed and wished. */
export function draw() {
  const { item, maps, alias } = state;
  if (!item || !maps) return;
  const answer = maps[alias], { truth } = item;
  const boxes = answer.boxes.map((box) => ({ box }));
  const shown = { map: answer.map, boxes, abstention: answer.absent ? 0.7 : 0, absent: answer.absent, peak: null };
  room.stage.main.say(`Map ${alias}: ${item.prompt}`, answer.absent ? "This model says: probably not in this image." : answer.map || boxes.length ? "" : "This model shows nothing.", answer.absent);
  room.stage.main.layers = [...answerLayers(shown), ...(truth && state.truth ? shapeLayers(truth, TRUTH) : [])];
  room.stage.redraw();
}

/** Hand an answer to the outbox and go on; the outbox says when it is on the disk. */
function save() {
  const { item, alias, ratings } = state;
  const body = { recall: ratings.recall, precision: ratings.precision, intuitiveness: ratings.intuitiveness, comment: ratings.comment ?? "", answers: ratings.answers ?? {},
    version: item.answers[alias]?.version ?? null, judged_at: new Date().toISOString() };
  item.answers[alias] = { ...body, waiting: true };
  drafts.delete(draft());
  outbox.put("PUT", path(item.id, `/answers/${encodeURIComponent(alias)}`), body, { kind: "answer", item: item.id, alias });
  const open = item.aliases.find((name) => !item.answers[name]);
  if (open) return openMaps(open);
  rowOf(item.id).state = "done";
  const next = state.items.find((one) => one.state !== "done");
  if (next) return openItem(next.id);
  showQuestions();
  announce("That was the last one. Thank you!");
  return null;
}

/** Take the last answer back: one that still waits, else the latest on the server. */
async function undo() {
  const waiting = await outbox.takeBack(({ path: to }) => to.startsWith(path(null, "/items/")));
  const back = waiting ? { item: waiting.about.item, alias: waiting.about.alias, answer: waiting.body } : await post(path(null, "/undo"));
  const row = rowOf(back.item);
  if (row) row.state = "chosen";
  await openItem(back.item, back.alias);
  const { key, version, saved_at: at, ...ratings } = back.answer;
  state.ratings = { ...ratings, answers: { ...ratings.answers } };
  drafts.set(draft(), state.ratings);
  state.item.answers[back.alias] = null;
  showQuestions();
  announce("The last answer was taken back.");
}

outbox.addEventListener("change", ({ detail: waiting }) => { // the store is back
  if (waiting || document.body.classList.contains("listing") || !panel?.querySelector(".warning.failed")) return;
  const again = retry;
  retry = null;
  again?.();
});

outbox.addEventListener("saved", ({ detail: { entry, result } }) => {
  if (entry.about.kind !== "answer" || state.item?.id !== entry.about.item) return;
  state.item.answers[entry.about.alias] = result;
  panel.querySelector(".saved")?.replaceChildren(entry.about.alias === state.alias ? "Saved." : "");
});

outbox.addEventListener("refused", ({ detail: { entry, error } }) => {
  announce(error.code === "conflict" ? "This heatmap was judged in another tab meanwhile; that answer is kept. Change it here if you disagree." : `Not saved: ${error.message}`, true);
  if (entry.about.kind === "answer" && entry.about.item === state.item?.id && error.current) {
    state.item.answers[entry.about.alias] = error.current;
    openMaps(entry.about.alias);
  }
});

bind("judge", "z", "Undo: take the last answer back", () => undo().catch((error) => announce(error.message, true)));
bind("judge", ",", "Previous, next image", () => step(-1), ", .");
bind("judge", ".", "", () => step(1));
bind("judge", "v", "Show the truth (if allowed)", () => { if (state.item?.truth) { state.truth = !state.truth; showQuestions(); } });
