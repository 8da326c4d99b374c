// One picture on a canvas: the radiograph, what is drawn over it, and what the pointer does.

import { h } from "./dom.js";
import { greys } from "./view.js";

/** A canvas with a title; R and L stand above the image, so that they never cover it. */
export class Pane extends EventTarget {
  image = null; // {rows, columns, pixels: Uint16Array}
  layers = []; // functions (pen, pane) that draw in image pixels; `pane.line` is one screen pixel
  tool = "pan";
  #drawn = null; // the image under the current window
  #key = "";
  #waiting = false;

  constructor(view, label = "Radiograph") {
    super();
    this.view = view;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": label });
    this.title = h("span", { class: "pane-title" });
    this.note = h("p", { class: "pane-note" });
    this.element = h("figure", { class: "pane" },
      h("figcaption", {}, h("abbr", { title: "The patient's right" }, "R"), this.title, h("abbr", { title: "The patient's left" }, "L")),
      h("div", { class: "pane-canvas" }, this.canvas), this.note);
    this.listener = () => this.draw();
    view.addEventListener("change", this.listener);
    this.observer = new ResizeObserver(this.listener);
    this.observer.observe(this.canvas.parentElement);
    this.#listen();
  }

  /** Show an image (or none). */
  show(image, label) {
    this.image = image;
    this.#key = "";
    if (label) this.canvas.setAttribute("aria-label", label);
    this.draw();
  }

  /** Say what the pane shows: a title above and a note below. */
  say(title, note = "", strong = false) {
    this.title.textContent = title;
    this.note.replaceChildren(...[note].flat());
    this.note.classList.toggle("strong", strong);
  }

  close() {
    this.view.removeEventListener("change", this.listener);
    this.observer.disconnect();
    this.element.remove();
  }

  /** Draw at the next frame, once for any number of calls. */
  draw() {
    if (this.#waiting) return;
    this.#waiting = true;
    requestAnimationFrame(() => { this.#waiting = false; this.#paint(); });
  }

  /** One screen pixel in image pixels. */
  get line() { return 1 / this.view.scale; }

  /** Return the image point (fractions) under a pointer event. */
  point(event) {
    const place = this.canvas.getBoundingClientRect(), { view, image } = this;
    const x = view.x + (event.clientX - place.left - place.width / 2) / view.scale;
    const y = view.y + (event.clientY - place.top - place.height / 2) / view.scale;
    return [x / image.columns, y / image.rows];
  }

  #windowed() {
    const { view, image } = this;
    const key = `${view.centre} ${view.width} ${view.inverted}`;
    if (key === this.#key) return this.#drawn;
    const table = greys(view), { rows, columns, pixels } = image;
    const canvas = this.#drawn?.width === columns && this.#drawn.height === rows ? this.#drawn : document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    const pen = canvas.getContext("2d"), data = pen.createImageData(columns, rows);
    const words = new Uint32Array(data.data.buffer);
    for (let index = 0; index < pixels.length; index++) words[index] = 0xff000000 | (table[pixels[index]] * 0x010101);
    pen.putImageData(data, 0, 0);
    this.#key = key;
    return (this.#drawn = canvas);
  }

  #paint() {
    const { canvas, view, image } = this, ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas.parentElement;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    if (!image) return;
    if (view.fitted) {
      view.scale = Math.min(width / image.columns, height / image.rows);
      view.x = image.columns / 2;
      view.y = image.rows / 2;
    }
    const scale = view.scale * ratio;
    pen.setTransform(scale, 0, 0, scale, Math.round(canvas.width / 2 - view.x * scale), Math.round(canvas.height / 2 - view.y * scale));
    pen.imageSmoothingEnabled = view.scale < 6;
    pen.drawImage(this.#windowed(), 0, 0);
    pen.imageSmoothingEnabled = true;
    for (const layer of this.layers) { pen.save(); layer(pen, this); pen.restore(); }
    this.dispatchEvent(new Event("drawn"));
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => {
      if (!this.image) return;
      event.preventDefault();
      const [x, y] = this.point(event);
      this.view.zoom(Math.exp(-event.deltaY / 400), [x * this.image.columns, y * this.image.rows]);
    }, { passive: false });
    canvas.addEventListener("dblclick", () => { if (this.tool === "pan") this.view.fit(); });
    canvas.addEventListener("pointerdown", (event) => { if (this.image) this.#press(event); });
    canvas.addEventListener("pointermove", (event) => {
      if (this.image) this.dispatchEvent(new CustomEvent("hover", { detail: this.point(event) }));
    });
    canvas.addEventListener("pointerleave", () => this.dispatchEvent(new CustomEvent("hover", { detail: null })));
  }

  #press(event) {
    const { view } = this;
    const act = event.button === 1 ? "pan" : event.button === 2 || event.shiftKey ? "window" : this.tool;
    if (event.button === 1) event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    let last = event;
    const tell = (kind, now) => this.dispatchEvent(new CustomEvent(kind, { detail: { point: this.point(now), tool: act, event: now } }));
    if (act !== "pan" && act !== "window") tell("stroke-start", event);
    const move = (now) => {
      const across = now.clientX - last.clientX, down = now.clientY - last.clientY;
      if (act === "pan") view.pan(across, down);
      else if (act === "window") view.setWindow(view.centre + down / 500, view.width + across / 300);
      else tell("stroke-move", now);
      last = now;
    };
    const ends = new AbortController();
    const stop = (now) => {
      ends.abort();
      if (act !== "pan" && act !== "window") tell(now.type === "pointerup" ? "stroke-end" : "stroke-cancel", now);
      else if (Math.hypot(now.clientX - event.clientX, now.clientY - event.clientY) < 4) tell("tap", now);
    };
    for (const [kind, listener] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) {
      this.canvas.addEventListener(kind, listener, { signal: ends.signal });
    }
  }
}
