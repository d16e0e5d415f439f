// Shows a change of the scenario that is on, also one by another client.
import { byId } from "./dom.js";
import { getJson } from "./server.js";

const list = byId("scenarios");
const seconds = 2;
const reportSeconds = 10; // until doctor is asked again about a scenario that it does not report yet

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
  if (byId("not-reported")) setInterval(() => document.hidden || location.reload(), reportSeconds * 1000);
}
