// Look: the study, its report, and what is known about it.

import { call, post } from "./api.js";
import { answerLayers, showLayers, studyLayers } from "./display.js";
import { announce, button, fill, h } from "./dom.js";
import { room } from "./room.js";

let chosen = null; // the sentence whose truth and heatmap are shown
let answer = null;

/** Fill the panel and draw. */
export function showLook(place) {
  const { study } = room;
  if (!study) return fill(place, h("p", { class: "soft" }, "Choose a study to look at it."));
  if (!study.phrases.some(({ text }) => text === chosen)) chosen = answer = null;
  const layers = h("section", {});
  fill(place, heading(study), warnings(study), own(study), layers, sentences(study, (text) => choose(place, text)), findings(study));
  showLayers(layers);
  draw();
  return place;
}

export function draw() {
  const { study, stage } = room;
  if (!study) return;
  stage.setPanes(1);
  stage.main.say(study.title, chosen && answer?.absent ? "The model says: probably not in this image." : "");
  stage.main.layers = [...(chosen && answer ? answerLayers(answer) : []), ...studyLayers(study, chosen)];
  stage.redraw();
}

/** Title and facts of a study. */
export function heading(study) {
  const facts = [study.view, study.age && `${study.age} years`, study.sex, `${study.width} × ${study.height} pixels`].filter(Boolean).join(" · ");
  return h("header", {}, h("h2", {}, study.title), h("p", { class: "soft" }, facts));
}

/** What the reader must know before looking: lateral, not a chest, mirrored… */
export function warnings(study) {
  return study.warnings.map((text) => h("p", { class: "warning", role: "alert" }, text));
}

function own(study) {
  if (study.kind !== "upload" && study.kind !== "kept") return null;
  const path = `/uploads/${encodeURIComponent(study.key)}`;
  const forget = button("Delete it", async () => {
    await call("DELETE", path);
    room.close();
    room.dispatchEvent(new Event("studies"));
    room.go("look");
    announce("The image was deleted.");
  });
  if (study.kind === "kept") return h("p", { class: "notice" }, "This image is kept on the server. ", forget);
  return h("p", { class: "notice" }, "This image is not stored: it is in the server's memory and forgotten when the server stops. ",
    button("Keep it", async () => {
      const kept = await post(`${path}/keep`);
      room.dispatchEvent(new Event("studies"));
      room.go("look", kept.key);
      announce("The pixels are kept; nothing of the file's header is.");
    }), " ", forget);
}

function sentences(study, act) {
  const sections = Object.entries(study.report?.sections ?? {});
  const asked = new Set(study.phrases.map(({ text }) => text));
  const rest = sections.length ? sections.map(([name, text]) => [name, text]) : study.report ? [["report", study.report.text]] : [];
  return h("section", {}, h("h3", {}, "Report"),
    study.phrases.length > 0 && h("ul", { class: "sentences" }, study.phrases.map(({ text, boxes, mask }) => h("li", {},
      h("button", { type: "button", "aria-pressed": String(text === chosen), onclick: () => act(text), title: "Show where it is: truth and heatmap" }, text,
        (mask || boxes.length > 0) && h("span", { class: "dot", title: "The truth is known" }))))),
    !rest.length && !study.phrases.length && h("p", { class: "soft" }, "This image has no report."),
    rest.some(([, text]) => !asked.has(text)) && h("details", { open: !study.phrases.length }, h("summary", {}, "Full text"),
      rest.map(([name, text]) => h("p", {}, h("strong", {}, `${name[0].toUpperCase()}${name.slice(1)}: `), text))));
}

async function choose(place, text) {
  chosen = chosen === text ? null : text;
  answer = null;
  if (chosen) room.set({ truth: true });
  showLook(place);
  place.querySelector("[aria-pressed=true]")?.focus();
  if (!chosen) return;
  const { key } = room.study;
  try {
    const found = await post("/ground", { study: key, phrases: [text], models: [room.session.defaults.model], perturb: null, blinded: false });
    if (room.study?.key !== key || chosen !== text) return;
    answer = found.answers[0].plain;
    if (room.screen === "look") draw();
  } catch (error) { announce(error.message, true); }
}

function findings(study) {
  const names = { positive: "present", negative: "absent", uncertain: "uncertain" };
  const known = Object.entries(study.findings);
  if (!known.length) return null;
  const order = ["positive", "uncertain", "negative"];
  known.sort((one, two) => order.indexOf(one[1]) - order.indexOf(two[1]));
  return h("section", {}, h("h3", {}, "Findings known to the source"), h("ul", { class: "findings" }, known.map(([name, polarity]) =>
    h("li", { class: polarity }, name, " ", h("span", { class: "soft" }, names[polarity] ?? polarity)))));
}
