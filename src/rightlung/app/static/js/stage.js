// The middle of the page: one or several panes that move together, and the tools above them.

import { button, fill, h } from "./dom.js";
import { bind } from "./keys.js";
import { Pane } from "./pane.js";
import { presets, View } from "./view.js";
import { Drawing } from "./drawing.js";

const TOOLS = { pan: ["Move", "p"], window: ["W/L", "w"], box: ["Box", "b"], polygon: ["Polygon", "o"], brush: ["Brush", "m"] };
const ON_IMAGES = "look ask draw judge";

/** The panes of all screens. Events: `drawn-shape` ({box | points | mask}), `tap` (fractions of the image). */
export class Stage extends EventTarget {
  view = new View();
  panes = [];
  tool = "pan";
  pointer = null; // fractions of the image, while the pointer is over it
  hovering = false; // whether what is drawn depends on the pointer
  #image = null;

  constructor(element) {
    super();
    this.bar = h("div", { class: "bar", role: "toolbar", "aria-label": "Image" });
    this.grid = h("div", { class: "panes" });
    this.empty = h("p", { class: "empty" }, "Choose a study on the left, or drop an image here.");
    fill(element, this.bar, h("div", { class: "stage-body" }, this.grid, this.empty));
    this.setPanes(1);
    this.#fillBar();
    this.#bindKeys();
    this.view.addEventListener("change", () => this.#readout());
  }

  get main() { return this.panes[0]; }
  get image() { return this.#image; }

  /** Show an image in the first pane, as it was meant to be seen. */
  showImage(image, label, levels = null) {
    this.#image = image;
    this.empty.hidden = Boolean(image);
    this.grid.hidden = !image;
    this.presets = image ? presets(image.pixels) : {};
    if (levels && levels.high - levels.low > 0.05) this.presets.Auto = [(levels.low + levels.high) / 2, levels.high - levels.low];
    this.view.reset(this.presets.Auto);
    for (const pane of this.panes) pane.show(image, label);
    this.clearDrawing();
    this.#readout();
  }

  /** Have so many panes in so many columns; all show the current image. */
  setPanes(count, columns = count) {
    while (this.panes.length > count) this.panes.pop().close();
    while (this.panes.length < count) {
      const pane = new Pane(this.view);
      pane.show(this.#image);
      this.panes.push(pane);
      this.grid.append(pane.element);
      if (this.panes.length === 1) this.#listenTo(pane);
    }
    this.grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    this.grid.dataset.count = String(count);
    for (const pane of this.panes) { pane.layers = []; pane.say(""); pane.show(pane.image ?? this.#image); }
    document.body.classList.toggle("many-panes", count > 1);
    return this.panes;
  }

  /** Choose what dragging does; screens that cannot draw offer only moving and windowing. */
  use(tool) {
    this.tool = tool;
    for (const pane of this.panes) { pane.tool = tool === "window" ? "window" : "pan"; pane.canvas.dataset.tool = pane.tool; }
    this.drawing.use(tool);
    for (const one of this.tools.children) one.setAttribute("aria-pressed", String(one.dataset.tool === tool));
  }

  /** Offer these tools; the others' keys do nothing. */
  offer(...tools) {
    for (const one of this.tools.children) one.hidden = !tools.includes(one.dataset.tool);
    if (!tools.includes(this.tool)) this.use("pan");
  }

  offers(tool) { return [...this.tools.children].some((one) => one.dataset.tool === tool && !one.hidden); }

  clearDrawing() { this.drawing?.clear(); }

  redraw() { for (const pane of this.panes) pane.draw(); }

  #listenTo(pane) {
    this.drawing = new Drawing(pane, (shape) => this.dispatchEvent(new CustomEvent("drawn-shape", { detail: shape })));
    pane.addEventListener("drawn", () => this.#readout());
    pane.addEventListener("tap", ({ detail }) => this.dispatchEvent(new CustomEvent("tap", { detail: detail.point })));
    pane.addEventListener("hover", ({ detail }) => { this.pointer = detail; this.#readout(); if (this.hovering) this.redraw(); });
  }

  #fillBar() {
    const { view } = this;
    this.tools = h("span", { class: "group", role: "group", "aria-label": "What dragging does" }, Object.entries(TOOLS).map(([tool, [text, key]]) =>
      button(text, () => this.use(tool), { "data-tool": tool, title: `${text} (${key})` })));
    this.window = h("select", { "aria-label": "Window preset", title: "Window preset (l: next)", onchange: () => this.preset(this.window.value) },
      ["Full", "Auto", "Lungs", "Mediastinum", "Bones", "Own"].map((name) => h("option", { value: name, hidden: name === "Own" }, name)));
    this.inverted = button("Invert", () => view.invert(), { title: "Invert (i)", "aria-pressed": "false" });
    this.readout = document.getElementById("readout");
    fill(this.bar, this.tools, h("span", { class: "group" }, this.window, this.inverted),
      h("span", { class: "group" }, button("−", () => view.zoom(0.8), { title: "Zoom out (-)", "aria-label": "Zoom out" }),
        button("+", () => view.zoom(1.25), { title: "Zoom in (+)", "aria-label": "Zoom in" }),
        button("Fit", () => view.fit(), { title: "Whole image (f)" }), button("1:1", () => view.truePixels(), { title: "True pixels (t)", "aria-label": "True pixels" }),
        button("Reset", () => view.reset(), { title: "Reset the view (r)" })));
    this.use("pan");
  }

  /** Use a window preset by its name. */
  preset(name) { if (this.presets?.[name]) this.view.setWindow(...this.presets[name]); }

  #readout() {
    const { view } = this, near = ([centre, width]) => Math.abs(centre - view.centre) < 1e-6 && Math.abs(width - view.width) < 1e-6;
    const zoom = Math.round(100 * view.scale * (window.devicePixelRatio || 1));
    let text = this.#image ? `${zoom} % · W ${Math.round(100 * view.width)} L ${Math.round(100 * view.centre)}` : "";
    if (this.pointer && this.#image) {
      const [x, y] = [Math.floor(this.pointer[0] * this.#image.columns), Math.floor(this.pointer[1] * this.#image.rows)];
      const value = x >= 0 && y >= 0 && x < this.#image.columns && y < this.#image.rows ? this.#image.pixels[y * this.#image.columns + x] : null;
      if (value !== null) text += ` · x ${x} y ${y}: ${(value / 65535).toFixed(3)}`;
    }
    this.readout.textContent = text;
    this.inverted.setAttribute("aria-pressed", String(view.inverted));
    this.window.value = Object.entries(this.presets ?? {}).find(([, window]) => near(window))?.[0] ?? "Own";
  }

  #bindKeys() {
    const { view } = this, on = ON_IMAGES;
    const next = () => {
      const names = Object.keys(this.presets ?? {});
      if (names.length) this.preset(names[(names.indexOf(this.window.value) + 1) % names.length]);
    };
    for (const [tool, [text, key]] of Object.entries(TOOLS)) {
      bind(on, key, `Drag: ${text === "W/L" ? "window and level" : text.toLowerCase()}`, () => { if (this.offers(tool)) this.use(tool); });
    }
    bind(on, "+", "Zoom in, out", () => view.zoom(1.25), "+ −");
    bind(on, "=", "", () => view.zoom(1.25));
    bind(on, "-", "", () => view.zoom(0.8));
    bind(on, "f", "Whole image", () => view.fit());
    bind(on, "t", "True pixels (1:1)", () => view.truePixels());
    bind(on, "i", "Invert", () => view.invert());
    bind(on, "l", "Next window preset", next);
    bind(on, "[", "Darker, brighter (level)", () => view.setWindow(view.centre + 0.03, view.width), "[ ]");
    bind(on, "]", "", () => view.setWindow(view.centre - 0.03, view.width));
    bind(on, "{", "More, less contrast (window)", () => view.setWindow(view.centre, view.width - 0.05), "{ }");
    bind(on, "}", "", () => view.setWindow(view.centre, view.width + 0.05));
    bind(on, "r", "Reset the view", () => view.reset());
    for (const [key, across, down] of [["ArrowLeft", 40, 0], ["ArrowRight", -40, 0], ["ArrowUp", 0, 40], ["ArrowDown", 0, -40]]) {
      bind(on, key, key === "ArrowLeft" ? "Move the image (when it has the focus)" : "", (event) => {
        if (event.target.tagName !== "CANVAS") return false;
        view.pan(across, down);
        return true;
      }, "← → ↑ ↓");
    }
  }
}
