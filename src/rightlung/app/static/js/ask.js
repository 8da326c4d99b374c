// Ask: where is this phrase seen? With one model or two, plain or perturbed.

import { getPicture, post } from "./api.js";
import { answerCard, number } from "./answers.js";
import { difference, moved } from "./colours.js";
import { answerLayers, showLayers, studyLayers } from "./display.js";
import { announce, button, check, choice, fill, form, h, percent } from "./dom.js";
import { bind } from "./keys.js";
import { mapLayer } from "./layers.js";
import { warnings } from "./look.js";
import { KINDS, perturbButtons } from "./perturb.js";
import { describing, reporting, wordsLayers } from "./words.js";
import { room } from "./room.js";

const state = { key: null, phrase: "", model: null, second: "", blinded: false, perturb: null, answers: [], reveal: null, names: null, strong: -1 };
let panel = null;
let asking = 0;

/** Fill the panel and draw; a new study begins without an answer. */
export function showAsk(place) {
  panel = place;
  const { study } = room;
  if (!study) return fill(place, h("p", { class: "soft" }, "Choose a study to ask about it."));
  if (state.key !== study.key) Object.assign(state, { key: study.key, phrase: "", perturb: null, answers: [], reveal: null, names: null });
  state.model ??= room.session.defaults.model;
  const layers = h("section", {});
  fill(place, warnings(study), models(), question(study), h("div", { class: "answers", "aria-live": "polite" }, cards(study)),
    describing(study, state, refresh), reporting(study, refresh, ask), layers);
  showLayers(layers);
  draw();
  return place;
}

const refresh = () => { if (room.screen === "ask") showAsk(panel); };

function models() {
  const names = room.able("ground").map(({ name }) => [name, name]);
  const again = () => { state.reveal = state.names = null; if (state.phrase) ask(state.phrase, state.perturb); };
  return h("div", { class: "row models" },
    choice("Model", names, state.model, (value) => { state.model = value; again(); }),
    choice("Beside it", [["", "no other"], ...names], state.second, (value) => { state.second = value; again(); refresh(); }),
    state.second && check("Blinded", state.blinded, (value) => { state.blinded = value; again(); }, { title: "Hide which model is which until you ask" }));
}

function question(study) {
  const words = h("input", { id: "phrase", value: state.phrase, placeholder: "right pleural effusion", "aria-label": "Phrase", autocomplete: "off",
    maxLength: room.session.limits.phrase_characters });
  return h("section", {}, form(() => words.value.trim() && ask(words.value.trim()), { class: "row ask" },
    words, h("button", { class: "main" }, "Where?")),
    h("ul", { class: "sentences short", "aria-label": "Sentences to ask about" }, suggested(study).map((text) => h("li", {},
      h("button", { type: "button", "aria-pressed": String(text === state.phrase), onclick: () => ask(text) }, text)))));
}

/** The sentences of the report or, without one, the findings of the image. */
function suggested({ phrases, findings }) {
  return phrases.length ? phrases.map(({ text }) => text) : Object.keys(findings).filter((name) => findings[name] === "positive").map((name) => name.toLowerCase());
}

/** Ask about a phrase; the newest question wins. */
async function ask(phrase, perturb = null) {
  const turn = ++asking, { study } = room;
  const models = [...new Set([state.model, state.second].filter(Boolean))];
  panel.querySelector(".answers")?.setAttribute("aria-busy", "true");
  try {
    const found = await post("/ground", { study: study.key, phrases: [phrase], models, perturb, blinded: state.blinded && models.length > 1 });
    if (turn !== asking || room.study?.key !== study.key) return;
    Object.assign(state, { phrase, perturb, answers: found.answers, reveal: found.reveal, names: null, strong: -1 });
    for (const { perturbed } of found.answers) if (perturbed?.image) perturbed.picture = await getPicture(perturbed.image);
  } catch (error) {
    if (turn === asking) announce(error.wait ? `${error.message} Try again in ${error.wait} s.` : error.message, true);
    panel.querySelector(".answers")?.removeAttribute("aria-busy");
    return;
  }
  const typed = document.activeElement?.id === "phrase";
  refresh();
  if (typed) document.getElementById("phrase").focus();
}

const named = ({ model }) => (state.names?.[model] ? `${model}: ${state.names[model]}` : state.reveal ? `Model ${model}` : model);

function cards(study) {
  if (!state.answers.length) return h("p", { class: "soft" }, "Type a phrase, or choose a sentence of the report.");
  const point = (index) => { state.strong = index; draw(false); };
  return [state.answers.map((answer) => answerCard(named(answer), answer.plain, point, answer.perturbed)),
    state.reveal && !state.names && button("Reveal the models", async () => { state.names = (await post("/ground/reveal", { token: state.reveal })).models; refresh(); }),
    perturbButtons(study, state.phrase, state.perturb, (kind, text) => ask(state.phrase, kind && { kind, ...(text && { text }) }))];
}

/** Draw the answers: one pane each; two models add their difference; a perturbation gives a row of three to each model. */
export function draw(anew = true) {
  const { study, stage } = room, { answers } = state;
  if (!study) return;
  const rows = answers.map((answer) => (answer.perturbed ? perturbedRow(answer) : [plainCell(answer)]));
  if (rows.length === 2 && !answers[0].perturbed) rows.push([between(answers)].filter(Boolean));
  const cells = rows.flat();
  if (!cells.length) cells.push({ title: study.title, layers: wordsLayers() });
  const columns = answers.some(({ perturbed }) => perturbed) ? 3 : cells.length;
  const panes = anew || stage.panes.length !== cells.length ? stage.setPanes(cells.length, columns) : stage.panes;
  cells.forEach(({ title, note, layers, image, strong, change }, index) => {
    panes[index].layers = [...layers, ...(image ? [] : studyLayers(study, state.phrase, !change)), ...(index ? [] : wordsLayers()), ...(index ? [] : [stage.drawing.layer])];
    panes[index].say(title, note, strong);
    panes[index].show(image ?? stage.image, `${title}. ${note ?? ""}`);
  });
}

const summary = ({ score, absent, abstention }) => (absent ? `Abstains (${percent(abstention)}): probably not in this image`
  : score.value === null ? "" : `${score.calibrated ? percent(score.probability) : number(score.value)}${score.calibrated ? " probable (calibrated)" : " (a ranking only)"}`);

const plainCell = (answer) => ({ title: `${named(answer)}: ${answer.phrase}`, note: summary(answer.plain), layers: answerLayers(answer.plain, state.strong), strong: answer.plain.absent });

function perturbedRow(answer) {
  const { perturbed } = answer, what = KINDS[perturbed.kind][0].toLowerCase().replace("…", "");
  return [{ ...plainCell(answer), title: named(answer) + ": before" },
    { title: `After: ${what}`, note: [perturbed.phrase !== answer.phrase && `“${perturbed.phrase}”`, summary(perturbed)].filter(Boolean).join(" · "), layers: answerLayers(perturbed), image: perturbed.picture, strong: perturbed.absent },
    changeCell("Difference", answer.plain.map, perturbed.map, perturbed.change.total_variation, perturbed.picture)];
}

const between = ([one, two]) => (one.plain.map && two.plain.map ? changeCell(`${named(two)} − ${named(one)}`, one.plain.map, two.plain.map) : null);

function changeCell(title, before, after, share = null, image = null) {
  if (!before || !after) return { title, note: "One of the answers has no map.", layers: [] };
  const amount = percent(share ?? moved(before, after));
  return { title, note: `${amount} of the map moved · orange: more, blue: less`, layers: [mapLayer(difference(before, after), Math.max(0.5, room.display.opacity))], image, change: true };
}

bind("ask", "q", "Type a phrase", () => document.getElementById("phrase")?.focus());
for (const [key, kind] of [["s", "swap-sides"], ["n", "negate"], ["c", "occlude-peak"], ["x", "twin-removed"]]) {
  bind("ask", key, `Perturb: ${KINDS[kind][0].toLowerCase()}`, () => { if (state.answers.length) ask(state.phrase, state.perturb?.kind === kind ? null : { kind }); });
}
