// The list of studies on the left: search, filters, paging, and own images by drag and drop.

import { get, request, withQuery } from "./api.js";
import { announce, button, counted, debounced, fill, h } from "./dom.js";
import { bind } from "./keys.js";
import { room } from "./room.js";

const PAGE = 50;
const state = { q: "", finding: "", polarity: "positive", view: "", sex: "", offset: 0, studies: [], total: 0 };
const MARKS = ["masks", "boxes", "gaze"];

let starting = true;

/** Build the list; choosing a study opens it on the current screen. */
export function showStudies(place) {
  const list = h("ol", { class: "studies", "aria-label": "Studies" });
  const count = h("p", { class: "soft", role: "status" });
  const more = button("Show more", () => load(true), { hidden: true });
  const finding = filter("finding", "Finding", [["", "Any finding"]]);
  const polarity = filter("polarity", "Present or absent", [["positive", "present"], ["negative", "absent"]]);
  const sex = filter("sex", "Sex", [["", "Any sex"], ["F", "Female"], ["M", "Male"]]);
  const view = filter("view", "View", [["", "Any view"], ["PA", "PA"], ["AP", "AP"]]);
  const search = h("input", { type: "search", placeholder: "Search reports and findings  ( / )", "aria-label": "Search studies",
    oninput: debounced(() => { state.q = search.value.trim(); load(); }) });
  const file = h("input", { type: "file", hidden: true, accept: ".dcm,.dicom,.png,.jpg,.jpeg,image/png,image/jpeg,application/dicom",
    onchange: () => { upload(file.files[0]); file.value = ""; } });
  const drop = button("Open your own image…", () => file.click(), { class: "drop", title: "DICOM, PNG or JPEG; or drop it anywhere. It is not stored (u)" });
  fill(place, h("h2", { class: "hidden" }, "Studies"), search, h("div", { class: "filters" }, finding, polarity, view, sex), count, list, more, drop, file);

  function filter(name, label, options) {
    const chosen = h("select", { "aria-label": label, onchange: () => { state[name] = chosen.value; load(); } },
      options.map(([value, text]) => h("option", { value }, text)));
    return chosen;
  }

  async function load(further = false) {
    state.offset = further ? state.studies.length : 0;
    const { q, offset } = state;
    const found = await get(withQuery("/studies", { q, finding: state.finding, polarity: state.finding && state.polarity, view: state.view, sex: state.sex, offset, limit: PAGE }));
    if (state.offset !== offset || state.q !== q) return;
    state.studies = further ? [...state.studies, ...found.studies] : found.studies;
    state.total = found.total;
    polarity.hidden = !state.finding;
    if (finding.options.length === 1) finding.append(...found.findings.map((name) => h("option", { value: name }, name)));
    count.textContent = `${counted(found.total, "study", "studies")}${found.truncated ? " (the first ones of the source)" : ""}`;
    fill(list, state.studies.map(row));
    more.hidden = state.studies.length >= state.total;
    mark();
    openFirst();
    if (found.indexing) setTimeout(load, 2000, false);
  }

  /** At the start, open the first study instead of nothing. */
  function openFirst() {
    if (!starting || !state.studies.length) return;
    starting = false;
    const [, screen, key] = location.hash.split("/");
    if (!key && screen !== "judge") location.replace(`#/${room.screen}/${encodeURIComponent(state.studies[0].key)}`);
  }

  function mark() {
    for (const one of list.querySelectorAll("button")) {
      const current = one.dataset.key === room.study?.key;
      one.toggleAttribute("aria-current", current);
      if (current) one.scrollIntoView({ block: "nearest" });
    }
  }

  function step(by) {
    const place = state.studies.findIndex(({ key }) => key === room.study?.key), next = state.studies[place + by];
    if (next) room.go(room.screen, next.key);
  }

  async function upload(chosen) {
    if (!chosen) return;
    const most = room.session.limits.upload_bytes;
    if (chosen.size > most) return announce(`${chosen.name} is too large: ${Math.ceil(chosen.size / 2 ** 20)} MB; at most ${Math.floor(most / 2 ** 20)} MB are read.`, true);
    announce(`Reading ${chosen.name}…`);
    try {
      const study = await (await request("POST", "/uploads", chosen, { "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(chosen.name) })).json();
      room.go(room.screen === "judge" ? "look" : room.screen, study.key);
      announce(`${chosen.name} is open${study.warnings.length ? ", with warnings" : ""}. It is not stored.`);
      await load();
    } catch (error) { announce(error.message, true); }
  }

  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    upload(event.dataTransfer.files[0]);
  });
  bind("look ask draw", "/", "Search studies", () => search.focus());
  bind("look ask draw", "j", "Next, previous study", () => step(1), "j k");
  bind("look ask draw", "k", "", () => step(-1));
  bind("look ask draw", "u", "Open an image of your own", () => file.click());
  room.addEventListener("study", mark);
  room.addEventListener("studies", () => load());
  return load();
}

function row(study) {
  const present = Object.entries(study.findings).filter(([, polarity]) => polarity === "positive").map(([name]) => name);
  const facts = [study.view, study.age && `${study.age} y`, study.sex, ...MARKS.filter((name) => study.has[name])];
  return h("li", {}, h("button", { type: "button", "data-key": study.key, onclick: () => room.go(room.screen, study.key) },
    h("img", { src: `/api/v1/studies/${encodeURIComponent(study.key)}/image.png?side=96`, alt: "", loading: "lazy", width: 48, height: 48 }),
    h("span", { class: "study" }, h("strong", {}, study.title), study.kind !== "source" && h("span", { class: "tag" }, kinds[study.kind] ?? study.kind),
      h("span", { class: "soft" }, present.length ? present.join(", ") : study.kind === "source" ? "no finding" : "own image"),
      h("span", { class: "soft small" }, facts.filter(Boolean).join(" · ")))));
}

const kinds = { upload: "not stored", kept: "kept", file: "file" };
