// Drawing on a pane: a box, a polygon or a brush stroke. Points are fractions of the image.

import { OWN } from "./colours.js";
import { field, form, h } from "./dom.js";
import { boxLayer, lineLayer, mapLayer } from "./layers.js";

const inside = ([x, y]) => [Math.min(Math.max(x, 0), 1), Math.min(Math.max(y, 0), 1)];
const SMALLEST = 0.005; // side of a box that was drawn on purpose

/** Return a form that gives a box by its edges, for those who do not drag. */
export function boxForm(box, give) {
  const edges = ["Left", "Top", "Right", "Bottom"].map((name, place) => [name,
    h("input", { type: "number", min: 0, max: 100, step: "any", required: true, value: box ? String(Math.round(1000 * box[place]) / 10) : "" })]);
  const take = () => {
    const [x0, y0, x1, y1] = edges.map(([, { value }]) => Number(value) / 100);
    if (x1 - x0 <= SMALLEST || y1 - y0 <= SMALLEST) throw new Error("Right must be more than left, and bottom more than top.");
    give([x0, y0, x1, y1]);
  };
  return h("details", {}, h("summary", {}, "Type a box instead"), form(take, { class: "row edges" },
    edges.map(([name, input]) => field(`${name} %`, input)), h("button", {}, "Set the box")));
}

/** Gathers what is drawn; `done({box} | {points} | {mask})` is called for each finished shape. */
export class Drawing {
  tool = "pan";
  brush = 12; // radius in screen pixels
  erasing = false;
  #start = null;
  #box = null;
  #points = [];
  #last = null;
  mask = null; // canvas at the image's size, opaque where painted

  constructor(pane, done) {
    this.pane = pane;
    this.done = done;
    pane.addEventListener("stroke-start", ({ detail }) => this.#begin(detail));
    pane.addEventListener("stroke-move", ({ detail }) => this.#move(detail));
    pane.addEventListener("stroke-end", ({ detail }) => this.#end(detail));
    pane.addEventListener("stroke-cancel", () => this.clear());
    pane.canvas.addEventListener("dblclick", () => { if (this.tool === "polygon") this.close(); });
  }

  /** Choose pan, window, box, polygon or brush. */
  use(tool) {
    this.tool = this.pane.tool = tool;
    this.pane.canvas.dataset.tool = tool;
    if (tool !== "brush") this.mask = null;
    this.#points = [];
    this.pane.draw();
  }

  /** The layer that shows an unfinished shape. */
  layer = (pen, pane) => {
    if (this.#box) boxLayer([{ box: this.#box, colour: OWN, dashed: true }])(pen, pane);
    if (this.#points.length) lineLayer(this.#points, OWN)(pen, pane);
    if (this.mask) mapLayer(this.mask, 0.45)(pen, pane);
  };

  /** Close the polygon, or hand over the painted mask. */
  close() {
    const points = this.#points.filter(([x, y], index, all) => !index || x !== all[index - 1][0] || y !== all[index - 1][1]);
    const mask = this.mask;
    this.clear();
    if (points.length > 2) this.done({ points });
    else if (mask) this.done({ mask });
  }

  /** Take back the last corner of a polygon. */
  back() { this.#points.pop(); this.pane.draw(); }

  get unfinished() { return this.#points.length > 0 || this.mask !== null; }

  clear() {
    this.#start = this.#box = this.#last = this.mask = null;
    this.#points = [];
    this.pane.draw();
  }

  #begin({ point, tool, event }) {
    if (tool === "polygon") this.#points.push(inside(point));
    else if (tool === "box") this.#start = inside(point);
    else if (tool === "brush") { this.#last = null; this.erasing = event.altKey; this.#paint(point); }
    this.pane.draw();
  }

  #move({ point, tool }) {
    if (tool === "box" && this.#start) {
      const [[x0, y0], [x1, y1]] = [this.#start, inside(point)];
      this.#box = [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
    } else if (tool === "brush") this.#paint(point);
    this.pane.draw();
  }

  #end({ tool }) {
    if (tool !== "box") return;
    const box = this.#box;
    this.#start = this.#box = null;
    this.pane.draw();
    if (box && box[2] - box[0] > SMALLEST && box[3] - box[1] > SMALLEST) this.done({ box });
  }

  #paint([x, y]) {
    const { image, view } = this.pane;
    this.mask ??= h("canvas", { width: image.columns, height: image.rows });
    const pen = this.mask.getContext("2d"), place = [x * image.columns, y * image.rows];
    pen.globalCompositeOperation = this.erasing ? "destination-out" : "source-over";
    pen.strokeStyle = OWN;
    pen.lineCap = "round";
    pen.lineWidth = (2 * this.brush) / view.scale;
    pen.beginPath();
    pen.moveTo(...(this.#last ?? place));
    pen.lineTo(...place);
    pen.stroke();
    this.#last = place;
  }
}
