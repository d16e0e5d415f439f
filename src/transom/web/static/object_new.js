// The form of a new object: a dry run shows what the server would store.
import { byId, el, fill } from "./dom.js";
import { postJson } from "./server.js";

const form = byId("new-form");
const editor = byId("editor");
const outcome = byId("outcome");

async function send(dryRun) {
  fill(outcome, el("p", { class: "muted" }, dryRun ? "Asking the server…" : "Creating…"));
  try {
    const made = await postJson("/objects/new", { yaml: editor.value, namespace: form.dataset.namespace, dryRun });
    const warnings = made.warnings.map((text) => el("p", { class: "notice" }, text));
    if (dryRun) {
      fill(outcome, warnings, el("h2", {}, "The server would store"), el("pre", { tabindex: "0", "aria-label": "Result of the dry run" }, made.yaml));
    } else if (warnings.length) {
      fill(outcome, warnings, el("p", {}, "Created: ", el("a", { href: made.page }, "open it")));
    } else {
      location.assign(made.page);
    }
  } catch (problem) {
    const causes = problem.details?.causes ?? [];
    fill(
      outcome,
      el(
        "div",
        { class: "problem", role: "alert" },
        el("p", {}, problem.message),
        causes.length > 1 ? el("ul", {}, causes.map((one) => el("li", {}, el("code", {}, one.field ?? ""), " ", one.message ?? ""))) : null,
      ),
    );
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send(true);
});
byId("create").addEventListener("click", () => send(false));
editor.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(true);
});
// The cursor goes where the name belongs.
const at = editor.value.indexOf("  name: ");
if (at >= 0) editor.setSelectionRange(at + 8, at + 8);
