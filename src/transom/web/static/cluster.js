// The Cluster page: receives rows of nodes, pods, services and problems, and shows them as a picture or as tables.
import { byId, el, fill, scrollBox, withCode } from "./dom.js";
import { liveEvents } from "./server.js";
import { Picture } from "./cluster_picture.js";
import { groupTitle } from "./cluster_layout.js";

const STATES = ["running", "unready", "starting", "problem", "ending", "done"];
const TABLE_ROWS = 100;
const LIVE_TEXTS = { live: "live", paused: "paused", reconnecting: "reconnecting", failed: "stopped" };

const model = {
  nodes: new Map(),
  pods: new Map(),
  services: new Map(),
  endpoints: new Map(),
  problems: [],
  placesWithProblems: new Map(), // place -> finding
  matches: null, // the filter, as a function of a pod
  backends(key) {
    const row = this.endpoints.get(key);
    return row ? row[1].concat(row[2]) : [];
  },
};

function objectPath(kind, key) {
  const [namespace, name] = key.includes("/") ? key.split("/") : ["-", key];
  return `/objects/core/v1/${kind}s/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

/** The text of the box beside the pointer. */
function describe({ kind, key }) {
  const lines = [el("b", {}, key)];
  const finding = model.placesWithProblems.get(`${kind}/${key}`);
  if (kind === "pod") {
    const pod = model.pods.get(key);
    if (!pod) return lines;
    lines.push(el("div", {}, `${pod[3]}, ${pod[4]} ready` + (pod[5] ? `, ${pod[5]} restarts` : "")));
    lines.push(el("div", { class: "muted" }, pod[1] ? `on ${pod[1]}` : "not on a node"));
    if (pod[6] && !finding) lines.push(el("div", { class: "bad-text" }, pod[6]));
  } else if (kind === "node") {
    const node = model.nodes.get(key);
    if (!node) return lines;
    lines.push(el("div", {}, `${node[3] || node[1]} ${node[2]}`));
    lines.push(el("div", { class: "muted" }, [node[9], node[7], node[8]].filter(Boolean).join(", ")));
    const state = [node[4] === "True" ? "Ready" : "NotReady", node[5] && "cordoned", ...node[6]].filter(Boolean);
    lines.push(el("div", { class: node[4] === "True" ? "" : "bad-text" }, state.join(", ")));
  } else {
    const service = model.services.get(key);
    if (!service) return lines;
    lines.push(el("div", {}, `${service[1]} ${service[2]} ${service[3].join(", ")}`));
    lines.push(el("div", { class: "muted" }, `${model.backends(key).length} endpoints`));
  }
  if (finding) {
    lines.push(el("div", { class: "bad-text" }, finding.what));
    if (finding.remedy) lines.push(el("div", {}, `Fix: ${finding.remedy}`));
  }
  return lines;
}

const picture = new Picture(byId("picture"), model, {
  describe,
  onopen: ({ kind, key }) => location.assign(objectPath(kind, key)),
});
window.transomPicture = picture; // for measurements

// ---- updates

let tableTimer = 0;
let counted = false;

function refresh(structure) {
  picture.changed(structure);
  if (!counted) {
    counted = true;
    requestAnimationFrame(() => {
      counted = false;
      showCounts();
    });
  }
  if (!byId("table-box").hidden && !tableTimer) {
    tableTimer = setTimeout(() => {
      tableTimer = 0;
      showTables();
    }, 150);
  }
}

function showCounts() {
  const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const pod of model.pods.values()) counts[pod[2]]++;
  for (const state of STATES) document.querySelector(`[data-count="${state}"]`).textContent = counts[state];
  byId("picture").setAttribute(
    "aria-label",
    `${model.nodes.size} nodes and ${model.pods.size} pods: ` + STATES.map((state) => `${counts[state]} ${state}`).join(", "),
  );
}

function putRows(kind, rows) {
  let structure = kind !== "pods";
  const target = model[kind];
  for (const row of rows) {
    const before = target.get(row[0]);
    if (!before || before[1] !== row[1]) structure = true;
    if (before && kind === "pods" && before[1] === row[1]) {
      for (let at = 2; at < row.length; at++) before[at] = row[at]; // the layout holds this row
    } else target.set(row[0], row);
  }
  return structure;
}

liveEvents(
  "/cluster/events",
  {
    reset({ kind }) {
      model[kind].clear();
      refresh(true);
    },
    rows({ kind, rows }) {
      refresh(putRows(kind, rows));
    },
    changes(found) {
      let structure = false;
      for (const [kind, { rows, gone }] of Object.entries(found)) {
        for (const key of gone) structure = model[kind].delete(key) || structure;
        structure = putRows(kind, rows) || structure;
      }
      refresh(structure);
    },
    states: showStates,
    problems: showProblems,
  },
  (state, problem) => {
    const live = byId("live");
    live.dataset.state = state;
    live.textContent = problem ? problem.message : LIVE_TEXTS[state];
  },
);

function showStates(states) {
  fill(
    byId("states"),
    Object.entries(states).map(([kind, { message, code }]) =>
      el("p", { class: code === 403 ? "notice" : "muted" }, kind === "doctor" ? message : `${kind}: ${message}`),
    ),
  );
}

function placeLink(place) {
  const [kind, ...rest] = place.split("/");
  if (!["pod", "node", "service"].includes(kind)) return el("code", {}, place);
  return el("a", { href: objectPath(kind, rest.join("/")) }, place);
}

function showProblems(findings) {
  model.problems = findings;
  model.placesWithProblems.clear();
  for (const finding of findings) {
    if (finding.severity === "info") continue;
    for (const place of finding.where) {
      if (!model.placesWithProblems.has(place)) model.placesWithProblems.set(place, finding); // errors come first
    }
  }
  const bad = findings.filter((one) => one.severity === "error").length;
  const count = byId("problem-count");
  count.textContent = findings.length ? String(findings.length) : "none";
  count.className = `badge ${bad ? "bad" : findings.length ? "warn" : "ok"}`;
  fill(
    byId("problems"),
    findings.length ? null : el("p", { class: "muted" }, "Doctor found no problems."),
    findings.map((one) =>
      el(
        "article",
        { class: `finding ${one.severity}` },
        el("p", {}, el("span", { class: `badge ${{ error: "bad", warning: "warn" }[one.severity] ?? ""}` }, one.severity), " ", el("b", {}, one.what)),
        one.where.length
          ? el("p", { class: "places" }, one.where.slice(0, 5).map((place, at) => [at ? ", " : "", placeLink(place)]), one.count > 5 ? ` and ${one.count - 5} more` : "")
          : null,
        one.why ? el("p", {}, one.why) : null,
        one.remedy ? el("p", { class: "fix" }, el("b", {}, "Fix: "), withCode(one.remedy)) : null,
        commandLines(one),
        one.record ? el("p", {}, el("code", {}, one.record)) : null,
      ),
    ),
  );
  picture.changed(false);
}

function commandLines(one) {
  const lines = (one.commands ?? []).filter((line) => !one.remedy.includes(line));
  if (!lines.length) return null;
  return el("details", { class: "commands" }, el("summary", {}, "Commands"), lines.map((line) => el("p", {}, el("code", {}, line))));
}

// ---- filter, views and zoom

byId("filter").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  model.matches = words.length
    ? (pod) => words.every((word) => `${pod[0]} ${pod[1]} ${pod[2]} ${pod[3]}`.toLowerCase().includes(word))
    : null;
  shown = TABLE_ROWS;
  refresh(false);
});

function show(view) {
  byId("picture-box").hidden = view !== "picture";
  byId("table-box").hidden = view !== "table";
  byId("show-picture").setAttribute("aria-pressed", view === "picture");
  byId("show-table").setAttribute("aria-pressed", view === "table");
  if (view === "table") showTables();
}
byId("show-picture").addEventListener("click", () => show("picture"));
byId("show-table").addEventListener("click", () => show("table"));
byId("zoom-in").addEventListener("click", () => picture.zoom(1.4));
byId("zoom-out").addEventListener("click", () => picture.zoom(1 / 1.4));
byId("zoom-fit").addEventListener("click", () => {
  picture.fit();
  picture.draw();
});

// ---- tables

let shown = TABLE_ROWS;

function table(caption, headings, rows) {
  return scrollBox(
    caption,
    el(
      "table",
      {},
      el("caption", { class: "visually-hidden" }, caption),
      el("thead", {}, el("tr", {}, headings.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))))),
    ),
  );
}

function showTables() {
  const counts = new Map();
  for (const pod of model.pods.values()) counts.set(pod[1], (counts.get(pod[1]) ?? 0) + 1);
  const nodes = [...model.nodes.values()].sort((a, b) => groupTitle(a).localeCompare(groupTitle(b)) || a[0].localeCompare(b[0]));
  const pods = [...model.pods.values()].filter((pod) => !model.matches || model.matches(pod));
  pods.sort((a, b) => STATES.indexOf(b[2] === "problem" ? "problem" : "running") - STATES.indexOf(a[2] === "problem" ? "problem" : "running") || (a[0] < b[0] ? -1 : 1));
  const more = () => {
    shown += TABLE_ROWS;
    showTables();
  };
  fill(
    byId("table-box"),
    el("h2", {}, `Nodes (${nodes.length})`),
    table(
      "Nodes",
      ["Node", "Operating system", "Version", "State", "Pods"],
      nodes.slice(0, shown).map((node) => [
        el("a", { href: objectPath("node", node[0]) }, node[0]),
        node[3] || node[1],
        node[2],
        el("span", { class: `badge ${node[4] === "True" ? "ok" : "bad"}` }, [node[4] === "True" ? "Ready" : "NotReady", node[5] && "cordoned", ...node[6]].filter(Boolean).join(", ")),
        counts.get(node[0]) ?? 0,
      ]),
    ),
    el("h2", {}, `Pods (${pods.length})`),
    table(
      "Pods",
      ["Pod", "State", "Ready", "Restarts", "Node", "Message"],
      pods.slice(0, shown).map((pod) => [
        el("a", { href: objectPath("pod", pod[0]) }, pod[0]),
        el("span", { class: `badge ${{ running: "ok", problem: "bad", unready: "warn" }[pod[2]] ?? ""}` }, pod[3]),
        pod[4],
        pod[5],
        el("span", { class: "nowrap" }, pod[1]),
        model.placesWithProblems.get(`pod/${pod[0]}`)?.what ?? pod[6],
      ]),
    ),
    Math.max(pods.length, nodes.length) > shown
      ? el("p", {}, el("button", { type: "button", onclick: more }, `Show ${TABLE_ROWS} more`), ` ${Math.min(shown, pods.length)} of ${pods.length} pods shown`)
      : null,
  );
}
