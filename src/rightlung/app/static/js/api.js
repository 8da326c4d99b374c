// Talks to the server this page came from, and to nobody else. Errors are sentences for people.

/** An answer other than success. `status` is 0 if the server did not answer at all. */
export class ApiError extends Error {
  constructor(status, { code = "offline", message, ...rest } = {}, wait = 0) {
    super(message ?? "The server does not answer. Is it still running?");
    Object.assign(this, { status, code, wait }, rest);
  }

  /** Whether the same request may succeed later. */
  get passing() { return this.status === 0 || this.status === 503 || this.status === 502 || this.status === 504; }
}

let session = null;
let login = null; // asks for name and password, resolves when somebody is logged in

/** The session: user, limits, notice. Fetched once; `refresh` fetches it again. */
export async function getSession(refresh = false) {
  if (!session || refresh) session = await (await send("GET", "/session")).json();
  return session;
}

/** Log in; the error says why not. */
export async function logIn(name, password) {
  await getSession(true);
  session = await (await send("POST", "/session/login", JSON.stringify({ name, password }))).json();
  return session;
}

export async function logOut() {
  await call("POST", "/session/logout");
  session = null;
}

/** Say how to ask for a login when a session is missing or over. */
export const onLoggedOut = (ask) => { login = ask; };

/** The name under which somebody judges and draws without accounts. */
export const annotator = {
  get name() { try { return localStorage.getItem("rightlung.annotator") || "local"; } catch { return "local"; } },
  set name(value) { try { localStorage.setItem("rightlung.annotator", value.trim() || "local"); } catch { /* private window */ } },
};

async function send(method, path, body, headers = {}) {
  const more = { "X-Annotator": encodeURIComponent(annotator.name) };
  if (method !== "GET") more["X-CSRF-Token"] = session?.csrf ?? "";
  if (typeof body === "string") more["Content-Type"] = "application/json";
  const url = path.startsWith("/api/") ? path : `/api/v1${path}`;
  let response;
  try {
    response = await fetch(url, { method, body, headers: { ...more, ...headers } });
  } catch {
    throw new ApiError(0);
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const error = told?.error ?? { code: "bug", message: `The server answered with an error (${response.status}).` };
  throw new ApiError(response.status, { ...error, current: told?.current ?? error.current }, wait);
}

/** Send a request; renew the CSRF token or the login once if that is what is missing. */
export async function request(method, path, body, headers) {
  if (method !== "GET") await getSession();
  try {
    return await send(method, path, body, headers);
  } catch (error) {
    if (error.code === "csrf") await getSession(true);
    const over = error.status === 401 || (error.code === "csrf" && session.login_required && !session.user);
    if (over && login) await login("Your session is over: please log in again. Nothing that you typed is lost.");
    else if (error.code !== "csrf") throw error;
    return send(method, path, body, headers);
  }
}

/** Send and receive JSON. */
export async function call(method, path, body) {
  const response = await request(method, path, body === undefined ? undefined : JSON.stringify(body));
  return response.status === 204 ? null : response.json();
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

/** Return a path with its query; empty values are left out. */
export function withQuery(path, values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return query.size ? `${path}?${query}` : path;
}

/** Return the true pixels of a study, or of its perturbed twin. */
export async function getPixels(path) {
  const response = await request("GET", path);
  const [columns, rows] = ["X-Width", "X-Height"].map((name) => Number(response.headers.get(name)));
  return { rows, columns, pixels: new Uint16Array(await response.arrayBuffer()) };
}

/** Return the pixels of a PNG of the API as 16-bit values. */
export async function getPicture(path) {
  const picture = await createImageBitmap(await (await request("GET", path)).blob());
  const canvas = new OffscreenCanvas(picture.width, picture.height), pen = canvas.getContext("2d");
  pen.drawImage(picture, 0, 0);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const pixels = Uint16Array.from({ length: data.length / 4 }, (_, index) => data[4 * index] * 257);
  return { rows: canvas.height, columns: canvas.width, pixels };
}

/** Return a random id; `crypto.randomUUID` is missing outside secure contexts. */
export const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
