// Judge: the list of reader studies, and the form that creates one.

import { call, get, post } from "./api.js";
import { announce, button, check, choice, counted, field, fill, form, h, showDialog } from "./dom.js";
import { room } from "./room.js";

const path = (id) => `/reader-studies/${encodeURIComponent(id)}`;

/** Show the reader studies, and to their owner the way to make one. */
export async function showJudge(place) {
  const owner = room.session.user?.role === "owner";
  const { reader_studies: studies } = await get("/reader-studies");
  fill(place, h("div", { class: "page" }, h("h1", {}, "Reader studies"),
    h("p", { class: "lead" }, "Choose a sentence, look at the heatmaps of models whose names are hidden, and answer three questions about each."),
    studies.length ? h("ul", { class: "cards" }, studies.map((study) => card(study, owner, () => showJudge(place)))) : h("p", { class: "empty" }, "There is no reader study yet."),
    owner ? creating(() => showJudge(place)) : null,
    owner && h("section", {}, h("h2", {}, "New truth drawn by readers"), h("p", {}, "Boxes and masks of the Draw screen: ", link("/api/v1/exports/coco.json", "COCO"), " · ",
      link("/api/v1/exports/manifest.tar", "manifest (tar)")))));
}

const link = (href, text, more = {}) => h("a", { href, download: true, ...more }, text);

function card(study, owner, again) {
  const { done, total } = study.progress, url = `/api/v1${path(study.id)}`;
  const begin = done === 0 ? "Start" : done < total ? "Resume" : "Review";
  const remove = async () => {
    if (!confirm(`Delete “${study.title}” and all its judgements? This cannot be undone.`)) return;
    await call("DELETE", path(study.id));
    await again();
  };
  return h("li", { class: "card" }, h("h2", {}, study.title),
    h("p", { class: "soft" }, [counted(total, "image"), counted(study.model_count, "model"), study.mode === "choose" ? "the reader chooses the sentence" : "sentences are given",
      study.show_truth ? "truth can be shown" : "truth is hidden", study.custom_prompts && "own prompts allowed"].filter(Boolean).join(" · ")),
    h("p", {}, h("progress", { max: total || 1, value: done, "aria-label": "Progress" }), ` ${done} of ${total} done`),
    h("div", { class: "chips" }, total > 0 && button(begin, () => room.go("judge", study.id), { class: "main" }),
      owner && button("Results", () => results(study)), owner && button("Delete", remove, { class: "quiet" })),
    owner && h("p", { class: "small" }, "Export: ", link(`${url}/export.csv`, "CSV"), " · ", link(`${url}/export.parquet`, "Parquet"), " · ",
      link(`${url}/key.csv`, "key (codes to models)"), study.questions.length > 3 && [" · ", link(`${url}/questions.csv`, "own questions")]));
}

async function results(study) {
  if (study.progress.done < study.progress.total && !confirm("The results name the models, and you still have images to judge. Look anyway?")) return;
  const dialog = showDialog({ class: "help", "aria-label": "Results" }, h("h2", {}, study.title), h("p", {}, "Computing…"));
  const close = h("form", { method: "dialog" }, h("button", { autofocus: true }, "Close"));
  try {
    const [found, { annotators }] = await Promise.all([get(`${path(study.id)}/results`), get(`${path(study.id)}/progress`)]);
    fill(dialog, h("h2", {}, study.title), h("ul", { class: "summary" }, (found.summary ?? []).map((line) => h("li", {}, typeof line === "string" ? line : line.text ?? ""))),
      h("table", {}, h("thead", {}, h("tr", {}, ["Reader", "Done", "Last saved"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, annotators.map(({ name, done, total, last_saved: last }) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, `${done} of ${total}`),
          h("td", {}, last ? new Date(last).toLocaleString() : "–"))))),
      h("p", {}, h("a", { href: `/api/v1${path(study.id)}/results.html`, target: "_blank", rel: "noopener" }, "All means, intervals, agreement and correlations (new tab)")), close);
  } catch (error) {
    fill(dialog, h("h2", {}, study.title), h("p", {}, error.message), close);
  }
}

function creating(again) {
  const chosen = new Set(room.able("ground").filter(({ shipped }) => shipped).map(({ name }) => name));
  const needed = (label, name, value, more = {}) => field(label, h("input", { name, value, required: true, ...more }));
  const questions = h("textarea", { name: "questions", rows: 3, placeholder: "Would you act on it? | no | only after a second look | yes" });
  const said = h("p", { class: "error", role: "alert" });
  const flags = { custom_prompts: true, show_truth: false, abnormal: false };
  let mode = "choose";
  const create = async () => {
    const given = new FormData(filled), number = (name) => Number(given.get(name));
    said.textContent = "";
    try {
      await post("/reader-studies", { title: given.get("title").trim(), models: [...chosen], mode, ...flags, annotators: split(given.get("annotators"), ","),
        per_annotator: number("per_annotator"), overlap: number("overlap"), seed: number("seed"), questions: split(questions.value, "\n").map(asQuestion) });
    } catch (error) { said.textContent = error.message; return; }
    announce("The reader study is ready.");
    await again();
  };
  const filled = form(create, { class: "stack" },
    needed("Title", "title", "", { placeholder: "Do readers find the heatmaps intuitive?", maxLength: 200 }),
    h("fieldset", {}, h("legend", {}, "Models"), room.able("ground").map(({ name }) => check(name, chosen.has(name), (on) => (on ? chosen.add(name) : chosen.delete(name))))),
    choice("Sentences", [["choose", "The reader chooses one for each image (as in the paper)"], ["planned", "Given, in a random order"]], mode, (value) => { mode = value; }),
    needed("Readers, separated by commas", "annotators", room.session.login_required ? "" : "local"),
    h("div", { class: "row" }, needed("Images for each reader", "per_annotator", "10", { type: "number", min: 1, max: 10000 }),
      needed("of these, the same for all", "overlap", "5", { type: "number", min: 0, max: 10000 }), needed("Seed of the order", "seed", "7", { type: "number", min: 0 })),
    check("Readers may write prompts of their own", true, (on) => { flags.custom_prompts = on; }),
    check("Readers may see the truth", false, (on) => { flags.show_truth = on; }),
    check("Only sentences that assert a finding", false, (on) => { flags.abnormal = on; }),
    field("Further questions, one in a line; choices after | (none: free text)", questions),
    said, h("button", { class: "main" }, "Create the study"));
  return h("details", { class: "create" }, h("summary", {}, h("h2", {}, "New reader study")), filled);
}

const split = (text, by) => text.split(by).map((part) => part.trim()).filter(Boolean);

function asQuestion(line) {
  const [text, ...choices] = split(line, "|");
  return { text, choices: choices.length ? choices : null };
}
