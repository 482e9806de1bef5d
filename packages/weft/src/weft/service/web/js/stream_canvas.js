// One row per GPU, time to the right, one colour per job, nothing where it is idle.
import { colourOf, hatched, token } from "./colours.js";
import { duration, timeMarks } from "./format.js";
import { byKind } from "./gpu_map.js";

export const AXIS = 22,
  GUTTER = 96;

/** Rows in the order of the map: `{rows, index}` with `index` from `node:gpu` to a row. */
export function rowsOf(nodes) {
  const rows = [],
    index = new Map();
  for (const some of byKind(nodes).values()) {
    for (const node of some) {
      for (let gpu = 0; gpu < node.gpus; gpu++) {
        index.set(`${node.id}:${gpu}`, rows.length);
        rows.push({ node: node.id, gpu, first: gpu === 0, gpus: node.gpus });
      }
    }
  }
  return { rows, index };
}

/** Rows of a result that brings its own bars. */
export function rowsOfSpans(spans) {
  const most = new Map();
  for (const span of spans)
    for (const part of span.on)
      most.set(part.node, Math.max(most.get(part.node) ?? -1, ...part.gpus));
  const natural = new Intl.Collator("en", { numeric: true });
  const nodes = new Map(
    [...most]
      .sort((a, b) => natural.compare(a[0], b[0]))
      .map(([id, last]) => [id, { id, kind: "", gpus: last + 1, rack: "" }]),
  );
  return rowsOf(nodes);
}

/** Spans by row; one that is `out` says that its devices were out of use. */
export function lay(spans, index) {
  const byRow = new Map();
  for (const span of spans) {
    for (const part of span.on) {
      for (const gpu of part.gpus) {
        const row = index.get(`${part.node}:${gpu}`);
        if (row === undefined) continue;
        if (!byRow.has(row)) byRow.set(row, []);
        byRow.get(row).push({ span, lane: 0, lanes: 1 });
      }
    }
  }
  return byRow;
}

/** The bars of one row with their lanes; found when it is first looked at. */
function barsOf(byRow, row) {
  const bars = byRow.get(row);
  if (!bars || bars.laid) return bars || [];
  bars.laid = true;
  bars.sort((a, b) => !a.span.out - !b.span.out || a.span.start - b.span.start);
  let crowd = [],
    free = [];
  const settle = () => {
    for (const bar of crowd) bar.lanes = free.length;
  };
  for (const bar of bars) {
    if (bar.span.out) continue; // behind those of jobs that still leave
    if (free.every((end) => end <= bar.span.start)) {
      settle();
      crowd = [];
      free = [];
    }
    let lane = free.findIndex((end) => end <= bar.span.start);
    if (lane < 0) lane = free.push(0) - 1;
    free[lane] = bar.span.end ?? Infinity;
    bar.lane = lane;
    crowd.push(bar);
  }
  settle();
  return bars;
}

const STEPS = [
  1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800,
];

function ticks(since, until, width) {
  const step =
    STEPS.find((seconds) => (until - since) / seconds <= Math.max(width / 90, 2)) || 1209600;
  const shift = new Date(since * 1000).getTimezoneOffset() * 60;
  const times = [];
  for (let at = Math.ceil((since - shift) / step) * step + shift; at <= until; at += step)
    times.push(at);
  return { step, times };
}

/** Draw what is visible; `top` is how far the rows are scrolled. Times are clocks, or counted from `zero`. */
export function draw(
  canvas,
  { width, height, top, rowHeight, rows, byRow, since, until, now, chosen, zero },
) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  const gutter = width < 500 ? 56 : GUTTER,
    wide = width - gutter;
  const ink = {
    idle: token("idle"),
    line: token("line"),
    text: token("text"),
    dim: token("dim"),
    other: token("other"),
    failed: token("failed"),
    mark: token("mark"),
    panel: token("panel"),
    out: hatched(ctx),
  };
  const font = token("font");
  const x = (at) => gutter + ((at - since) / (until - since)) * wide;
  ctx.fillStyle = ink.idle;
  ctx.fillRect(gutter, AXIS, wide, Math.min(height - AXIS, rows.length * rowHeight - top));
  const first = Math.max(0, Math.floor(top / rowHeight)),
    last = Math.min(rows.length, Math.ceil((top + height - AXIS) / rowHeight));
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, width, height - AXIS);
  ctx.clip();
  const gap = rowHeight >= 6 ? 1 : 0;
  for (let row = first; row < last; row++) {
    const y = AXIS + row * rowHeight - top;
    for (const { span, lane, lanes } of barsOf(byRow, row)) {
      const end = span.end ?? now;
      if (end < since || span.start > until) continue;
      const left = Math.max(x(span.start), gutter),
        right = Math.min(x(end), width);
      const part = (rowHeight - gap) / lanes,
        at = y + lane * part;
      ctx.fillStyle = span.out ? ink.out : span.job ? colourOf(span.job) : ink.other;
      ctx.globalAlpha = chosen && span.job !== chosen ? 0.25 : 1;
      ctx.fillRect(
        left,
        at,
        Math.max(right - left, 0.75),
        Math.max(part - (lanes > 1 ? 0.5 : 0), 0.75),
      );
      if (rowHeight >= 5 && span.attempt > 1 && span.start >= since) {
        ctx.fillStyle = ink.mark;
        ctx.fillRect(left, at, 1.5, part);
      }
      if (span.how === "failed" && end <= until) {
        ctx.fillStyle = ink.failed;
        ctx.fillRect(right - 2.5, at, 2.5, part);
      }
      ctx.globalAlpha = 1;
    }
    if (rows[row].first) {
      ctx.fillStyle = ink.line;
      ctx.fillRect(0, Math.round(y) - 0.5, width, 1);
      if (rowHeight * rows[row].gpus >= 10 && y + 12 <= height) {
        ctx.fillStyle = ink.dim;
        ctx.font = `11px ${font}`;
        let text = rows[row].node;
        while (text.length > 3 && ctx.measureText(text).width > gutter - 8)
          text = text.slice(0, -2) + "…";
        ctx.fillText(text, 0, y + Math.min(Math.max(rowHeight, 10), 12));
      }
    }
  }
  ctx.restore();
  const marks = ticks(since, until, wide);
  ctx.font = `11px ${font}`;
  const texts =
    zero === undefined
      ? timeMarks(marks.times).map((text) => text.split("\n").reverse().join(" "))
      : marks.times.map((at) => duration(at - zero));
  let free = -Infinity;
  for (const [i, at] of marks.times.entries()) {
    const left = x(at),
      text = texts[i];
    ctx.fillStyle = ink.line;
    ctx.globalAlpha = 0.7;
    ctx.fillRect(left, AXIS - 4, 1, height - AXIS + 4);
    ctx.globalAlpha = 1;
    if (left < free || left + ctx.measureText(text).width > width) continue;
    ctx.fillStyle = ink.dim;
    ctx.fillText(text, left + 3, 13);
    free = left + ctx.measureText(text).width + 14;
  }
  if (now >= since && now <= until) {
    ctx.fillStyle = ink.text;
    ctx.fillRect(x(now), AXIS - 4, 1, height);
  }
}

/** The bar at a point, or null. */
export function barAt({ width, top, rowHeight, rows, byRow, since, until, now }, px, py) {
  const gutter = width < 500 ? 56 : GUTTER;
  const row = Math.floor((py - AXIS + top) / rowHeight);
  if (py < AXIS || px < gutter || row < 0 || row >= rows.length) return null;
  const at = since + ((px - gutter) / (width - gutter)) * (until - since);
  const within = (py - AXIS + top - row * rowHeight) / rowHeight;
  const bars = barsOf(byRow, row).filter(({ span }) => span.start <= at && (span.end ?? now) >= at);
  const bar =
    bars.findLast((candidate) => Math.floor(within * candidate.lanes) === candidate.lane) ||
    bars[0];
  return { row: rows[row], at, span: bar?.span || null };
}
