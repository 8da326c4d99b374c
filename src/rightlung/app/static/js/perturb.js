// One click changes the words or the image, and shows both maps and their difference.

import { button, form, h } from "./dom.js";

export const KINDS = {
  "swap-sides": ["Swap sides", "left and right swapped in the words"],
  negate: ["Negate", "the words negated"],
  "occlude-peak": ["Cover the peak", "the map's peak covered"],
  "twin-removed": ["Without the finding", "the same patient without the finding"],
  replace: ["Other sentence…", "another sentence"],
  "twin-moved": ["Finding moved", "the same patient with the finding elsewhere"],
  "twin-worse": ["Finding worse", "the same patient with more of the finding"],
  "occlude-target": ["Cover the truth", "the true region covered"],
  "noise-image": ["Noise image", "noise instead of the image"],
  "nonsense-prompt": ["Nonsense words", "words without meaning"],
};
const FIRST = 5;

/** Why a perturbation cannot work for a phrase of the study, or null. Custom phrases are left to the server. */
function obstacle(kind, study, phrase) {
  const known = study.phrases.find(({ text }) => text === phrase);
  if (kind.startsWith("twin-")) {
    if (!study.has?.twins) return "Only phantoms have twins";
    return known && !known.twins.includes(kind.slice(5)) ? "This sentence's finding has no such twin" : null;
  }
  if (kind === "occlude-target" && !(known?.boxes.length || known?.mask)) return "The truth is not known";
  if (kind === "swap-sides" && known && !known.can_swap) return "The sentence names no side";
  if (kind === "negate" && known && known.negated === null) return "The sentence cannot be negated";
  return null;
}

/** Return the buttons; `act(kind, text)` asks, `act(null)` goes back to the plain answer. */
export function perturbButtons(study, phrase, current, act) {
  const other = study.phrases.find(({ text }) => text !== phrase)?.text ?? "Normal heart size.";
  const words = h("input", { value: current?.text ?? other, "aria-label": "Other sentence" });
  const replacing = form(() => act("replace", words.value), { class: "row", hidden: current?.kind !== "replace" },
    words, h("button", {}, "Show"));
  const one = ([kind, [text, what]]) => {
    const why = obstacle(kind, study, phrase);
    return button(text, () => {
      if (kind !== "replace") return act(current?.kind === kind ? null : kind);
      replacing.hidden = !replacing.hidden;
      if (!replacing.hidden) words.focus();
      return null;
    }, { disabled: why !== null, title: why ?? `Ask with ${what}`, "aria-pressed": String(current?.kind === kind) });
  };
  const all = Object.entries(KINDS);
  return h("section", { "aria-label": "Perturb" }, h("h3", {}, "Perturb"), h("div", { class: "chips" }, all.slice(0, FIRST).map(one)), replacing,
    h("details", { open: all.slice(FIRST).some(([kind]) => kind === current?.kind) }, h("summary", {}, "More"), h("div", { class: "chips" }, all.slice(FIRST).map(one))),
    current && button("Back to the plain answer", () => act(null), { class: "quiet" }));
}
