// Every GPU as a cell, drawn on one canvas: 4 or 4,000 of them.
import { token } from "./colours.js";
import { count, deviceWord } from "./format.js";

const LABEL = 15,
  KIND = 26,
  NODE_GAP = 10,
  NAMED = 40; // pixels of a cell from which on it carries a name

/** Who is on which device: `node:gpu` to the jobs there. */
export function occupants(jobs) {
  const byDevice = new Map();
  for (const job of jobs.values()) {
    for (const part of job.on) {
      for (const gpu of part.gpus) {
        const key = `${part.node}:${gpu}`;
        const there = byDevice.get(key);
        if (there) there.push(job);
        else byDevice.set(key, [job]);
      }
    }
  }
  return byDevice;
}

const natural = new Intl.Collator("en", { numeric: true });

/** Nodes by kind, in the order in which people count. */
export function byKind(nodes) {
  const kinds = new Map();
  for (const node of nodes.values()) {
    if (!kinds.has(node.kind)) kinds.set(node.kind, []);
    kinds.get(node.kind).push(node);
  }
  for (const some of kinds.values())
    some.sort((a, b) => natural.compare(a.rack, b.rack) || natural.compare(a.id, b.id));
  return new Map([...kinds].sort((a, b) => natural.compare(a[0], b[0])));
}

/** Nodes in rows that fit into a width, with cells every `reach` pixels and space between nodes. */
function rowsOf(some, width, reach, between) {
  const rows = [];
  let left = -1;
  for (const node of some) {
    const wide = acrossOf(node) * reach;
    if (wide > left) {
      rows.push([]);
      left = width;
    }
    rows.at(-1).push(node);
    left -= wide + between;
  }
  return rows;
}

const ACROSS = 8;
const acrossOf = (node) => Math.min(node.gpus || 1, ACROSS);
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** How high a cell is: few GPUs get large ones. */
function sizeOf(total, room) {
  if (total <= 16) return Math.max(34, Math.min(76, room));
  if (total <= 64) return Math.max(26, Math.min(44, room));
  return total <= 320 ? 18 : total <= 1200 ? 13 : total <= 6000 ? 9 : 6;
}

/** Where every cell is: `{cells, labels, height, size, wide, gap}`. The fullest row takes the whole width. */
export function layOut(nodes, width) {
  const all = [...nodes.values()];
  const most = Math.max(1, ...all.map(acrossOf));
  const size = sizeOf(sum(all.map((node) => node.gpus)), Math.floor(width / most) - 2);
  const gap = size >= 13 ? 2 : 1,
    named = size >= 13,
    between = (named ? 16 : 8) - gap,
    top = named ? LABEL : 0;
  const kinds = [...byKind(nodes)].map(([kind, some]) => [
    kind,
    some,
    rowsOf(some, width + gap, size + gap, between),
  ]);
  const spare = kinds
    .flatMap(([, , rows]) => rows)
    .map((row) => (width + gap - between * (row.length - 1)) / sum(row.map(acrossOf)));
  const wide = Math.max(size, Math.floor(Math.min(...spare)) - gap);
  const cells = [],
    labels = [];
  let y = 0;
  for (const [kind, some, rows] of kinds) {
    const gpus = sum(some.map((node) => node.gpus));
    labels.push({ x: 0, y: y + 15, text: kind, kind: true, count: some.length, gpus });
    y += KIND;
    for (const row of rows) {
      let x = 0,
        tallest = 0;
      for (const node of row) {
        const across = acrossOf(node) * (wide + gap) - gap,
          high = Math.ceil((node.gpus || 1) / ACROSS) * (size + gap) - gap;
        if (named) labels.push({ x, y: y + 11, text: node.id, node, wide: across });
        for (let gpu = 0; gpu < node.gpus; gpu++)
          cells.push({
            x: x + (gpu % ACROSS) * (wide + gap),
            y: y + top + Math.floor(gpu / ACROSS) * (size + gap),
            node,
            gpu,
          });
        x += across + gap + between;
        tallest = Math.max(tallest, high + top);
      }
      y += tallest + NODE_GAP;
    }
    y += 14 - NODE_GAP;
  }
  return { cells, labels, height: Math.max(y, 40), size, wide, gap };
}

/** The cell at a point, or -1. */
export function cellAt(plan, x, y) {
  const right = plan.wide + plan.gap,
    down = plan.size + plan.gap;
  return plan.cells.findIndex(
    (cell) => x >= cell.x && x < cell.x + right && y >= cell.y && y < cell.y + down,
  );
}

/** What is the matter with a device: "" where it can be used. */
export function outOfUse(node, gpu) {
  if (node.state !== "up") return node.state;
  return node.drained_gpus.includes(gpu) ? "drained" : "";
}

function hatch(ctx, x, y, wide, size, colour) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, wide, size);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let at = -size; at < wide; at += 4) {
    ctx.moveTo(x + at, y + size);
    ctx.lineTo(x + at + size, y);
  }
  ctx.stroke();
  ctx.restore();
}

/** A job's name on its cell, on two lines; of a longer one the beginning and the end, where names differ. */
function name(ctx, job, x, y, wide, high, font) {
  ctx.font = `600 10.5px ${font}`;
  ctx.fillStyle = "#10131a";
  const fits = (text) => ctx.measureText(text).width <= wide - 6;
  let rest = job.name;
  for (let line = 0; line < 2 && rest; line++) {
    let count = rest.length;
    while (count > 1 && !fits(rest.slice(0, count))) count -= 1;
    const last = line === 1 && count < rest.length;
    ctx.fillText(
      last ? `…${rest.slice(-Math.max(count - 1, 1))}` : rest.slice(0, count),
      x + 3,
      y + high / 2 + 12 * line,
    );
    rest = rest.slice(count);
  }
}

/** Draw the plan. `paint(job)` is a job's colour, `dimmed(job)` whether it is not what is looked for. */
export function draw(canvas, plan, who, { width, paint, dimmed, chosen, chosenJob }) {
  const ratio = window.devicePixelRatio || 1;
  if (
    canvas.width !== Math.round(width * ratio) ||
    canvas.height !== Math.round(plan.height * ratio)
  ) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(plan.height * ratio);
    canvas.style.height = `${plan.height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, plan.height);
  const ink = {
    idle: token("idle"),
    line: token("idle-line"),
    strong: token("line-strong"),
    other: token("other"),
    text: token("text"),
    dim: token("dim"),
    accent: token("accent"),
    mark: token("mark"),
    panel: token("panel"),
  };
  const font = token("font");
  for (const label of plan.labels) {
    if (label.kind) {
      ctx.font = `600 12.5px ${font}`;
      ctx.fillStyle = ink.text;
      ctx.fillText(label.text || "any", label.x, label.y);
      const wide = ctx.measureText(label.text || "any").width;
      ctx.font = `12px ${font}`;
      ctx.fillStyle = ink.dim;
      ctx.fillText(
        `${count(label.gpus, deviceWord([label.text]))} on ${count(label.count, "node")}`,
        label.x + wide + 8,
        label.y,
      );
    } else {
      ctx.font = `11px ${font}`;
      ctx.fillStyle = ink.dim;
      let text = label.text;
      while (text.length > 3 && ctx.measureText(text).width > label.wide + 8)
        text = text.slice(0, -2) + "…";
      ctx.fillText(text, label.x, label.y);
    }
  }
  const { size, wide } = plan;
  for (let i = 0; i < plan.cells.length; i++) {
    const { x, y, node, gpu } = plan.cells[i];
    const there = who.get(`${node.id}:${gpu}`) || [];
    const out = outOfUse(node, gpu);
    if (!there.length) {
      const foreign = node.held_gpus.includes(gpu);
      ctx.fillStyle = foreign ? ink.other : ink.idle;
      ctx.fillRect(x, y, wide, size);
      if (!foreign) {
        ctx.strokeStyle = ink.line;
        ctx.lineWidth = 1;
        ctx.strokeRect(x + 0.5, y + 0.5, wide - 1, size - 1);
      }
    } else {
      const part = wide / there.length;
      there.forEach((job, n) => {
        ctx.globalAlpha = dimmed(job) ? 0.16 : job.state === "running" ? 1 : 0.5;
        ctx.fillStyle = paint(job);
        ctx.fillRect(x + n * part, y, Math.ceil(part), size);
        if (n) {
          ctx.globalAlpha = 1;
          ctx.fillStyle = ink.panel;
          ctx.fillRect(x + n * part - 0.5, y, 1, size);
        }
      });
      ctx.globalAlpha = 1;
      if (size >= NAMED)
        there.forEach((job, n) => name(ctx, job, x + n * part, y, part, size, font));
    }
    if (out) hatch(ctx, x, y, wide, size, there.length ? ink.mark : ink.strong);
    if (chosenJob && there.some((job) => job.id === chosenJob)) {
      ctx.strokeStyle = ink.text;
      ctx.lineWidth = 1.5;
      ctx.strokeRect(x + 0.75, y + 0.75, wide - 1.5, size - 1.5);
    }
    if (i === chosen) {
      ctx.strokeStyle = ink.accent;
      ctx.lineWidth = 2;
      ctx.strokeRect(x - 1, y - 1, wide + 2, size + 2);
    }
  }
}
