// Where nodes, pods and services are in the picture of the cluster. Pure functions: no DOM, no canvas.

export const TILE = 14;
export const GAP = 3;
const PAD = 8;
const HEAD = 22;
const GROUP_HEAD = 30;
const BOX_GAP = 12;
const GROUP_GAP = 22;
const PILL_WIDTH = 130;
const PILL_HEIGHT = 24;
const MOST_PILLS = 60;
const FEWEST_COLUMNS = 7;
const MOST_COLUMNS = 16;

/** A title for the nodes of one operating system and build. */
export function groupTitle(node) {
  const [, os, version, image] = node;
  if (os === "windows") return `${image || "Windows"} · ${version.split(".").slice(0, 3).join(".")}`;
  return image || "Linux";
}

/** Groups of nodes, Linux first, then Windows by build; each with its nodes by name. */
export function groupNodes(nodes) {
  const groups = new Map();
  for (const node of nodes) {
    const title = groupTitle(node);
    if (!groups.has(title)) groups.set(title, { title, os: node[1], version: node[2], nodes: [] });
    groups.get(title).nodes.push(node);
  }
  const sorted = [...groups.values()].sort(
    (a, b) => a.os.localeCompare(b.os) || a.version.localeCompare(b.version, undefined, { numeric: true }),
  );
  for (const group of sorted) {
    group.nodes.sort((a, b) => a[0].localeCompare(b[0], undefined, { numeric: true }));
  }
  return sorted;
}

/**
 * The layout for a canvas of this shape: boxes of nodes with the columns of their tiles, headings of groups, pills
 * of services, and the size of it all.
 */
export function layOut(groups, podsByNode, unscheduled, services, aspect) {
  let most = 0;
  for (const pods of podsByNode.values()) most = Math.max(most, pods.length);
  const columns = Math.min(MOST_COLUMNS, Math.max(FEWEST_COLUMNS, Math.ceil(Math.sqrt(most * 1.8))));
  const boxWidth = 2 * PAD + columns * (TILE + GAP) - GAP;
  const boxes = [];
  if (unscheduled.length) {
    boxes.push({ title: "Not on a node", os: "", items: [box(null, unscheduled, columns, boxWidth)] });
  }
  for (const group of groups) {
    boxes.push({
      title: group.title,
      os: group.os,
      items: group.nodes.map((node) => box(node, podsByNode.get(node[0]) ?? [], columns, boxWidth)),
    });
  }
  let best = null;
  const count = Math.max(1, ...boxes.map((group) => group.items.length));
  for (let across = 1; across <= count; across = Math.ceil(across * 1.25 + 0.01)) {
    const width = across * (boxWidth + BOX_GAP) - BOX_GAP;
    const height = place(boxes, services, width, false).height;
    const scale = Math.min(aspect / width, 1 / height);
    if (!best || scale > best.scale) best = { scale, width };
  }
  return place(boxes, services, Math.max(best.width, 2 * PILL_WIDTH + 10), true);
}

function box(node, pods, columns, width) {
  const rows = Math.max(2, Math.ceil(pods.length / columns));
  return { node, pods, columns, width, height: HEAD + rows * (TILE + GAP) - GAP + PAD, x: 0, y: 0 };
}

function place(groups, services, width, keep) {
  const pills = services.slice(0, MOST_PILLS);
  const across = Math.max(1, Math.floor((width + 10) / (PILL_WIDTH + 10)));
  const placed = { boxes: [], headings: [], pills: [], width, height: 0, hidden: services.length - pills.length };
  if (keep) {
    pills.forEach((service, at) =>
      placed.pills.push({
        service,
        x: (at % across) * (PILL_WIDTH + 10),
        y: Math.floor(at / across) * (PILL_HEIGHT + 8),
        width: PILL_WIDTH,
        height: PILL_HEIGHT,
      }),
    );
  }
  let y = pills.length ? Math.ceil(pills.length / across) * (PILL_HEIGHT + 8) + GROUP_GAP : 0;
  for (const group of groups) {
    if (keep) placed.headings.push({ title: group.title, os: group.os, count: group.items.length, x: 0, y });
    y += GROUP_HEAD;
    let x = 0;
    let line = 0;
    for (const item of group.items) {
      if (x > 0 && x + item.width > width + 0.5) {
        x = 0;
        y += line + BOX_GAP;
        line = 0;
      }
      if (keep) placed.boxes.push({ ...item, x, y });
      x += item.width + BOX_GAP;
      line = Math.max(line, item.height);
    }
    y += line + GROUP_GAP;
  }
  placed.height = Math.max(1, y - GROUP_GAP);
  return placed;
}

/** The position of a tile in its box. */
export function tilePlace(item, at) {
  return {
    x: item.x + PAD + (at % item.columns) * (TILE + GAP),
    y: item.y + HEAD + Math.floor(at / item.columns) * (TILE + GAP),
  };
}

/** The tile of a box at a position: its index, or -1. */
export function tileAt(item, x, y) {
  const column = Math.floor((x - item.x - PAD) / (TILE + GAP));
  const row = Math.floor((y - item.y - HEAD) / (TILE + GAP));
  if (column < 0 || column >= item.columns || row < 0) return -1;
  const at = row * item.columns + column;
  return at < item.pods.length ? at : -1;
}
