// The reading room: which screen is shown, and what the screens share.

import { annotator, get, getSession } from "./api.js";
import * as ask from "./ask.js";
import { bindLayers } from "./display.js";
import { announce, fill, h } from "./dom.js";
import { showJudge } from "./judge.js";
import * as judging from "./judging.js";
import { bind, listen, showHelp } from "./keys.js";
import { askForLogin, showUser } from "./login.js";
import * as look from "./look.js";
import { outbox, showOutbox } from "./outbox.js";
import { room } from "./room.js";
import { Stage } from "./stage.js";
import { showStudies } from "./studies.js";
import * as truth from "./truth.js";
import { takeBox, tapReport } from "./words.js";

const SCREENS = { look: ["Look", "L"], ask: ["Ask", "A"], draw: ["Draw", "D"], judge: ["Judge", "J"] };
const TOOLS = { look: ["pan", "window"], ask: ["pan", "window", "box"], draw: ["pan", "window", "box", "polygon", "brush"], judge: ["pan", "window"] };
const FILLERS = { look: look.showLook, ask: ask.showAsk, draw: truth.showTruth };
const DRAWERS = { look: look.draw, ask: () => ask.draw(false), draw: truth.draw, judge: judging.draw };
const panel = document.getElementById("panel");
const page = document.getElementById("page");

/** Show what the address asks for: `#/ask/<study>`, `#/judge/<reader study>`. */
async function route() {
  const [, asked = "look", key] = location.hash.split("/").map(decodeURIComponent);
  const screen = asked in SCREENS ? asked : "look";
  const changed = room.screen !== screen;
  room.screen = screen;
  document.body.dataset.screen = screen;
  document.body.classList.toggle("listing", screen === "judge" && !key);
  page.hidden = !(screen === "judge" && !key);
  for (const link of document.querySelectorAll("#screens a")) link.toggleAttribute("aria-current", link.dataset.screen === screen);
  for (const link of document.querySelectorAll("#screens a")) link.href = `#/${link.dataset.screen}${link.dataset.screen !== "judge" && openKey() ? `/${encodeURIComponent(openKey())}` : ""}`;
  document.title = `${SCREENS[screen][0]} · rightlung reading room`;
  room.stage.offer(...TOOLS[screen]);
  if (changed) room.stage.use("pan");
  try {
    if (screen === "judge") return await (key ? judging.startJudging(panel, key) : showJudge(page));
    if (key && key !== openKey()) {
      panel.setAttribute("aria-busy", "true");
      await room.open(key);
      return null;
    }
    if (!openKey()) room.close();
    FILLERS[screen](panel);
  } catch (error) {
    fill(screen === "judge" && !key ? page : panel, h("p", { class: "warning", role: "alert" }, error.message), h("button", { type: "button", onclick: route }, "Try again"));
  } finally { panel.removeAttribute("aria-busy"); }
  return null;
}

/** The key of the study that is open for looking; an image that is being judged is not. */
const openKey = () => (room.study && !room.study.judged ? room.study.key : null);

function bindAll() {
  for (const [screen, [name, key]] of Object.entries(SCREENS)) {
    bind("", key, `Go to ${name}`, () => document.querySelector(`#screens a[data-screen=${screen}]`).click(), `Shift ${key}`);
  }
  bind("", "?", "This list", showHelp);
  bind("", "Escape", "", () => { document.activeElement?.blur(); });
  bindLayers();
  listen(() => room.screen);
}

function connect() {
  const { stage } = room;
  room.addEventListener("study", () => { if (FILLERS[room.screen] && !room.study.judged) route(); });
  room.addEventListener("display", () => {
    stage.hovering = room.display.regions;
    if (FILLERS[room.screen] && !panel.contains(document.querySelector("#panel input:focus"))) FILLERS[room.screen](panel);
    else DRAWERS[room.screen]();
  });
  room.addEventListener("words", () => ask.draw(false));
  stage.addEventListener("drawn-shape", ({ detail }) => {
    if (room.screen === "draw") truth.takeShape(detail);
    else if (detail.box) { takeBox(detail.box); ask.showAsk(panel); }
  });
  stage.addEventListener("tap", ({ detail }) => { if (room.screen === "ask") tapReport(detail); });
  document.getElementById("help").addEventListener("click", showHelp);
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => { const light = document.documentElement.classList.toggle("light"); theme.textContent = light ? "Dark" : "Light"; });
  document.addEventListener("session", async () => {
    room.session = await getSession();
    outbox.open(room.session.login_required ? room.session.user?.name ?? "" : annotator.name);
    await showUser(document.getElementById("user"));
  });
}

async function start() {
  room.session = await getSession();
  if (room.session.login_required && !room.session.user) { await askForLogin(); room.session = await getSession(); }
  fill(document.getElementById("screens"), Object.entries(SCREENS).map(([screen, [name]]) => h("a", { href: `#/${screen}`, "data-screen": screen }, name)));
  room.restore();
  room.stage = new Stage(document.getElementById("stage"));
  connect();
  bindAll();
  showOutbox(document.getElementById("outbox"));
  document.dispatchEvent(new Event("session"));
  room.models = (await get("/models")).models;
  window.addEventListener("hashchange", route);
  await Promise.all([showStudies(document.getElementById("studies")), route()]);
}

start().catch((error) => { announce(error.message, true); });
