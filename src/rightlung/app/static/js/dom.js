// Small helpers for building pages. Text is always set as text, never parsed as markup.

/** Return an element: `h("button", {class: "soft", onclick: act}, "Label", child)`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child || child === 0));
  return element;
}

/** Return a button that is disabled while its action runs; an error is announced. */
export function button(label, act, attributes = {}) {
  const element = h("button", { type: "button", ...attributes, onclick: async () => {
    element.setAttribute("aria-busy", "true");
    try { await act(); } catch (error) { announce(error.message, true); } finally { element.removeAttribute("aria-busy"); }
  } }, label);
  return element;
}

/** Return a labelled check box. */
export function check(label, checked, act, attributes = {}) {
  const box = h("input", { type: "checkbox", checked, onchange: () => act(box.checked), ...attributes });
  return h("label", { class: "check" }, box, h("span", {}, label));
}

/** Return a labelled slider from 0 to 100 %. */
export function slider(label, value, act, attributes = {}) {
  const shown = h("output", {}, percent(value));
  const input = h("input", { type: "range", min: "0", max: "1", step: "0.05", value: String(value), "aria-label": label,
    oninput: () => { shown.textContent = percent(Number(input.value)); act(Number(input.value)); }, ...attributes });
  return h("label", { class: "slider" }, h("span", {}, label), input, shown);
}

/** Return a labelled choice among `[value, text]` pairs. */
export function choice(label, options, value, act, attributes = {}) {
  const list = h("select", { "aria-label": label, onchange: () => act(list.value), ...attributes },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return field(label, list);
}

/** Return a labelled field around an input. */
export const field = (label, input) => h("label", { class: "field" }, h("span", {}, label), input);

/** Return a form that calls `act` instead of loading a page; an error is announced. */
export function form(act, attributes, ...children) {
  const submit = async (event) => {
    event.preventDefault();
    try { await act(); } catch (error) { announce(error.message, true); }
  };
  return h("form", { ...attributes, onsubmit: submit }, ...children);
}

/** Show a dialog; it is removed when it closes. */
export function showDialog(attributes, ...children) {
  const dialog = h("dialog", { onclose: () => dialog.remove(), ...attributes }, ...children);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Return a number as a percentage without decimals. */
export const percent = (value) => `${Math.round(value * 100)} %`;

/** Return a count with its noun: `counted(2, "box", "boxes")`. */
export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

let hiding;
/** Show a short message and read it out; an error stays longer. */
export function announce(text, failed = false) {
  const place = document.getElementById("messages");
  place.textContent = text;
  place.className = failed ? "shown failed" : "shown";
  clearTimeout(hiding);
  hiding = setTimeout(() => { place.className = ""; }, failed ? 12000 : 4000);
}

/** Call a function once, after the last of several calls. */
export function debounced(act, wait = 200) {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => act(...given), wait); };
}
