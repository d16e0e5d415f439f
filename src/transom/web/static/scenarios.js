// Shows a change of the scenario that is on, also one by another client.
import { byId } from "./dom.js";
import { getJson } from "./server.js";

const list = byId("scenarios");
const seconds = 2;

async function look() {
  if (document.hidden) return;
  try {
    const now = await getJson("/why/scenarios/state");
    if (now.phase !== list.dataset.phase || now.name !== list.dataset.name) location.reload();
  } catch {
    // The next poll shows the result; getJson reports a session that has ended.
  }
}

if (list) {
  setInterval(look, seconds * 1000);
  document.addEventListener("visibilitychange", look);
  const waiting = byId("not-reported");
  if (waiting) setInterval(() => document.hidden || location.reload(), waiting.dataset.seconds * 1000);
}
