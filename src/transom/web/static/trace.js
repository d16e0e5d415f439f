// Steps through the hops of a path, swaps its ends.
import { byId } from "./dom.js";

const swap = byId("swap");
if (swap) {
  swap.hidden = false;
  swap.addEventListener("click", () => {
    const [from, to] = ["from", "to"].map((name) => document.querySelector(`.trace-form [name=${name}]`));
    [from.value, to.value] = [to.value, from.value];
  });
}

const rows = [...document.querySelectorAll("#hops [data-hop]")];
const boxes = new Map([...document.querySelectorAll(".hop[data-hop]")].map((box) => [box.dataset.hop, box]));
let current = -1;

/** Highlights a hop in the picture and in the table. */
function select(index, scroll) {
  if (index < 0 || index >= rows.length) return;
  current = index;
  rows.forEach((row, i) => {
    const chosen = i === index;
    row.classList.toggle("chosen", chosen);
    if (chosen) row.setAttribute("aria-current", "step");
    else row.removeAttribute("aria-current");
    const box = boxes.get(row.dataset.hop);
    if (!box) return;
    box.classList.toggle("chosen", chosen);
    if (chosen && scroll) box.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

if (boxes.size) {
  document.querySelector(".stepper").hidden = false;
  byId("step-back").addEventListener("click", () => select(Math.max(0, current - 1), true));
  byId("step-on").addEventListener("click", () => select(current + 1, true));
  rows.forEach((row, index) => row.addEventListener("mouseenter", () => select(index, false)));
  boxes.forEach((box, hop) => {
    const index = rows.findIndex((row) => row.dataset.hop === hop);
    box.addEventListener("mouseenter", () => select(index, false));
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      select(event.key === "ArrowRight" ? current + 1 : Math.max(0, current - 1), true);
    }
  });
}
