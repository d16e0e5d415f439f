// Requests to the console: JSON with the CSRF token, and live event streams.

const csrf = document.querySelector('meta[name="csrf-token"]')?.content ?? "";

export class RequestError extends Error {
  constructor(status, answer) {
    super(answer.message || `the console answered ${status}`);
    this.status = status;
    this.reason = answer.reason || "";
    this.details = answer.details || null;
  }
}

async function answer(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    body = {};
  }
  if (response.status === 401) sessionEnded();
  if (!response.ok) throw new RequestError(response.status, body);
  return body;
}

/** GET; returns the JSON document. `signal` aborts it. */
export async function getJson(path, signal) {
  return answer(await fetch(path, { headers: { Accept: "application/json" }, signal }));
}

/** POST of a JSON object; returns the JSON document. */
export async function postJson(path, body = {}) {
  return answer(
    await fetch(path, {
      method: "POST",
      headers: { Accept: "application/json", "Content-Type": "application/json", "X-CSRF-Token": csrf },
      body: JSON.stringify(body),
    }),
  );
}

/**
 * A live event stream. `handlers` maps names of events to functions of their data. A browser allows
 * few connections to one host, so a page in the background closes its stream and opens it again
 * when it is shown. `onstate` gets "live", "paused", "reconnecting" or "failed".
 */
export function liveEvents(path, handlers, onstate = () => {}) {
  let source = null;
  let retry = 0;
  let closed = false;

  function open() {
    if (closed || source || document.hidden) return;
    source = new EventSource(path);
    source.onopen = () => {
      retry = 0;
      onstate("live");
    };
    source.onerror = () => {
      const refused = source && source.readyState === EventSource.CLOSED;
      close();
      if (refused) probe();
      onstate("reconnecting");
      setTimeout(open, Math.min(15000, 500 * 2 ** retry++));
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
    source.addEventListener("failed", (event) => {
      close();
      closed = true;
      onstate("failed", JSON.parse(event.data));
    });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  /** An event stream does not report why it was refused, so request the page to find out. */
  async function probe() {
    const response = await fetch("/session", { headers: { Accept: "application/json" } });
    if (response.status === 401) {
      closed = true;
      sessionEnded();
    }
  }

  function onVisibility() {
    if (document.hidden) {
      close();
      onstate("paused");
    } else open();
  }

  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("pagehide", close);
  open();
  return {
    close() {
      closed = true;
      close();
      document.removeEventListener("visibilitychange", onVisibility);
    },
  };
}

/** Shows that the session has ended, once; the page stays readable. */
export function sessionEnded() {
  if (document.getElementById("session-ended")) return;
  const link = document.createElement("a");
  link.href = "/login";
  link.textContent = "Log in again";
  const bar = document.createElement("div");
  bar.id = "session-ended";
  bar.setAttribute("role", "alert");
  bar.append("The session has ended. ", link);
  document.body.prepend(bar);
}
