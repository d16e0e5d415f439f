// Checks the manifests while they are edited, and shows findings beside their lines.
import { byId, el, fill, toast, withCode } from "./dom.js";
import { postJson } from "./server.js";

const area = byId("manifest");
const options = byId("options");
const most = Number(area.dataset.most);
const mostLines = 4000; // that are drawn
let running = 0;
let timer = 0;

function values() {
  return { ...Object.fromEntries(new FormData(options)), text: area.value };
}

async function check() {
  const mine = ++running;
  try {
    const found = await postJson("/lint/check", values());
    if (mine === running) show(found);
  } catch (problem) {
    if (mine === running) fill(byId("summary"), el("span", { class: "problem" }, problem.message));
  }
}

function show(found) {
  const counts = ["error", "warning", "info"].filter((name) => found.summary[name]);
  fill(
    byId("summary"),
    counts.length
      ? counts.map((name) => [el("span", { class: `badge ${state(name)}` }, `${found.summary[name]} ${name}${name === "info" || found.summary[name] === 1 ? "" : "s"}`), " "])
      : el("span", { class: "badge ok" }, "no findings"),
    el("span", { class: "muted" }, ` ${found.checked}`),
  );
  fill(byId("result"), rehearsal(found.rehearsal), code(found), diff(found));
}

const state = (severity) => ({ error: "bad", warning: "warn", info: "" })[severity];

function finding(one) {
  return el(
    "div",
    { class: `finding ${one.severity}` },
    el(
      "p",
      {},
      el("span", { class: `badge ${state(one.severity)}` }, one.severity),
      " ",
      one.id.startsWith("WIN-LINT")
        ? el("span", {}, one.id)
        : el("a", { href: `/windows?show=${one.id}#${one.id}`, target: "_blank" }, one.id),
      " ",
      one.message,
    ),
    one.consequence ? el("p", { class: "muted" }, one.consequence) : null,
    one.remedy ? el("p", {}, el("strong", {}, "Fix: "), withCode(one.remedy)) : null,
  );
}

/** The text with its findings in the margin. */
function code(found) {
  const byLine = new Map();
  for (const one of found.findings) {
    if (!byLine.has(one.line)) byLine.set(one.line, []);
    byLine.get(one.line).push(one);
  }
  const lines = area.value.split("\n").slice(0, mostLines);
  const rows = lines.map((text, index) => {
    const own = byLine.get(index + 1) ?? [];
    const worst = ["error", "warning", "info"].find((name) => own.some((one) => one.severity === name));
    return el(
      "div",
      { class: `code-row ${worst ?? ""}` },
      el("span", { class: "line-number", onclick: () => goTo(index) }, index + 1),
      el("code", { class: "line-text" }, text || " "),
      el("div", { class: "margin" }, own.map((one) => finding(one))),
    );
  });
  return [
    el("h2", {}, "Findings"),
    byLine.get(0)?.map((one) => finding(one)),
    el("div", { class: "code-view", tabindex: "0", role: "region", "aria-label": "Manifests with findings" }, rows),
    found.more ? el("p", { class: "notice" }, `${found.more} more findings`) : null,
  ];
}

/** Puts the cursor on a line of the text. */
function goTo(index) {
  const start = area.value.split("\n").slice(0, index).join("\n").length + (index ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, area.value.indexOf("\n", start) < 0 ? area.value.length : area.value.indexOf("\n", start));
}

function diff(found) {
  if (!found.diff) return null;
  const kinds = { "+": "added", "-": "removed", "@": "place" };
  const lines = found.diff.split("\n").map((line) => el("span", { class: `diff-line ${kinds[line[0]] ?? ""}` }, line, "\n"));
  const apply = () => {
    area.value = found.fixed;
    check();
    toast(`${found.fixes} fixed`, "ok");
  };
  return [
    el("h2", {}, `Fix: ${found.fixes} of ${found.findings.length} findings`),
    el("div", { class: "toolbar" }, el("button", { type: "button", id: "apply-fixes", onclick: apply }, "Apply to the text")),
    el("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": "Fix" }, lines),
  ];
}

const outcomes = [
  ["breaks", "Breaks", "nothing that works now stops working", "bad"],
  ["changes", "Changes", "nothing", "warn"],
  ["works", "No longer a problem", "nothing", "ok"],
];

/** The report of `transom lint --from --to`. */
function rehearsal(found) {
  if (!found) return null;
  const item = (one, kind) =>
    el(
      "div",
      { class: "finding" },
      el(
        "p",
        {},
        el("span", { class: `badge ${kind}` }, one.id),
        " ",
        el("strong", {}, one.title),
        el("span", { class: "muted" }, ` ${[one.place?.replace(/^.*:/, "line "), one.object].filter(Boolean).join(", ") || "nodes"}`),
      ),
      one.message || one.path ? el("p", {}, one.message || one.path) : null,
      kind !== "ok" && one.remedy ? el("p", {}, el("strong", {}, "Change: "), withCode(one.remedy)) : null,
    );
  const every = [...found.items, ...found.nodes];
  return el(
    "section",
    { class: "card", id: "rehearsal" },
    el("h2", {}, "Upgrade"),
    el("p", { class: "muted" }, `From ${found.from} to ${found.to}`),
    outcomes.map(([outcome, title, none, kind]) => {
      const own = every.filter((one) => one.outcome === outcome);
      return [el("h3", {}, title), own.length ? own.map((one) => item(one, kind)) : el("p", { class: "muted" }, none)];
    }),
    found.more ? el("p", { class: "notice" }, `${found.more} more`) : null,
  );
}

async function openFiles(files) {
  const texts = [];
  for (const file of files) {
    if (file.size > most) {
      toast(`${file.name} is larger than ${most / 1024} KiB`, "error");
      return;
    }
    texts.push(await file.text());
  }
  if (!texts.length) return;
  area.value = texts.join("\n---\n");
  check();
}

async function save() {
  try {
    const file = await postJson("/lint/report", values());
    const address = URL.createObjectURL(new Blob([file.text], { type: "text/plain" }));
    const link = el("a", { download: file.name });
    link.href = address; // blob: only here, never from data
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  } catch (problem) {
    toast(problem.message, "error");
  }
}

area.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(check, 500);
});
options.addEventListener("submit", (event) => {
  event.preventDefault();
  check();
});
options.addEventListener("change", (event) => {
  if (event.target.name !== "format") check();
});
byId("save").addEventListener("click", save);
byId("files").addEventListener("change", (event) => openFiles(event.target.files));
for (const name of ["dragenter", "dragover"]) {
  area.addEventListener(name, (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    area.classList.add("dropping");
  });
}
area.addEventListener("dragleave", () => area.classList.remove("dropping"));
area.addEventListener("drop", (event) => {
  area.classList.remove("dropping");
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  openFiles(event.dataTransfer.files);
});
check();
