// Which layers lie over the radiograph, and the panel that switches them.

import { COLOUR_MAPS, colourOf, OWN, painted, PREDICTED, TRUTH } from "./colours.js";
import { bind } from "./keys.js";
import { check, choice, fill, h, slider } from "./dom.js";
import { boxLayer, mapLayer, peakLayer, textLayer } from "./layers.js";
import { boxOf, maskLayer } from "./masks.js";
import { room } from "./room.js";

const LAYERS = [["truth", "Truth"], ["regions", "Regions"], ["gaze", "Gaze map"], ["map", "Heatmap"], ["boxes", "Boxes, peak"], ["drawn", "Drawings"]];
const REGION = "rgb(150, 190, 230)";

/** Layers that belong to the study: gaze, regions, truth, and what people drew. `chosen` is the phrase in question.
 * Over a difference of maps, `gaze` is false: both are blue. */
export function studyLayers(study, chosen = null, gaze = true) {
  const { display } = room, layers = [];
  if (gaze && display.gaze && study.gaze) layers.push(mapLayer(picture(study.gaze, "ice", 0), 0.7));
  if (display.regions) layers.push(regionLayer(study.regions));
  if (display.truth) layers.push(...truthLayers(study, chosen));
  if (display.drawn) layers.push(...study.annotations.flatMap((drawn) => shapeLayers(drawn, OWN, drawn.label)));
  return layers;
}

/** All regions faintly; the three smallest under the pointer with their names. */
const regionLayer = (regions) => (pen, pane) => {
  const boxes = Object.entries(regions), point = room.stage.pointer;
  const holds = ([, [x0, y0, x1, y1]]) => point && x0 <= point[0] && point[0] <= x1 && y0 <= point[1] && point[1] <= y1;
  const near = boxes.filter(holds).sort((one, two) => area(one[1]) - area(two[1])).slice(0, 3);
  boxLayer(boxes.map(([, box]) => ({ box, colour: REGION, faint: true })))(pen, pane);
  boxLayer(near.map(([text, box]) => ({ box, text, colour: REGION, strong: true })))(pen, pane);
};
const area = ([x0, y0, x1, y1]) => (x1 - x0) * (y1 - y0);

/** Outlines of the truth: that of the chosen phrase or, without one, of all findings. */
function truthLayers(study, chosen) {
  const wanted = chosen ? study.phrases.filter(({ text }) => text === chosen) : study.located_findings;
  return wanted.flatMap((truth) => shapeLayers(truth, TRUTH, chosen ? "" : truth.text));
}

/** Return the layers of something with boxes or a mask. */
export function shapeLayers({ box, boxes = box ? [box] : [], mask }, colour, text = "", strong = false) {
  if (!mask) return [boxLayer(boxes.map((one) => ({ box: one, colour, text, strong })))];
  return [maskLayer(mask, colour, strong), textLayer(text, boxOf(mask), colour)];
}

/** Layers of an answer. A model that abstains gives a faint map, no peak, and boxes only one by one (`strong`), dashed. */
export function answerLayers(answer, strong = -1) {
  const { display } = room, layers = [];
  if (display.map && answer.map) layers.push(mapLayer(picture(answer.map, display.colours, answer.abstention), display.opacity));
  if (display.boxes) {
    const boxes = answer.boxes.map(({ box, score, label }, index) => ({ box, colour: PREDICTED, dashed: answer.absent, strong: index === strong,
      text: [label, score?.toFixed(2)].filter(Boolean).join(" ") }));
    layers.push(boxLayer(answer.absent ? boxes.filter((box) => box.strong) : boxes));
    if (answer.peak && !answer.absent) layers.push(peakLayer(answer.peak, PREDICTED));
  }
  return layers;
}

const pictures = new WeakMap();
/** Return the picture of a map, drawn once for each colour map. */
export function picture(map, colours, abstention) {
  const drawn = pictures.get(map) ?? {};
  pictures.set(map, drawn);
  return (drawn[`${colours} ${abstention}`] ??= painted(map, colours, abstention));
}

/** Fill the panel of layers; `without` names those that the screen does not have. */
export function showLayers(place, without = []) {
  const { study, display } = room;
  const has = { truth: study?.located_findings.length || study?.phrases.some(({ boxes, mask }) => boxes.length || mask),
    regions: Object.keys(study?.regions ?? {}).length, gaze: study?.gaze, drawn: study?.annotations.length, map: true, boxes: true };
  fill(place, h("h3", {}, "Layers"),
    h("div", { class: "checks" }, LAYERS.map(([name, text], index) => !without.includes(name) &&
      check([text, " ", h("kbd", {}, String(index + 1))], display[name], (value) => room.set({ [name]: value }), { disabled: !has[name], title: has[name] ? null : "This study has none" }))),
    slider("Opacity", display.opacity, (value) => room.set({ opacity: value })),
    h("div", { class: "row" }, choice("Colours", COLOUR_MAPS, display.colours, (value) => room.set({ colours: value })), scale(display.colours)));
}

/** A small legend of the colour map, from no attention to the map's maximum. */
function scale(name) {
  const canvas = h("canvas", { class: "scale", width: 120, height: 10, role: "img", "aria-label": "Colours from low to the map's maximum" });
  const pen = canvas.getContext("2d");
  for (let x = 0; x < 120; x++) {
    pen.fillStyle = `rgba(${colourOf(name, x / 119).join(",")}, ${0.15 + (0.85 * x) / 119})`;
    pen.fillRect(x, 0, 1, 10);
  }
  return h("span", { class: "legend" }, h("span", {}, "0"), canvas, h("span", {}, "max"));
}

/** Bind the keys of the layers. */
export function bindLayers() {
  LAYERS.forEach(([name, text], index) => bind("look ask draw", String(index + 1), text, () => room.set({ [name]: !room.display[name] })));
  bind("look ask", "<", "Fainter, stronger map", () => room.set({ opacity: Math.max(0, room.display.opacity - 0.1) }), "< >");
  bind("look ask", ">", "", () => room.set({ opacity: Math.min(1, room.display.opacity + 0.1) }));
}
