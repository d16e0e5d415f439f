// What every page has: "/" jumps to the page's filter, "g" and a letter open a page, "?" lists the keys.
import { el } from "./dom.js";

const pages = [...document.querySelectorAll("header nav a")];
let pending = false;

// On a narrow screen the list of pages scrolls. scrollIntoView would move the start of Tab too.
const current = pages.find((page) => page.hasAttribute("aria-current"));
if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 40;

function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable], .terminal") !== null;
}

function showKeys() {
  const close = () => dialog.close();
  const rows = [
    ["/", "filter"],
    ...pages.map((page) => [`g ${page.textContent[0].toLowerCase()}`, page.textContent]),
    ["Esc", "close"],
  ];
  const dialog = el(
    "dialog",
    { "aria-label": "Keyboard shortcuts", class: "keys" },
    el("h2", {}, "Keyboard shortcuts"),
    el("dl", {}, rows.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
    el("button", { type: "button", onclick: close }, "Close"),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (pending) {
    pending = false;
    const page = pages.find((one) => one.textContent[0].toLowerCase() === event.key);
    if (page) page.click();
  } else if (event.key === "g") {
    pending = true;
  } else if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  } else if (event.key === "?") showKeys();
});
