// Filters the records while typing; a changed choice loads the table for it.
import { byId } from "./dom.js";

const rows = [...document.querySelectorAll("#records tbody tr")];
const filter = byId("filter");

function apply() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const matches = words.every((word) => row.dataset.text.includes(word));
    row.hidden = !matches;
    if (matches) shown += 1;
  }
  byId("count").textContent = shown === rows.length ? `${shown} records` : `${shown} of ${rows.length} records`;
}

filter.addEventListener("input", apply);
filter.form.addEventListener("submit", (event) => {
  if (document.activeElement === filter) event.preventDefault();
});
byId("apply").hidden = true;
for (const select of filter.form.querySelectorAll("select")) {
  select.addEventListener("change", () => filter.form.submit());
}

/** Opens the record that the address names. */
function openNamed() {
  const row = location.hash.length > 1 ? byId(decodeURIComponent(location.hash.slice(1))) : null;
  const details = row?.querySelector("details");
  if (!details) return;
  details.open = true;
  row.scrollIntoView({ block: "start" });
}
window.addEventListener("hashchange", openNamed);
openNamed();
