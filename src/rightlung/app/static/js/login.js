// Logging in, where the server asks for accounts. What was typed elsewhere stays.

import { annotator, getSession, logIn, logOut, onLoggedOut } from "./api.js";
import { field, fill, form, h, showDialog } from "./dom.js";

let open = null;

/** Ask for name and password until they are right; resolves when somebody is logged in. */
export function askForLogin(reason = "") {
  open ??= new Promise((resolve) => {
    const name = h("input", { name: "name", autocomplete: "username", required: true, autofocus: true });
    const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
    const said = h("p", { class: "error", role: "alert" }, reason);
    const logging = async () => {
      try {
        await logIn(name.value, password.value);
      } catch (error) {
        said.textContent = error.wait ? `${error.message} Try again in ${error.wait} seconds.` : error.message;
        password.value = "";
        password.focus();
        return;
      }
      dialog.close();
      open = null;
      document.dispatchEvent(new Event("session"));
      resolve();
    };
    const dialog = showDialog({ class: "login", "aria-label": "Log in", oncancel: (event) => event.preventDefault() }, form(logging, { class: "stack" },
      h("h1", {}, "rightlung reading room"), h("p", { class: "soft" }, "Log in to look, ask and judge."), said,
      field("Name", name), field("Password", password),
      h("button", { class: "main" }, "Log in"),
      h("p", { class: "soft" }, "Not a medical device: for research only, not for diagnosis or treatment.")));
  });
  return open;
}

onLoggedOut((message) => askForLogin(message));

/** Show who is working, with log out or, without accounts, a name that can be changed. */
export async function showUser(place) {
  const session = await getSession();
  if (session.login_required) {
    fill(place, session.user && [h("span", {}, session.user.name), h("button", { class: "quiet", type: "button",
      onclick: async () => { await logOut(); location.reload(); } }, "Log out")]);
    return;
  }
  const name = h("input", { value: annotator.name, size: 8, "aria-label": "Your name as a reader", title: "Judgements and drawings are saved under this name",
    onchange: () => { annotator.name = name.value; name.value = annotator.name; document.dispatchEvent(new Event("session")); window.dispatchEvent(new Event("hashchange")); } });
  fill(place, h("label", { class: "who" }, h("span", {}, "Reader"), name));
}
