// The questions about a heatmap: five choices each with the paper's anchors, answered with 1–5.

import { field, h } from "./dom.js";
import { bind } from "./keys.js";

let form = null;

/** Return the form; it writes into `ratings` and calls `save` when everything required is answered. */
export function questionForm(questions, ratings, { saved, last, save }) {
  ratings.answers ??= {};
  const base = new Set(["recall", "precision", "intuitiveness"]);
  const value = (name) => (base.has(name) ? ratings[name] : ratings.answers[name]);
  const give = (name, chosen) => {
    if (base.has(name)) ratings[name] = chosen;
    else ratings.answers[name] = chosen;
    update();
  };
  const required = questions.filter((question) => question.required);
  const button = h("button", { class: "main" }, last ? "Save and go on" : "Save and show the next map");
  const update = () => { button.disabled = required.some(({ name }) => !value(name)); };
  form = h("form", { class: "questions", onsubmit: (event) => { event.preventDefault(); if (!button.disabled) save(); } },
    questions.map((question) => (question.choices ? choices(question, value(question.name), give) : text(question, value(question.name), give))),
    field("Comment", h("textarea", { rows: 1, value: ratings.comment ?? "", maxLength: 2000, oninput: (event) => { ratings.comment = event.target.value; } })),
    h("div", { class: "row" }, button, h("span", { class: "saved soft", role: "status" }, saved ? (saved.waiting ? "Not saved yet." : "Saved.") : "")));
  update();
  focusOpen();
  return form;
}

function choices({ name, text: asked, choices: offered }, chosen, give) {
  const described = offered.some((one) => one.anchor), anchor = h("p", { class: "anchor soft", "data-hint": String(described) });
  const explain = (value) => {
    anchor.textContent = offered.find((one) => one.value === value)?.anchor || (value && described ? `Between ${value - 1} and ${value + 1}.` : "");
  };
  const group = h("fieldset", { "data-name": name }, h("legend", {}, asked),
    h("div", { class: "scale5" }, offered.map(({ value, label, anchor: meaning }) => h("label", { title: meaning || null, onmouseenter: () => explain(value),
      onmouseleave: () => explain(checked(group)) },
      h("input", { type: "radio", name, value: String(value), checked: value === chosen, onfocus: () => { mark(group); explain(value); }, onchange: () => { give(name, value); explain(value); } }),
      h("kbd", {}, String(value)), label !== String(value) && h("span", {}, label)))),
    described && h("dl", { class: "anchors soft" }, offered.filter((one) => one.anchor).map((one) => h("div", {}, h("dt", {}, String(one.value)), h("dd", {}, one.anchor)))), anchor);
  explain(chosen);
  group.addEventListener("click", () => mark(group));
  return group;
}

function text({ name, text: asked }, written, give) {
  return field(asked, h("input", { value: written ?? "", maxLength: 2000, oninput: (event) => give(name, event.target.value) }));
}

const checked = (group) => Number(group.querySelector("input:checked")?.value) || null;
const groups = () => [...(form?.querySelectorAll("fieldset") ?? [])];

/** The question that the keys 1–5 answer. */
function mark(group) {
  for (const one of groups()) one.classList.toggle("current", one === group);
}

function focusOpen() {
  mark(groups().find((group) => !checked(group)) ?? null);
}

function answer(value) {
  const group = groups().find((one) => one.classList.contains("current"));
  const choice = group?.querySelector(`input[value="${value}"]`);
  if (!choice) return;
  choice.checked = true;
  choice.dispatchEvent(new Event("change"));
  focusOpen();
  const next = groups().find((one) => one.classList.contains("current"));
  next?.scrollIntoView({ block: "nearest" });
}

for (const value of [1, 2, 3, 4, 5]) bind("judge", String(value), value === 1 ? "Answer the marked question" : "", () => answer(value), "1 – 5");
bind("judge", "Enter", "Save, and show the next map", () => (form?.isConnected ? form.requestSubmit() : false), "Enter");
bind("judge", "Backspace", "Back to the previous question", () => {
  const all = groups(), place = all.findIndex((one) => one.classList.contains("current"));
  mark(all[(place < 0 ? all.length : place) - 1] ?? all[0]);
});
