// Keeps what the reader saved until the server has confirmed it: across a lost store, a killed server and a closed tab.

import { ApiError, call, newKey } from "./api.js";
import { button, counted, fill } from "./dom.js";

const LONGEST_WAIT = 15;

const ID = /^[0-9a-f]{32}$/;

/** Saves in order; each entry has a place of its own in the browser's storage, so that tabs leave each other's alone. Events: `change` (count waiting), `saved` and `refused` ({entry, result | error}). */
class Outbox extends EventTarget {
  #waiting = [];
  #timer = null;
  #sending = null;
  #tries = 0;
  #name = "";

  /** Take up what an earlier visit left behind. */
  open(user) {
    this.#name = `rightlung.outbox.${user}.`;
    try {
      const names = Object.keys(localStorage).filter((name) => name.startsWith(this.#name) && ID.test(name.slice(this.#name.length)));
      this.#waiting = names.map((name) => JSON.parse(localStorage.getItem(name))).sort((one, two) => one.at - two.at);
    } catch { this.#waiting = []; }
    this.#changed();
    this.send();
  }

  get waiting() { return this.#waiting; }
  get persistent() { return this.#waiting.every(({ kept }) => kept); }

  /** Save a body at a path. A newer body for the same path replaces one that still waits. */
  put(method, path, body, about = {}) {
    const earlier = this.#waiting.find((entry) => entry.path === path && entry.method === method && method === "PUT");
    const entry = { id: newKey(), at: Date.now(), method, path, body: { ...body, key: newKey() }, about, tried: [] };
    if (earlier) {
      entry.tried = [...earlier.tried, earlier.body];
      this.#drop(earlier);
    }
    this.#waiting.push(entry);
    this.#keep(entry);
    this.#changed();
    return this.send();
  }

  /** Take back the newest entry that `wanted` accepts, or null. What is being sent is waited for. */
  async takeBack(wanted) {
    await this.#sending;
    const entry = this.#waiting.findLast(wanted) ?? null;
    if (entry) this.#drop(entry);
    this.#changed();
    return entry;
  }

  /** Send what waits, now; on failure try again later. */
  send() {
    this.#sending ??= this.#run().finally(() => { this.#sending = null; this.#changed(); });
    return this.#sending;
  }

  async #run() {
    clearTimeout(this.#timer);
    const left = new Set(); // kept for later: the store behind the server may be another one now, or empty
    for (let entry; (entry = this.#waiting.find((one) => !left.has(one)));) {
      delete entry.trouble;
      try {
        const result = await call(entry.method, entry.path, entry.body);
        this.#settle(entry, "saved", { result });
        this.#tries = 0;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.code === "conflict" && ownEarlier(entry, error.current)) { // saved, but the answer was lost on the way
          entry.body = { ...entry.body, version: error.current.version, key: newKey() };
          entry.tried = [];
          this.#keep(entry);
          continue;
        }
        if (error.status === 404 || (error.status >= 500 && !error.passing)) {
          entry.trouble = error.message;
          left.add(entry);
          continue;
        }
        if (!error.passing && error.status !== 401) { this.#settle(entry, "refused", { error }); continue; }
        const wait = error.wait || Math.min(2 ** this.#tries++, LONGEST_WAIT);
        this.#timer = setTimeout(() => this.send(), 1000 * wait);
        return;
      }
    }
    if (left.size) this.#timer = setTimeout(() => this.send(), 1000 * LONGEST_WAIT);
  }

  /** Drop the entries that the server knows no place for. */
  discard() {
    for (const entry of this.#waiting.filter(({ trouble }) => trouble)) this.#drop(entry);
    this.#changed();
  }

  #settle(entry, kind, detail) {
    this.#drop(entry);
    this.#changed();
    this.dispatchEvent(new CustomEvent(kind, { detail: { entry, ...detail } }));
  }

  #keep(entry) {
    entry.kept = true;
    try {
      localStorage.setItem(this.#name + entry.id, JSON.stringify(entry));
    } catch { entry.kept = false; } // a private window: kept until the tab is closed
  }

  #drop(entry) {
    this.#waiting = this.#waiting.filter((other) => other !== entry);
    try { localStorage.removeItem(this.#name + entry.id); } catch { /* a private window */ }
  }

  #changed() {
    this.dispatchEvent(new CustomEvent("change", { detail: this.#waiting.length }));
  }
}

const RATINGS = ["recall", "precision", "intuitiveness"];
const ownEarlier = (entry, current) => Boolean(current) && entry.tried.some((body) => RATINGS.every((name) => body[name] === current[name]));

export const outbox = new Outbox();

/** Keep a banner up to date that says what waits, and warn before closing a tab that alone holds answers. */
export function showOutbox(banner) {
  outbox.addEventListener("change", () => {
    const count = outbox.waiting.length;
    const kept = outbox.persistent ? "kept in this browser" : "kept in this tab (do not close it)";
    const refused = outbox.waiting.filter(({ trouble }) => trouble);
    const discard = () => { if (confirm(`Discard ${counted(refused.length, "entry", "entries")} that the server refuses? This cannot be undone.`)) outbox.discard(); };
    fill(banner, count && `Not saved yet: ${counted(count, "entry", "entries")}, ${kept}. `, count && (refused.length
      ? [`The server answers: ${refused[0].trouble}. Has it another store? The page goes on trying. `, button("Discard", discard, { class: "quiet small" })]
      : "They will be saved as soon as the store is back."));
    banner.hidden = !count;
  });
  window.addEventListener("beforeunload", (event) => { if (outbox.waiting.length && !outbox.persistent) event.preventDefault(); });
  window.addEventListener("online", () => outbox.send());
}
