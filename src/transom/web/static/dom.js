// Builds DOM nodes from data. Text is always text: nothing in the console parses HTML in the browser.

/** An element: el("a", {href: "/x", class: "y", onclick: f}, "text", child, [children]). */
export function el(name, attributes = {}, ...children) {
  const node = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "href" || key === "src") node.setAttribute(key, safeAddress(String(value)));
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

/** A box that scrolls. It takes part in the Tab order, so that the keyboard can scroll it too. */
export function scrollBox(label, ...children) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);
}

/** Replaces all children. */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Addresses of the console itself and http(s) only: never javascript: or data:. */
function safeAddress(text) {
  const url = new URL(text, location.href);
  return url.protocol === "http:" || url.protocol === "https:" ? text : "#";
}

/** Text with `code` in backticks, as children of an element. */
export function withCode(text) {
  return String(text).split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

export const byId = (id) => document.getElementById(id);

/** Data that the server put into the page: tag("script"...) is not allowed, so it is an attribute. */
export function pageData(id) {
  return JSON.parse(byId(id).dataset.value);
}

/** A short message at the edge of the page, read out by screen readers. */
export function toast(text, kind = "info") {
  const note = el("div", { class: `toast ${kind}` }, text);
  byId("toasts").append(note);
  setTimeout(() => note.remove(), 6000);
}

/** 3m12s, like kubectl. */
export function age(timestamp, now = Date.now()) {
  if (!timestamp) return "";
  const seconds = Math.max(0, Math.round((now - Date.parse(timestamp)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  return days < 8 && hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
}
