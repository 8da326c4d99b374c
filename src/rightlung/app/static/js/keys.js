// Keyboard shortcuts, and the dialog that lists them.

import { h, showDialog } from "./dom.js";

const bound = [];
let screen = () => "";

/** Bind a key on a screen ("" for every screen). `shown` is what the help calls the key. */
export function bind(on, key, text, act, shown = key) { bound.push({ on, key, text, act, shown }); }

/** Begin to listen; `current` returns the name of the screen. */
export function listen(current) {
  screen = current;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (typing(event.target) && event.key !== "Escape") return;
    if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
    const found = bound.find(({ on, key }) => key === event.key && (!on || on.split(" ").includes(screen())));
    if (!found) return;
    if (found.act(event) !== false) event.preventDefault();
  });
}

const typing = (target) => target.matches?.("textarea, select, input:not([type=radio], [type=checkbox], [type=range])");

/** Show all shortcuts. */
export function showHelp() {
  const groups = new Map();
  for (const entry of bound.filter(({ text }) => text)) groups.set(entry.on, [...(groups.get(entry.on) ?? []), entry]);
  showDialog({ class: "help", "aria-label": "Keyboard shortcuts" },
    h("form", { method: "dialog", class: "close" }, h("button", { autofocus: true }, "Close")), h("h2", {}, "Keyboard and mouse"),
    h("div", { class: "columns" }, [...groups].map(([on, keys]) => h("section", {},
      h("h3", {}, titled(on)),
      h("dl", {}, keys.map(({ shown, text }) => h("div", {}, h("dt", {}, h("kbd", {}, shown)), h("dd", {}, text))))))),
    h("p", {}, "Mouse: drag to move, wheel to zoom, drag with the right button (or with Shift) for window and level: across changes the contrast, ",
      "up makes the image brighter. Double-click shows the whole image again."));
}

const named = (name) => name[0].toUpperCase() + name.slice(1);
const titled = (on) => (on ? (on.includes(" judge") ? "On every image" : on.split(" ").map(named).join(", ")) : "Everywhere");
