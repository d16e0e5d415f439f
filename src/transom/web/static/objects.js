// The table of a kind: filters rows, and applies the changes of the watch.
import { byId, el } from "./dom.js";
import { liveEvents } from "./server.js";

const table = byId("table"); // none if the user may not list this kind
const rows = byId("rows");
const columns = table ? JSON.parse(table.dataset.columns) : [];
const namespaced = table?.dataset.namespaced === "1";
const most = Number(table?.dataset.most);
const LIVE_TEXTS = { live: "live", paused: "paused", reconnecting: "reconnecting", failed: "not live" };

// ---- kinds

const kinds = byId("kind-list");
if (matchMedia("(max-width: 900px)").matches) kinds.removeAttribute("open");
kinds.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
byId("kind-filter").addEventListener("input", (event) => {
  const word = event.target.value.trim().toLowerCase();
  for (const link of kinds.querySelectorAll("li a")) link.parentElement.hidden = !link.dataset.names.includes(word);
  for (const list of kinds.querySelectorAll("ul")) {
    const empty = ![...list.children].some((item) => !item.hidden);
    list.hidden = empty;
    if (list.previousElementSibling?.tagName === "H3") list.previousElementSibling.hidden = empty;
  }
});
byId("kind-filter").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const first = [...kinds.querySelectorAll("li a")].find((link) => !link.parentElement.hidden);
  if (first) first.click();
});

// ---- filters

const form = byId("list-form");
for (const control of form.querySelectorAll("select, input[type=checkbox]")) {
  control.addEventListener("change", () => form.requestSubmit());
}
form.addEventListener("submit", () => {
  for (const input of form.elements) if (input.name && !input.value) input.disabled = true; // a short address
});
const rowFilter = byId("row-filter");
function filterRows() {
  const words = rowFilter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows?.children ?? []) {
    const text = words.length ? row.textContent.toLowerCase() : "";
    row.hidden = !words.every((word) => text.includes(word));
  }
}
rowFilter.addEventListener("input", filterRows);

// ---- live rows

function makeRow(change) {
  const parts = [change.namespace || "-", change.name].map(encodeURIComponent);
  const cells = columns.map((at) =>
    el("td", {}, at === 0 ? el("a", { href: `${table.dataset.page}/${parts.join("/")}` }, change.name) : change.cells[at]),
  );
  if (namespaced) cells.unshift(el("td", {}, change.namespace));
  return el("tr", { "data-key": `${change.namespace}/${change.name}` }, cells);
}

function sortedPlace(key) {
  for (const row of rows.children) if (row.dataset.key > key) return row;
  return null;
}

function flash(row) {
  row.classList.add("changed");
  setTimeout(() => row.classList.remove("changed"), 1200);
}

const known = new Map([...(rows?.children ?? [])].map((row) => [row.dataset.key, row]));

function apply(changes) {
  for (const change of changes) {
    const key = `${change.namespace}/${change.name}`;
    const old = known.get(key);
    if (change.type === "DELETED") {
      old?.remove();
      known.delete(key);
      continue;
    }
    if (!old && (table.dataset.full || known.size >= most)) continue; // it is on another page
    const row = makeRow(change);
    if (old) old.replaceWith(row);
    else rows.insertBefore(row, sortedPlace(key));
    known.set(key, row);
    flash(row);
  }
  byId("empty").hidden = known.size > 0;
  if (rowFilter.value) filterRows();
}

function followRows() {
  const query = new URLSearchParams(location.search);
  query.delete("continue");
  query.set("version", table.dataset.version);
  liveEvents(`/object-rows${table.dataset.page.slice("/objects".length)}?${query}`, { rows: apply }, (state, problem) => {
    const live = byId("live");
    live.dataset.state = state;
    live.textContent = problem && problem.code !== 410 ? problem.message : LIVE_TEXTS[state];
    if (problem?.code === 410) location.reload();
  });
}

if (table) followRows();
else byId("live").hidden = true;
