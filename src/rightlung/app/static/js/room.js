// What all screens share: the models, the study that is open, and how answers are shown. Changes are announced as events.

import { get, getPixels } from "./api.js";

const KEPT = 6; // studies whose pixels stay in memory

/** Events: `study` (another one is open), `display` (layers, opacity or colours changed), `screen`. */
class Room extends EventTarget {
  screen = "look";
  session = null;
  models = [];
  study = null;
  stage = null;
  #images = new Map();
  #wanted = null;
  display = { truth: false, regions: false, gaze: false, map: true, boxes: true, drawn: true, opacity: 0.65, colours: "heat" };

  /** Change how answers are shown; kept for the next visit. */
  set(changes) {
    Object.assign(this.display, changes);
    try { localStorage.setItem("rightlung.display", JSON.stringify(this.display)); } catch { /* private window */ }
    this.dispatchEvent(new Event("display"));
  }

  /** Take up the settings of the last visit. Truth is never shown unasked. */
  restore() {
    try {
      const { opacity, colours, boxes } = JSON.parse(localStorage.getItem("rightlung.display")) ?? {};
      Object.assign(this.display, opacity && { opacity }, colours && { colours }, boxes !== undefined && { boxes });
    } catch { /* first visit */ }
  }

  /** Models that can do something: `able("ground")`. */
  able(what) { return this.models.filter((model) => model.can.includes(what)); }

  /** Fetch a study and its pixels without opening it. */
  async fetched(key) {
    if (!this.#images.has(key)) {
      const path = `/studies/${encodeURIComponent(key)}`;
      this.#images.set(key, await getPixels(`${path}/pixels`));
      if (this.#images.size > KEPT) this.#images.delete(this.#images.keys().next().value);
    }
    return this.#images.get(key);
  }

  /** Open a study on the stage. If another one is asked for meanwhile, that one wins. */
  async open(key) {
    if (this.study?.key === key) return this.study;
    this.#wanted = key;
    const [study, image] = await Promise.all([get(`/studies/${encodeURIComponent(key)}`), this.fetched(key)]);
    if (this.#wanted !== key) return null;
    this.take(study, image);
    return study;
  }

  /** Make a study that was fetched already the open one. */
  take(study, image) {
    this.#wanted = study.key;
    this.study = study;
    this.stage.setPanes(1);
    this.stage.showImage(image, `Radiograph of ${study.title}`, study.levels);
    this.dispatchEvent(new Event("study"));
  }

  /** Close the open study. */
  close() {
    this.#wanted = this.study = null;
    this.stage.showImage(null);
  }

  /** Fetch the open study's facts again, for instance after something was drawn. */
  async renew() {
    const { key } = this.study, study = await get(`/studies/${encodeURIComponent(key)}`);
    if (this.study?.key === key) this.study = study;
    this.dispatchEvent(new Event("display"));
  }

  /** Show another screen; the address says which, so that the browser's back button works. */
  go(screen, ...rest) { location.hash = ["#", screen, ...rest.map(encodeURIComponent)].join("/"); }
}

export const room = new Room();
