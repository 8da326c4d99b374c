// What a model says, in words: score, abstention, side, regions, boxes.

import { h, percent } from "./dom.js";

/** Return the card of an answer. `act(index)` is called when one of its boxes is pointed at (-1: none). */
export function answerCard(name, answer, act, changed = null) {
  return h("article", { class: answer.absent ? "answer absent" : "answer", "aria-label": `Answer of ${name}` },
    h("h3", {}, name, h("span", { class: "soft small" }, answer.milliseconds === null ? "" : ` ${answer.cached ? "known answer, " : ""}${Math.round(answer.milliseconds)} ms`)),
    answer.absent && h("p", { class: "abstains" }, "Probably not in this image: the model declines to point anywhere."),
    h("dl", { class: "facts" }, scoreRow(answer.score), abstentionRow(answer.abstention), sideRow(answer), !answer.absent && regionRow(answer.regions)),
    answer.boxes.length > 0 && boxList(answer, act),
    answer.notes.map((note) => h("p", { class: "notice" }, note)),
    changed && changeTable(answer, changed));
}

function scoreRow({ value, calibrated, probability, name, statement }) {
  const shown = calibrated && probability !== null ? `${percent(probability)} probable (calibrated)` : value === null ? "none" : `${name} ${number(value)}`;
  return row("Score", h("strong", {}, shown), h("span", { class: "soft small block" }, statement));
}

function abstentionRow(abstention) {
  return row("Abstention", h("meter", { min: 0, max: 1, value: abstention, "aria-label": "Abstention" }), ` ${percent(abstention)}`);
}

function sideRow({ peak_side: side, side_said: said, side_agrees: agrees, absent }) {
  if (!side || absent) return null;
  const verdict = agrees === false ? h("strong", { class: "alarm" }, ` — the phrase says ${said}`) : agrees ? " — as the phrase says" : null;
  return row("Peak", side === "midline" ? "in the midline" : `on the ${side}`, verdict);
}

function regionRow(regions) {
  if (!regions.length) return null;
  const shown = regions.slice(0, 3);
  return row("Map lies in", shown.map(({ name, share }) => `${name} ${percent(share)}`).join(", "),
    shown.reduce((sum, { share }) => sum + share, 0) > 1 && h("span", { class: "soft small" }, " (regions overlap)"));
}

/** A number with two decimals and a true minus. */
export const number = (value) => (value === null || value === undefined ? "–" : value.toFixed(2).replace("-", "−"));

const row = (term, ...texts) => h("div", {}, h("dt", {}, term), h("dd", {}, texts));

function boxList({ boxes, absent }, act) {
  const shown = boxes.slice(0, 5);
  return h("ul", { class: "boxes" }, shown.map(({ score, label }, index) => h("li", {},
    h("button", { type: "button", class: "quiet", onmouseenter: () => act(index), onmouseleave: () => act(-1), onfocus: () => act(index), onblur: () => act(-1) },
      `Box ${index + 1}${label ? ` (${label})` : ""}: ${score.toFixed(2)}${absent ? ", doubtful" : ""}`))),
    boxes.length > shown.length && h("li", { class: "soft" }, `and ${boxes.length - shown.length} more`),
    h("li", { class: "soft small" }, "Scores of boxes only rank the boxes of one answer."));
}

/** Before and after a perturbation, side by side. */
function changeTable(before, after) {
  const { total_variation: moved, peak_displacement: shift } = after.change;
  const rows = [["Score", before.score.value, after.score.value], ["Abstention", before.abstention, after.abstention]];
  return h("div", { class: "changed" },
    h("p", {}, "Asked after the change: ", h("em", {}, after.phrase || "the same words")),
    h("table", {}, h("thead", {}, h("tr", {}, ["", "before", "after"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map(([name, one, two]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, number(one)), h("td", {}, number(two)))))),
    h("p", { class: "soft" }, moved === null ? "" : `${percent(moved)} of the map moved`, shift === null ? "." : `; its peak moved by ${percent(shift)} of the image.`));
}
