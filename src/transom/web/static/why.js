// The timeline: a lane for each object, a mark for each entry, and a slider that moves through time.
import { byId, el, fill } from "./dom.js";
import { getJson } from "./server.js";

const root = byId("timeline");
const mostLanes = 60;
const mostRows = 200;
const laneHeight = 24;
const refreshSeconds = 5;

let entries = [];
let lanes = [];
let start = 0;
let end = 1;
let playing = 0;
let left = 250; // the width of the labels

const timeOf = (entry) => Date.parse(entry.time);
/** The time, with the date if the timeline is longer than a day. */
function clock(time) {
  const text = new Date(time).toISOString();
  return end - start < 86400000 ? text.slice(11, 19) : `${text.slice(5, 10)} ${text.slice(11, 19)}`;
}

async function load() {
  try {
    const pod = root.dataset.pod;
    const found = await getJson(`/why/timeline/data${pod ? `?pod=${encodeURIComponent(pod)}` : ""}`);
    entries = found.entries.map((entry) => ({ ...entry, at: timeOf(entry) }));
    draw();
    move();
  } catch (problem) {
    fill(byId("chart"), el("p", { class: "problem", role: "alert" }, problem.message));
  }
}

/** The picture does not change while time moves, except for the line and the marks behind it. */
function draw() {
  if (!entries.length) {
    fill(byId("chart"), el("p", { class: "muted" }, "Nothing has happened yet."));
    return;
  }
  start = entries[0].at;
  end = Math.max(entries[entries.length - 1].at, start + 1000);
  const last = new Map(entries.map((entry) => [entry.object, entry.at]));
  lanes = [...last.keys()].sort((a, b) => last.get(b) - last.get(a)).slice(0, mostLanes);
  const width = Math.max(320, byId("chart").clientWidth - 20);
  const narrow = width < 700;
  left = narrow ? 130 : 250;
  const letters = narrow ? 16 : 36;
  const height = 30 + lanes.length * laneHeight;
  const x = (time) => left + ((time - start) / (end - start)) * (width - left - 30);
  const marks = entries
    .filter((entry) => lanes.includes(entry.object))
    .map((entry) => {
      const y = 30 + lanes.indexOf(entry.object) * laneHeight + laneHeight / 2;
      return el(
        "svg:circle",
        { cx: x(entry.at), cy: y, r: entry.severity === "info" ? 4 : 5.5, class: `mark ${entry.severity} ${entry.kind}`, "data-at": entry.at },
        el("svg:title", {}, `${clock(entry.at)} ${entry.text}`),
      );
    });
  const rows = lanes.map((name, index) => {
    const y = 30 + index * laneHeight;
    return [
      el("svg:rect", { x: 0, y, width, height: laneHeight, class: index % 2 ? "stripe" : "stripe even" }),
      el("svg:text", { x: 8, y: y + 16, class: "lane-label" }, name.length > letters ? `…${name.slice(1 - letters)}` : name),
    ];
  });
  const ticks = (narrow ? [0.2, 0.8] : [0, 0.25, 0.5, 0.75, 1]).map((part) => {
    const time = start + part * (end - start);
    return el("svg:text", { x: x(time), y: 18, class: "tick" }, clock(time));
  });
  fill(
    byId("chart"),
    el(
      "svg:svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Timeline; the table below has the entries" },
      rows,
      ticks,
      marks,
      el("svg:line", { id: "now", y1: 24, y2: height, x1: left, x2: left, class: "now" }),
    ),
  );
  byId("chart").dataset.width = width;
}

/** Shows the state at the chosen moment. */
function move() {
  if (!entries.length) return;
  const part = Number(byId("scrub").value) / 1000;
  const moment = start + part * (end - start);
  const width = Number(byId("chart").dataset.width);
  const x = left + part * (width - left - 30);
  const line = byId("now");
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  for (const mark of document.querySelectorAll(".mark")) mark.classList.toggle("later", Number(mark.dataset.at) > moment);
  byId("moment").textContent = `${new Date(moment).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const past = entries.filter((entry) => entry.at <= moment);
  const shown = past.slice(-mostRows).reverse();
  const badge = { warning: "warn", error: "bad", info: "" };
  fill(
    byId("entries"),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ["Time", "Object", "Kind", "What"].map((title) => el("th", { scope: "col" }, title)))),
      el(
        "tbody",
        {},
        shown.map((entry) =>
          el(
            "tr",
            {},
            el("td", { class: "fit" }, clock(entry.at)),
            el("td", {}, entry.object),
            el("td", {}, el("span", { class: `badge ${badge[entry.severity]}` }, entry.kind)),
            el("td", { class: "message" }, entry.text),
          ),
        ),
      ),
    ),
    past.length > shown.length ? el("p", { class: "muted" }, `${past.length - shown.length} older entries`) : null,
  );
}

function play() {
  const button = byId("play");
  const scrub = byId("scrub");
  if (playing) {
    clearInterval(playing);
    playing = 0;
  } else {
    if (Number(scrub.value) >= 1000) scrub.value = 0;
    playing = setInterval(() => {
      scrub.value = Number(scrub.value) + 5;
      move();
      if (Number(scrub.value) >= 1000) play();
    }, 50);
  }
  button.setAttribute("aria-pressed", playing ? "true" : "false");
  button.textContent = playing ? "❚❚ Pause" : "▶ Play";
}

if (root) {
  byId("scrub").addEventListener("input", move);
  byId("play").addEventListener("click", play);
  byId("refresh").addEventListener("click", load);
  // What happens now appears while the slider is at the end.
  setInterval(() => {
    if (!document.hidden && !playing && Number(byId("scrub").value) >= 1000) load();
  }, refreshSeconds * 1000);
  window.addEventListener("resize", () => {
    draw();
    move();
  });
  load();
}
