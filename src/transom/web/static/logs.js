// A log that follows. Keeps the last lines only; adds text once per frame.
import { byId, el, fill } from "./dom.js";
import { liveEvents } from "./server.js";

const MOST_LINES = 5000;

export function startLogs(base, data) {
  const box = byId("log");
  const state = byId("log-state");
  const find = byId("log-find");
  fill(byId("log-container"), data.containers.map((one) => el("option", { value: one.name }, one.name)));
  let stream = null;
  let lines = [];
  let rest = "";
  let frame = 0;
  let fresh = 0; // lines that are not on the page yet

  function paint() {
    frame = 0;
    const bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    const word = find.value.toLowerCase();
    const show = (line) => el("span", { hidden: !line.toLowerCase().includes(word) }, line, "\n");
    if (fresh >= lines.length) fill(box, lines.map(show));
    else if (fresh) box.append(...lines.slice(-fresh).map(show));
    while (box.childElementCount > lines.length) box.firstElementChild.remove();
    fresh = 0;
    if (bottom) box.scrollTop = box.scrollHeight;
  }

  function add(text) {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    lines.push(...parts);
    fresh += parts.length;
    if (lines.length > MOST_LINES) lines = lines.slice(-MOST_LINES);
    if (!frame) frame = requestAnimationFrame(paint);
  }

  function setState(name, text) {
    state.dataset.state = name;
    state.textContent = text;
  }

  function open() {
    stream?.close();
    [lines, rest, fresh] = [[], "", 0];
    fill(box);
    const query = new URLSearchParams({ container: byId("log-container").value });
    if (byId("log-previous").checked) query.set("previous", "1");
    else if (byId("log-follow").checked) query.set("follow", "1");
    if (byId("log-times").checked) query.set("timestamps", "1");
    let ended = false;
    setState("", "reading");
    stream = liveEvents(
      `${base}/log?${query}`,
      {
        text: add,
        end() {
          ended = true;
          stream.close();
          if (rest) add("\n");
          setState("", "end of the log");
        },
      },
      (now, problem) => {
        if (ended) return;
        if (problem) setState("failed", problem.message);
        else if (now === "live") {
          [lines, rest, fresh] = [[], "", 0]; // a new connection sends the last lines again
          fill(box);
          setState("live", "following");
        } else setState(now, now);
      },
    );
  }

  for (const id of ["log-container", "log-previous", "log-times", "log-follow"]) byId(id).addEventListener("change", open);
  find.addEventListener("input", () => {
    fresh = lines.length;
    paint();
  });
  open();
}
