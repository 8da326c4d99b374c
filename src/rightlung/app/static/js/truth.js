// Draw: boxes and masks by readers, as new truth.

import { call } from "./api.js";
import { OWN } from "./colours.js";
import { shapeLayers, showLayers, studyLayers } from "./display.js";
import { announce, button, field, fill, form, h } from "./dom.js";
import { bind } from "./keys.js";
import { boxForm } from "./drawing.js";
import { heading, warnings } from "./look.js";
import { lineLayer } from "./layers.js";
import { maskOf, maskOfPolygon } from "./masks.js";
import { outbox } from "./outbox.js";
import { room } from "./room.js";

const state = { key: null, shape: null, label: "", text: "" };
let panel = null;

/** Fill the panel; a shape that was drawn waits there for its label. */
export function showTruth(place) {
  panel = place;
  const { study, stage } = room;
  if (!study) return fill(place, h("p", { class: "soft" }, "Choose a study to draw on it."));
  if (state.key !== study.key) Object.assign(state, { key: study.key, shape: null });
  const label = h("input", { id: "label", list: "labels", value: state.label, required: true, placeholder: "nodule", autocomplete: "off", maxLength: 100, oninput: () => { state.label = label.value; } });
  const text = h("input", { value: state.text, placeholder: "Nodule in the left upper lobe.", maxLength: 1000, oninput: () => { state.text = text.value; } });
  const names = [...new Set([...Object.keys(study.findings), ...study.phrases.flatMap(({ findings }) => Object.keys(findings))])];
  const layers = h("section", {});
  fill(place, heading(study), warnings(study),
    form(save, { class: "stack" }, h("h3", {}, "New truth"),
      ["upload", "file"].includes(study.kind) && h("p", { class: "warning" }, "Keep this image first (on the Look screen): what is drawn must not be lost."),
      h("p", { class: "soft" }, hints[stage.tool] ?? "Choose Box, Polygon or Brush above the image."),
      stage.tool === "brush" && field("Brush size", h("input", { type: "range", min: 3, max: 60, value: String(stage.drawing.brush),
        oninput: (event) => { stage.drawing.brush = Number(event.target.value); } })),
      field("Label", label), h("datalist", { id: "labels" }, names.map((name) => h("option", { value: name }))),
      field("Sentence (if any)", text),
      h("div", { class: "chips" }, h("button", { class: "main", disabled: !state.shape }, "Save"),
        button("Discard", discard, { disabled: !state.shape && !stage.drawing.unfinished }))),
    boxForm(state.shape?.box, (box) => takeShape({ box })),
    h("section", {}, h("h3", {}, "Drawn on this image"), study.annotations.length ? h("ul", { class: "drawn" }, study.annotations.map(row)) : h("p", { class: "soft" }, "Nothing yet.")),
    layers);
  showLayers(layers, ["map", "boxes"]);
  draw();
  return place;
}

const hints = {
  box: "Drag from one corner to the other.",
  polygon: "Click the corners; Enter or a double-click closes the outline, Backspace takes the last corner back.",
  brush: "Paint; with Alt the brush erases. Enter when the mask is done.",
};

/** Draw what is there, and what is being drawn. */
export function draw() {
  const { study, stage } = room;
  if (!study) return;
  stage.setPanes(1);
  const waiting = state.shape ? (state.shape.points ? [lineLayer([...state.shape.points, state.shape.points[0]], OWN)] : shapeLayers(state.shape, OWN, "not saved yet", true)) : [];
  stage.main.say(study.title);
  stage.main.layers = [...studyLayers(study), ...waiting, stage.drawing.layer];
  stage.redraw();
}

/** Take a finished shape and ask for its label. */
export function takeShape(shape) {
  state.shape = shape.mask instanceof HTMLCanvasElement ? { mask: maskOf(shape.mask) } : shape;
  if (shape.mask && !state.shape.mask) state.shape = null; // everything was erased again
  showTruth(panel);
  document.getElementById("label")?.focus();
}

function discard() {
  state.shape = null;
  room.stage.clearDrawing();
  showTruth(panel);
}

async function save() {
  const { study, stage } = room, { shape } = state;
  if (!shape) return;
  const mask = shape.points ? maskOfPolygon(shape.points, stage.image.rows, stage.image.columns) : shape.mask ?? null;
  if (!shape.box && !mask) return announce("The outline is too small to hold a pixel.", true);
  const drawn = { study: study.key, label: state.label.trim(), text: state.text.trim() || null, box: shape.box ?? null, mask };
  state.shape = null;
  study.annotations.push({ ...drawn, waiting: true });
  showTruth(panel);
  await outbox.put("POST", "/annotations", drawn, { kind: "truth" });
}

function row(drawn) {
  const kind = drawn.mask ? "mask" : "box";
  const remove = async () => {
    if (!confirm(`Delete the ${kind} “${drawn.label}”?`)) return;
    await call("DELETE", `/annotations/${encodeURIComponent(drawn.id)}?version=${drawn.version}`);
    await room.renew();
    showTruth(panel);
  };
  return h("li", {}, h("strong", {}, drawn.label), h("span", { class: "soft" }, ` ${kind}${drawn.author ? ` by ${drawn.author}` : ""}`),
    drawn.waiting ? h("span", { class: "tag" }, "saving…") : button("Delete", remove, { class: "quiet" }), drawn.text && h("span", { class: "block soft" }, drawn.text));
}

for (const kind of ["saved", "refused"]) {
  outbox.addEventListener(kind, async ({ detail: { entry } }) => {
    if (entry.about.kind !== "truth" || room.study?.key !== entry.body.study) return;
    await room.renew().catch(() => null);
    if (room.screen === "draw") showTruth(panel);
    if (kind === "saved") announce(`Saved: ${entry.body.label}.`);
  });
}

bind("draw", "Enter", "Finish a polygon or a mask", () => { room.stage.drawing.close(); }, "Enter");
bind("draw", "Backspace", "Take the last corner back", () => room.stage.drawing.back());
bind("draw", "Escape", "Discard the shape", () => discard(), "Esc");
