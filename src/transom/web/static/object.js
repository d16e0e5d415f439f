// One object: tabs, live overview, events, editor with dry run and conflicts, delete, owners, managed fields.
import { age, byId, el, fill, pageData, scrollBox, toast } from "./dom.js";
import { getJson, liveEvents, postJson } from "./server.js";
import { startLogs } from "./logs.js";
import { startPorts } from "./ports.js";
import { startTerminal } from "./terminal_panel.js";

const data = pageData("object");
const base = location.pathname;
const LIVE_TEXTS = { live: "live", paused: "paused", reconnecting: "reconnecting", failed: "not live" };

// ---- tabs

const tabs = [...document.querySelectorAll('[role="tab"]')];
const opened = new Set(["overview"]);
const openers = { owners: showTree, logs: () => startLogs(base, data), terminal: () => startTerminal(base, data), ports: () => startPorts(base, data) };

function openTab(tab, focus = true) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", chosen);
    one.tabIndex = chosen ? 0 : -1;
    byId(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  const name = tab.id.slice("tab-".length);
  history.replaceState(null, "", `#${name}`);
  if (!opened.has(name)) {
    opened.add(name);
    openers[name]?.();
  }
}
for (const [at, tab] of tabs.entries()) {
  tab.addEventListener("click", () => openTab(tab, false));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) openTab(tabs[(at + step + tabs.length) % tabs.length]);
  });
}
function openWantedTab() {
  const wanted = tabs.find((tab) => tab.id === `tab-${location.hash.slice(1)}`);
  if (wanted) openTab(wanted, false);
}
addEventListener("hashchange", openWantedTab); // an address of the same object was opened
openWantedTab();

// ---- live

let editing = false;
let gone = false;
let shownVersion = "";
let shownText = byId("editor")?.value ?? "";
let editedVersion = "";

liveEvents(
  `${base}/live`,
  { object: showObject, events: showEvents, "events-refused": ({ message }) => fill(byId("events"), el("p", { class: "notice" }, message)), gone: showGone },
  (state, problem) => {
    const live = byId("live");
    live.dataset.state = state;
    if (!gone) live.textContent = problem ? problem.message : LIVE_TEXTS[state];
  },
);

function showGone() {
  gone = true;
  const status = byId("status");
  status.hidden = false;
  status.className = "badge bad";
  status.textContent = "deleted";
  byId("live").textContent = "deleted";
}

function pairs(title, list) {
  if (!list.length) return null;
  return [el("h2", {}, title), scrollBox(title, el("table", { class: "pairs" }, el("tbody", {}, list.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, value))))))];
}

function rowsTable(headings, rows) {
  return scrollBox(
    headings.join(", "),
    el("table", {}, el("thead", {}, el("tr", {}, headings.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) => el("td", { class: headings[at] === "Message" ? "message" : null }, cell)))))),
  );
}

function showObject(object) {
  byId("yaml-text").textContent = object.yaml;
  const status = byId("status");
  status.hidden = !object.deleting;
  status.className = "badge warn";
  status.textContent = object.deleting ? "terminating" : "";
  if (editing && object.version !== editedVersion) byId("changed-note").hidden = false;
  shownVersion = object.version;
  shownText = object.editable;
  const worst = (one) => (one.state === "running" ? (one.ready ? "ok" : "warn") : one.state === "terminated" && one.exitCode === 0 ? "" : one.reason === "ContainerCreating" || one.reason === "PodInitializing" ? "" : "bad");
  fill(
    byId("overview"),
    el("p", { class: "muted" }, `Created ${object.created} (${age(object.created)} ago), version ${object.version}`),
    object.containers.length
      ? [
          el("h2", {}, "Containers"),
          rowsTable(
            ["Container", "State", "Restarts", "Image", "Message"],
            object.containers.map((one) => [
              one.name,
              el("span", { class: `badge ${worst(one)}` }, [one.state, one.reason, one.exitCode !== null && one.exitCode !== undefined ? `exit code ${one.exitCode}` : ""].filter(Boolean).join(", ")),
              one.restarts,
              el("code", {}, one.image),
              one.message,
            ]),
          ),
        ]
      : null,
    object.conditions.length
      ? [
          el("h2", {}, "Conditions"),
          rowsTable(
            ["Condition", "Status", "Reason", "Message"],
            object.conditions.map((one) => [one.type, el("span", { class: "badge" }, one.status), one.reason, one.message]),
          ),
        ]
      : null,
    pairs("Labels", object.labels),
    pairs("Annotations", object.annotations),
    object.finalizers.length ? [el("h2", {}, "Finalizers"), el("p", {}, object.finalizers.join(", "))] : null,
  );
  showManagers(object.managers);
}

function showManagers(managers) {
  fill(
    byId("fields"),
    managers.length ? el("p", { class: "muted" }, "Who set which field: a conflict of server-side apply names these managers.") : el("p", { class: "muted" }, "No managed fields."),
    managers.map((one) =>
      el(
        "details",
        { class: "card manager" },
        el("summary", {}, el("b", {}, one.manager), ` ${one.operation}${one.subresource ? ` of ${one.subresource}` : ""}, ${one.fields.length} fields`, one.time ? `, ${age(one.time)} ago` : ""),
        el("ul", { class: "mono" }, one.fields.map((field) => el("li", {}, field))),
      ),
    ),
  );
}

function showEvents(events) {
  fill(
    byId("events"),
    events.length
      ? rowsTable(
          ["Last seen", "Type", "Reason", "Count", "From", "Message"],
          [...events].sort((a, b) => (a.time < b.time ? 1 : -1)).map((one) => [
            `${age(one.time)} ago`,
            el("span", { class: `badge ${one.type === "Warning" ? "warn" : ""}` }, one.type),
            one.reason,
            one.count,
            one.from,
            one.message,
          ]),
        )
      : el("p", { class: "muted" }, "There are no events about this object."),
  );
}

// ---- owners

async function showTree() {
  const box = byId("owners");
  try {
    const tree = await getJson(`${base}/tree`);
    const link = (one) => [el("span", { class: "badge" }, one.kind), " ", one.page ? el("a", { href: one.page }, one.name) : one.name];
    const branch = (list) => (list.length ? el("ul", { class: "tree" }, list.map((one) => el("li", {}, link(one), branch(one.below)))) : null);
    let node = el("li", { "aria-current": "true" }, el("b", {}, link(tree.self)), branch(tree.below));
    for (const owner of [...tree.owners].reverse()) node = el("li", {}, link(owner), el("ul", { class: "tree" }, node));
    fill(box, el("ul", { class: "tree" }, node));
    if (!tree.owners.length && !tree.below.length) box.append(el("p", { class: "muted" }, "No other object owns it, and it owns none."));
  } catch (problem) {
    fill(box, el("p", { class: "problem", role: "alert" }, problem.message));
  }
}

// ---- edit

const outcome = byId("outcome");
byId("edit-form")?.prepend(
  el("p", { id: "changed-note", class: "notice", hidden: true }, "The object has changed since you started. Only your changes are applied to the newest version."),
);
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("yaml-text").textContent);
  toast("Copied");
});
byId("edit")?.addEventListener("click", async () => setEditing(true));
byId("cancel")?.addEventListener("click", () => setEditing(false));
byId("edit-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  apply({ dryRun: true });
});
byId("apply")?.addEventListener("click", () => apply({ dryRun: false }));
byId("editor")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) apply({ dryRun: true });
});

function setEditing(on) {
  editing = on;
  editedVersion = shownVersion;
  byId("edit-form").hidden = !on;
  byId("yaml-text").hidden = on;
  byId("yaml-tools").hidden = on;
  byId("changed-note").hidden = true;
  fill(outcome);
  if (on) {
    byId("editor").value = shownText;
    byId("editor").focus();
  }
}

function diffView(lines) {
  if (!lines.length) return el("p", { class: "muted" }, "Nothing changes.");
  return el(
    "pre",
    { class: "diff", tabindex: "0", "aria-label": "Difference" },
    lines.map((line) => el("span", { class: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "" }, line, "\n")),
  );
}

async function apply(options) {
  await sendEdited(options);
  outcome.scrollIntoView({ block: "nearest" });
}

async function sendEdited(options) {
  fill(outcome, el("p", { class: "muted" }, options.dryRun ? "Asking the server…" : "Applying…"));
  try {
    const answer = await postJson(`${base}/apply`, { yaml: byId("editor").value, ...options });
    if (answer.conflicts) return showConflicts(answer);
    const kept = answer.kept.length
      ? el("p", { class: "notice" }, `These fields stay, because other managers own them: ${answer.kept.join(", ")}`)
      : null;
    if (answer.dryRun) {
      fill(outcome, el("h2", {}, "What would change"), kept, diffView(answer.diff));
      return null;
    }
    toast(answer.diff.length ? "Applied" : "Nothing changed", "ok");
    byId("editor").value = answer.edited;
    editedVersion = answer.version;
    byId("changed-note").hidden = true;
    fill(outcome, el("h2", {}, "Applied"), kept, diffView(answer.diff));
  } catch (problem) {
    fill(outcome, el("p", { class: "problem", role: "alert" }, problem.message));
  }
  return null;
}

function showConflicts(answer) {
  const force = (dryRun) => el("button", { type: "button", class: dryRun ? "" : "danger", onclick: () => apply({ dryRun, force: true }) }, dryRun ? "Dry run with force" : "Force: take over these fields");
  fill(
    outcome,
    el("div", { class: "problem", role: "alert" }, el("b", {}, "Other managers own fields that you change:"), el("ul", {}, answer.conflicts.map((one) => el("li", {}, el("code", {}, one.field), ": ", one.message)))),
    el("div", { class: "toolbar" }, force(true), force(false)),
  );
}

// ---- delete

byId("delete")?.addEventListener("click", () => {
  const how = el("select", { id: "propagation" }, ["Background", "Foreground", "Orphan"].map((name) => el("option", { value: name }, name)));
  const problem = el("p", { role: "alert", class: "problem", hidden: true });
  const confirm = async () => {
    try {
      await postJson(`${base}/delete`, { uid: data.uid, propagation: how.value });
      dialog.close();
      toast(`${data.kind} ${data.name} is being deleted`, "ok");
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  };
  const dialog = el(
    "dialog",
    { "aria-label": "Delete" },
    el("h2", {}, `Delete ${data.kind} ${data.name}?`),
    data.namespace ? el("p", {}, `Namespace ${data.namespace}`) : null,
    el("p", {}, el("label", { for: "propagation" }, "Objects that it owns "), how),
    problem,
    el("div", { class: "toolbar" }, el("button", { type: "button", class: "danger", id: "confirm-delete", onclick: confirm }, "Delete"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
});
