// What the model writes: the description of a box, and a report whose sentences and boxes point at each other.

import { post } from "./api.js";
import { OWN, PREDICTED } from "./colours.js";
import { boxForm } from "./drawing.js";
import { button, choice, counted, h } from "./dom.js";
import { picture } from "./display.js";
import { boxLayer, mapLayer } from "./layers.js";
import { room } from "./room.js";

const state = { key: null, box: null, described: [], report: null, model: null, chosen: -1, hovered: -1 };
const COLOURS = ["rgb(255, 170, 60)", "rgb(110, 200, 255)", "rgb(230, 130, 220)", "rgb(150, 225, 120)", "rgb(255, 225, 90)", "rgb(250, 120, 110)", "rgb(160, 160, 255)"];
let list = null;

function renew(study) {
  if (state.key !== study.key) Object.assign(state, { key: study.key, box: null, described: [], report: null, chosen: -1, hovered: -1 });
}

/** Everything of this module that is drawn: the reader's box and the boxes of the report. */
export function wordsLayers() {
  if (!room.study) return [];
  renew(room.study);
  const layers = state.box ? [boxLayer([{ box: state.box, colour: OWN }])] : [];
  const { report } = state, active = state.hovered >= 0 ? state.hovered : state.chosen;
  if (!report) return layers;
  const { map } = report.sentences[active] ?? {};
  if (map) layers.push(mapLayer(picture(map, room.display.colours, 0), room.display.opacity));
  const boxes = report.sentences.flatMap((sentence, index) => sentence.boxes.map((box) => ({ box, text: String(index + 1), index, colour: colourOf(index),
    strong: index === active, faint: active >= 0 && index !== active })));
  layers.push(boxLayer(boxes.sort((one, two) => one.strong - two.strong)));
  return layers;
}

const colourOf = (index) => COLOURS[index % COLOURS.length] ?? PREDICTED;

/** The section that describes a box, with or without a phrase. */
export function describing(study, asked, refresh) {
  renew(study);
  const able = room.able("describe");
  if (!able.length) return null;
  const describe = async (phrase) => {
    const { answers } = await post("/describe", { study: study.key, model: modelFor(able), queries: [{ phrase, box: state.box }] });
    if (state.key !== study.key) return;
    state.described.unshift(...answers);
    refresh();
  };
  const words = asked.phrase;
  return h("section", {}, h("h3", {}, "What is in a box?"),
    h("div", { class: "chips" }, button(room.stage.tool === "box" ? "Drag on the image…" : "Draw a box", () => { room.stage.use("box"); refresh(); }, { title: "Draw a box (b)" }),
      state.box && button("Describe the box", () => describe(null), { class: "main" }),
      state.box && words && button(`Describe it: “${words.slice(0, 30)}${words.length > 30 ? "…" : ""}”`, () => describe(words)),
      !state.box && words && button("Describe the phrase", () => describe(words)),
      state.box && button("Remove the box", () => { state.box = null; refresh(); }, { class: "quiet" })),
    boxForm(state.box, (box) => { takeBox(box); refresh(); }),
    h("ul", { class: "described", "aria-live": "polite" }, state.described.slice(0, 3).map(({ query, sentence, notes }) => h("li", {},
      h("strong", {}, sentence ?? "The model has nothing to say about it."),
      h("span", { class: "soft small block" }, [query.box && "the box", query.phrase && `“${query.phrase}”`].filter(Boolean).join(" and "), ...notes.map((note) => ` · ${note}`))))),
    state.described.length > 0 && h("p", { class: "soft small" }, "Generated text is fluent and often wrong: compare it with the image."));
}

/** Take a box that was drawn on the Ask screen. */
export function takeBox(box) {
  state.box = box;
  room.stage.use("pan");
}

const modelFor = (able) => (able.some(({ name }) => name === state.model) ? state.model : able[0].name);

/** The section with the grounded report. */
export function reporting(study, refresh, ask) {
  const able = room.able("report");
  if (!able.length) return null;
  const write = async () => {
    const model = modelFor(able), report = await post("/report", { study: study.key, model });
    if (state.key === study.key) { Object.assign(state, { report, chosen: -1, hovered: -1 }); refresh(); }
  };
  const { report } = state;
  list = h("ol", { class: "report" }, report?.sentences.map(({ text, boxes, score }, index) => h("li", {},
    h("button", { type: "button", "data-index": index, "aria-pressed": String(index === state.chosen), onclick: () => point(index, true), onmouseenter: () => point(index),
      onmouseleave: () => point(-1), onfocus: () => point(index), onblur: () => point(-1) }, text),
    h("span", { class: "soft small" }, boxes.length ? counted(boxes.length, "box", "boxes") : "no box", score === null ? "" : `, score ${score.toFixed(2)}`),
    h("button", { type: "button", class: "quiet small", title: "Ask where this sentence is seen", onclick: () => ask(text) }, "where?"))));
  for (const one of list.querySelectorAll("button[data-index]")) one.style.borderLeftColor = colourOf(Number(one.dataset.index));
  return h("section", { "aria-label": "Report" }, h("h3", {}, "Report by a model"),
    h("div", { class: "row" }, able.length > 1 && choice("Model", able.map(({ name }) => [name, name]), modelFor(able), (value) => { state.model = value; }),
      button(report ? "Write it again" : "Write a report", write),
      report && button("Hide it", () => { state.report = null; refresh(); }, { class: "quiet" })),
    report && (report.sentences.length ? list : h("p", {}, report.text || "The model wrote nothing.")),
    report && h("p", { class: "soft small" }, "Point at a sentence to see its boxes, or click a box to find its sentence. Generated text is often wrong."));
}

/** Emphasise a sentence and its boxes; a click keeps it. */
function point(index, kept = false) {
  if (kept) state.chosen = state.chosen === index ? -1 : index;
  else state.hovered = index;
  const active = state.hovered >= 0 ? state.hovered : state.chosen;
  for (const one of list?.querySelectorAll("button[data-index]") ?? []) {
    one.setAttribute("aria-pressed", String(Number(one.dataset.index) === state.chosen));
    one.classList.toggle("pointed", Number(one.dataset.index) === active);
  }
  room.dispatchEvent(new Event("words"));
}

/** Find the sentence whose smallest box holds a point of the image; choose it. */
export function tapReport([x, y]) {
  if (!state.report) return;
  const held = state.report.sentences.flatMap(({ boxes }, index) => boxes.filter(([x0, y0, x1, y1]) => x0 <= x && x <= x1 && y0 <= y && y <= y1)
    .map(([x0, y0, x1, y1]) => ({ index, area: (x1 - x0) * (y1 - y0) }))).sort((one, two) => one.area - two.area);
  state.hovered = -1;
  state.chosen = -1;
  point(held[0]?.index ?? -1, true);
  list?.querySelector(`[data-index="${held[0]?.index}"]`)?.scrollIntoView({ block: "nearest" });
}
