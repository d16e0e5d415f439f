// Draws the cluster on a canvas: only what is visible, and less detail the further away. 10,000 pods are one path per colour.
import { byId } from "./dom.js";
import { TILE, groupNodes, layOut, tileAt, tilePlace } from "./cluster_layout.js";

const STATES = ["running", "unready", "starting", "problem", "ending", "done"];
const FAR_TILE = 3; // pixels: below, a node is one bar of colours
const MARK_TILE = 9; // from here on tiles carry a sign beside their colour
const MOST_LINES = 300; // more of them at once hide the tiles: then only the chosen service has lines
const LARGEST_SCALE = 6;

export class Picture {
  /** `onopen` gets the kind and key of what the user opens; `describe` returns its text. */
  constructor(canvas, model, { onopen, describe }) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.model = model;
    this.onopen = onopen;
    this.describe = describe;
    this.layout = null;
    this.scale = 1;
    this.left = 0;
    this.top = 0;
    this.fitted = true;
    this.hover = null;
    this.selected = null;
    this.frame = 0;
    this.layoutNeeded = true;
    this.pointers = new Map();
    this.drawMilliseconds = 0;
    this.readColours();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.readColours();
      this.draw();
    });
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = {};
    for (const name of ["surface", "border", "text", "muted", "accent", "bad", "bad-soft", "windows", "linux", "bg", ...STATES.map((s) => `pod-${s}`)]) {
      this.colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
    this.font = style.getPropertyValue("--sans");
  }

  /** Data changed; `structure`: also which pods are on which nodes. */
  changed(structure) {
    this.layoutNeeded ||= structure;
    this.draw();
  }

  draw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.layoutNeeded = true;
    this.draw();
  }

  // ---- layout

  relayout() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const model = this.model;
    const byNode = new Map([...model.nodes.keys()].map((name) => [name, []]));
    const unscheduled = [];
    for (const pod of model.pods.values()) (byNode.get(pod[1]) ?? unscheduled).push(pod);
    const compare = (a, b) => (a[0] < b[0] ? -1 : 1);
    for (const pods of byNode.values()) pods.sort(compare);
    unscheduled.sort(compare);
    const services = [...model.services.values()].filter((service) => model.backends(service[0]).length);
    services.sort(compare);
    this.layout = layOut(groupNodes(model.nodes.values()), byNode, unscheduled, services, width / height);
    this.places = new Map();
    for (const item of this.layout.boxes) {
      item.pods.forEach((pod, at) => this.places.set(pod[0], { item, at }));
    }
    this.layoutNeeded = false;
    if (this.fitted) this.fit();
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const margin = 16;
    const bottom = 52; // the buttons of the zoom
    const fitting = Math.min((width - 2 * margin) / this.layout.width, (height - margin - bottom) / this.layout.height);
    this.scale = Math.max(0.01, Math.min(2, fitting));
    this.left = (width - this.layout.width * this.scale) / 2;
    this.top = Math.max(margin, Math.min(height * 0.08, (height - bottom + margin - this.layout.height * this.scale) / 2));
    this.fitted = true;
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const next = Math.min(LARGEST_SCALE, Math.max(0.02, this.scale * factor));
    this.left = x - ((x - this.left) * next) / this.scale;
    this.top = y - ((y - this.top) * next) / this.scale;
    this.scale = next;
    this.fitted = false;
    this.draw();
  }

  // ---- painting

  paint() {
    this.frame = 0;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const began = performance.now();
    if (this.layoutNeeded || !this.layout) this.relayout();
    const ratio = devicePixelRatio || 1;
    const c = this.context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const s = this.scale * ratio;
    c.setTransform(s, 0, 0, s, this.left * ratio, this.top * ratio);
    const view = {
      x0: -this.left / this.scale,
      y0: -this.top / this.scale,
      x1: (width - this.left) / this.scale,
      y1: (height - this.top) / this.scale,
    };
    const visible = this.layout.boxes.filter((item) => overlaps(item, view));
    this.paintHeadings(view);
    this.paintBoxes(visible);
    if (TILE * this.scale < FAR_TILE) this.paintBars(visible);
    else this.paintTiles(visible);
    this.paintServices();
    this.paintMarks();
    this.drawMilliseconds = performance.now() - began;
  }

  paintHeadings(view) {
    const c = this.context;
    const size = this.scale > 1 ? 15 / this.scale : Math.max(15, 11 / this.scale);
    c.font = `600 ${size}px ${this.font}`;
    c.textBaseline = "alphabetic";
    let free = -Infinity;
    for (const heading of this.layout.headings) {
      if (heading.y < free) continue; // the one before covers it
      c.fillStyle = heading.os ? (this.colours[heading.os] ?? this.colours.text) : this.colours.bad;
      const count = heading.os ? `  ${heading.count} ${heading.count === 1 ? "node" : "nodes"}` : "";
      const short = heading.title.replace(/ Datacenter| \([^)]*\)/, "");
      const room = Math.max(this.layout.width, view.x1 - heading.x - 8 / this.scale);
      const fitting = [heading.title + count, short + count, short].find((text) => c.measureText(text).width <= room);
      c.fillText(fitting ?? clip(c, short, room), heading.x, heading.y + 20);
      free = heading.y + size * 0.6;
    }
  }

  paintBoxes(boxes) {
    const c = this.context;
    const label = 11 * this.scale >= 6;
    const finding = this.model.placesWithProblems;
    c.lineWidth = Math.max(1, 1 / this.scale);
    for (const item of boxes) {
      const bad = !item.node || item.node[4] !== "True" || finding.has(`node/${item.node[0]}`);
      c.fillStyle = this.colours.surface;
      c.strokeStyle = bad ? this.colours.bad : this.colours.border;
      c.setLineDash(item.node?.[5] ? [4, 3] : []);
      c.beginPath();
      c.roundRect(item.x, item.y, item.width, item.height, 5);
      c.fill();
      c.stroke();
      if (label) this.paintLabel(item, bad);
    }
    c.setLineDash([]);
  }

  paintLabel(item, bad) {
    const c = this.context;
    const notes = [];
    if (item.node && item.node[4] !== "True") notes.push("NotReady");
    if (item.node?.[5]) notes.push("cordoned");
    c.font = `500 ${Math.min(11, 14 / this.scale)}px ${this.font}`;
    c.fillStyle = bad ? this.colours.bad : this.colours.text;
    const name = item.node ? item.node[0] : `${item.pods.length} ${item.pods.length === 1 ? "pod" : "pods"}`;
    const note = notes.join(", ");
    const room = item.width - 16 - (note ? c.measureText(note).width + 6 : 0);
    c.fillText(clip(c, name, room), item.x + 8, item.y + 15);
    if (note) {
      c.textAlign = "right";
      c.fillText(note, item.x + item.width - 8, item.y + 15);
      c.textAlign = "left";
    }
  }

  /** Far away: each node is one bar, as long as its pods are many by state. */
  paintBars(boxes) {
    const c = this.context;
    for (const item of boxes) {
      if (!item.pods.length) continue;
      const counts = {};
      for (const pod of item.pods) counts[pod[2]] = (counts[pod[2]] ?? 0) + 1;
      const width = item.width - 12;
      let x = item.x + 6;
      for (const state of STATES) {
        if (!counts[state]) continue;
        const part = (width * counts[state]) / item.pods.length;
        c.fillStyle = this.colours[`pod-${state}`];
        c.fillRect(x, item.y + 18, part, item.height - 24);
        x += part;
      }
    }
  }

  paintTiles(boxes) {
    const c = this.context;
    const round = TILE * this.scale > 7;
    const filter = this.model.matches;
    for (const dim of filter ? [true, false] : [false]) {
      c.globalAlpha = dim ? 0.15 : 1;
      for (const state of STATES) {
        c.fillStyle = this.colours[`pod-${state}`];
        c.beginPath();
        for (const item of boxes) {
          for (let at = 0; at < item.pods.length; at++) {
            const pod = item.pods[at];
            if (pod[2] !== state || (filter && filter(pod) === dim)) continue;
            const { x, y } = tilePlace(item, at);
            if (round) c.roundRect(x, y, TILE, TILE, 3);
            else c.rect(x, y, TILE, TILE);
          }
        }
        c.fill();
      }
    }
    c.globalAlpha = 1;
    if (TILE * this.scale >= MARK_TILE) this.paintSigns(boxes);
  }

  /** Signs beside the colours, for everyone who does not see them. */
  paintSigns(boxes) {
    const c = this.context;
    c.strokeStyle = this.colours.surface;
    c.lineWidth = 1.6;
    c.beginPath();
    for (const item of boxes) {
      for (let at = 0; at < item.pods.length; at++) {
        const state = item.pods[at][2];
        if (state === "running") continue;
        const { x, y } = tilePlace(item, at);
        if (state === "problem") {
          c.moveTo(x + 7, y + 3.2);
          c.lineTo(x + 7, y + 8);
          c.moveTo(x + 7, y + 10);
          c.lineTo(x + 7, y + 11.2);
        } else if (state === "unready") {
          c.rect(x + 4, y + 4, 6, 6);
        } else if (state === "starting") {
          c.moveTo(x + 4, y + 7);
          c.lineTo(x + 10, y + 7);
        } else if (state === "ending") {
          c.moveTo(x + 4, y + 4);
          c.lineTo(x + 10, y + 10);
          c.moveTo(x + 10, y + 4);
          c.lineTo(x + 4, y + 10);
        } else if (state === "done") {
          c.moveTo(x + 3.6, y + 7.2);
          c.lineTo(x + 6, y + 9.8);
          c.lineTo(x + 10.4, y + 4.6);
        }
      }
    }
    c.stroke();
  }

  paintServices() {
    const c = this.context;
    const { pills } = this.layout;
    const chosen = this.chosenService();
    const lines = pills.reduce((sum, pill) => sum + this.model.backends(pill.service[0]).length, 0);
    for (const pill of pills) {
      const key = pill.service[0];
      const strong = chosen ? chosen.has(key) : false;
      if (!strong && lines > MOST_LINES) continue;
      c.strokeStyle = this.colours.accent;
      c.globalAlpha = strong ? 0.9 : chosen ? 0.08 : 0.3;
      c.lineWidth = (strong ? 1.6 : 1) / Math.min(1, this.scale);
      c.beginPath();
      const x = pill.x + pill.width / 2;
      const y = pill.y + pill.height;
      for (const pod of this.model.backends(key)) {
        const place = this.places.get(pod);
        if (!place) continue;
        const tile = tilePlace(place.item, place.at);
        const toX = tile.x + TILE / 2;
        const toY = tile.y + TILE / 2;
        c.moveTo(x, y);
        c.bezierCurveTo(x, y + (toY - y) * 0.5, toX, y + (toY - y) * 0.4, toX, toY);
      }
      c.stroke();
    }
    c.globalAlpha = 1;
    c.lineWidth = 1;
    if (10 * this.scale < 4.5) return;
    c.font = `500 ${Math.min(11, 14 / this.scale)}px ${this.font}`;
    for (const pill of pills) {
      const strong = chosen?.has(pill.service[0]);
      c.fillStyle = strong ? this.colours.accent : this.colours.surface;
      c.strokeStyle = this.colours.accent;
      c.beginPath();
      c.roundRect(pill.x, pill.y, pill.width, pill.height, 12);
      c.fill();
      c.stroke();
      c.fillStyle = strong ? this.colours.surface : this.colours.accent;
      c.fillText(clip(c, pill.service[0].split("/")[1], pill.width - 20), pill.x + 10, pill.y + 16);
    }
    if (this.layout.hidden && pills.length) {
      const last = pills[pills.length - 1];
      c.fillStyle = this.colours.muted;
      c.fillText(`and ${this.layout.hidden} more services`, last.x + last.width + 10, last.y + 16);
    }
  }

  chosenService() {
    const one = this.hover ?? this.selected;
    if (!one) return null;
    if (one.kind === "service") return new Set([one.key]);
    if (one.kind !== "pod") return null;
    const found = this.layout.pills.map((pill) => pill.service[0]).filter((key) => this.model.backends(key).includes(one.key));
    return found.length ? new Set(found) : null;
  }

  paintMarks() {
    for (const [one, colour] of [[this.hover, this.colours.text], [this.selected, this.colours.accent]]) {
      const area = one && this.area(one);
      if (!area) continue;
      const c = this.context;
      c.strokeStyle = colour;
      c.lineWidth = Math.max(1.5, 2 / this.scale);
      c.beginPath();
      c.roundRect(area.x - 1.5, area.y - 1.5, area.width + 3, area.height + 3, 4);
      c.stroke();
    }
  }

  area(one) {
    if (one.kind === "pod") {
      const place = this.places.get(one.key);
      return place && { ...tilePlace(place.item, place.at), width: TILE, height: TILE };
    }
    if (one.kind === "node") return this.layout.boxes.find((item) => item.node?.[0] === one.key);
    return this.layout.pills.find((pill) => pill.service[0] === one.key);
  }

  // ---- input

  at(clientX, clientY) {
    if (!this.layout) return null;
    const bounds = this.canvas.getBoundingClientRect();
    const x = (clientX - bounds.left - this.left) / this.scale;
    const y = (clientY - bounds.top - this.top) / this.scale;
    const inside = (area) => x >= area.x && x <= area.x + area.width && y >= area.y && y <= area.y + area.height;
    const pill = this.layout.pills.find(inside);
    if (pill) return { kind: "service", key: pill.service[0] };
    const item = this.layout.boxes.find(inside);
    if (!item) return null;
    const at = TILE * this.scale >= FAR_TILE ? tileAt(item, x, y) : -1;
    if (at >= 0) return { kind: "pod", key: item.pods[at][0] };
    return item.node ? { kind: "node", key: item.node[0] } : null;
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => this.pointerMoved(event));
    canvas.addEventListener("pointerup", (event) => {
      this.pointers.delete(event.pointerId);
      if (this.moved > 5 || this.pointers.size) return;
      const one = this.at(event.clientX, event.clientY);
      if (one && this.selected && one.kind === this.selected.kind && one.key === this.selected.key) this.onopen(one);
      else this.select(one);
    });
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.setHover(null));
    canvas.addEventListener("dblclick", (event) => {
      const one = this.at(event.clientX, event.clientY);
      if (one) this.onopen(one);
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const bounds = canvas.getBoundingClientRect();
        this.zoom(Math.exp(-event.deltaY / 400), event.clientX - bounds.left, event.clientY - bounds.top);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.select(null));
  }

  pointerMoved(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.setHover(this.at(event.clientX, event.clientY), event);
      return;
    }
    const others = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const other = others[0][1];
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      const now = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      const bounds = this.canvas.getBoundingClientRect();
      if (was > 0) this.zoom(now / was, (event.clientX + other.x) / 2 - bounds.left, (event.clientY + other.y) / 2 - bounds.top);
    } else {
      this.left += event.clientX - before.x;
      this.top += event.clientY - before.y;
      if (event.clientX !== before.x || event.clientY !== before.y) this.fitted = false;
    }
    this.moved += Math.abs(event.clientX - before.x) + Math.abs(event.clientY - before.y);
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.draw();
  }

  setHover(one, event) {
    const same = (this.hover?.key ?? "") === (one?.key ?? "") && this.hover?.kind === one?.kind;
    this.hover = one;
    if (!same) this.draw();
    this.showTip(one, event?.clientX, event?.clientY);
  }

  select(one) {
    this.selected = one;
    this.draw();
    const area = one && this.layout && this.area(one);
    if (!area) return this.showTip(null);
    const bounds = this.canvas.getBoundingClientRect();
    return this.showTip(
      one,
      bounds.left + this.left + (area.x + Math.min(area.width, 40)) * this.scale,
      bounds.top + this.top + (area.y + Math.min(area.height, 20)) * this.scale,
    );
  }

  showTip(one, x, y) {
    const tip = byId("tip");
    tip.hidden = !one;
    if (!one) return;
    tip.replaceChildren(...this.describe(one));
    const bounds = this.canvas.getBoundingClientRect();
    const width = Math.min(340, bounds.width - 16);
    tip.style.maxWidth = `${width}px`;
    const left = Math.max(8, Math.min(x - bounds.left + 14, bounds.width - tip.offsetWidth - 8));
    let top = y - bounds.top + 16;
    if (top + tip.offsetHeight > bounds.height - 8) top = Math.max(8, y - bounds.top - tip.offsetHeight - 12);
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  }

  key(event) {
    const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };
    if (event.key in zooms) this.zoom(zooms[event.key]);
    else if (event.key === "0") {
      this.fit();
      this.draw();
    } else if (event.key === "Enter" && this.selected) this.onopen(this.selected);
    else if (event.key === "Escape") this.select(null);
    else if (event.key.startsWith("Arrow") && this.layout) this.move(event.key.slice(5));
    else return;
    event.preventDefault();
  }

  /** Up and down go from node to node, left and right through its pods. */
  move(direction) {
    const { boxes } = this.layout;
    if (!boxes.length) return;
    const now = this.selected;
    const place = now?.kind === "pod" ? this.places.get(now.key) : null;
    const item = place?.item ?? boxes.find((one) => now?.kind === "node" && one.node?.[0] === now.key);
    let index = item ? boxes.findIndex((one) => one.node?.[0] === item.node?.[0]) : -1;
    let at = place ? place.at : -1;
    if (direction === "Down" || index < 0) [index, at] = [index + 1, -1];
    else if (direction === "Up") [index, at] = at >= 0 ? [index, -1] : [index - 1, -1];
    else at += direction === "Right" ? 1 : -1;
    index = Math.max(0, Math.min(boxes.length - 1, index));
    const target = boxes[index];
    at = Math.min(at, target.pods.length - 1);
    if (at < 0 && !target.node && target.pods.length) at = 0;
    this.select(at >= 0 ? { kind: "pod", key: target.pods[at][0] } : { kind: "node", key: target.node?.[0] ?? "" });
  }
}

function overlaps(item, view) {
  return item.x < view.x1 && item.x + item.width > view.x0 && item.y < view.y1 && item.y + item.height > view.y0;
}

function clip(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && c.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}
