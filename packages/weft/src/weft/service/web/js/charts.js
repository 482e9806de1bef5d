// Charts by uPlot, which is loaded when the first one is drawn.
import { hatched, token } from "./colours.js";
import { clock, duration, number, timeMarks } from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { useTheme } from "./theme.js";

let loading = null;

function loadPlot() {
  loading ??= new Promise((done, failed) => {
    const script = Object.assign(document.createElement("script"), {
      src: "/web/vendor/uPlot.iife.min.js",
      onload: () => done(window.uPlot),
      onerror: () => failed(new Error("the charts could not be loaded")),
    });
    document.head.append(script);
  });
  return loading;
}

const LINES = [
  "oklch(58% 0.15 262)",
  "oklch(64% 0.15 45)",
  "oklch(60% 0.13 155)",
  "oklch(60% 0.16 330)",
  "oklch(66% 0.12 90)",
  "oklch(60% 0.11 210)",
  "oklch(56% 0.15 20)",
  "oklch(55% 0.13 290)",
];
// Steps of an axis: of what comes in pieces, such as GPUs, and of seconds.
const WHOLE = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const SECONDS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];
export const lineColour = (i) => LINES[i % LINES.length];
export const lineDash = (i) => (i < LINES.length ? undefined : [6, 4]); // its colour is another's

const LEAST_DRAG = 6; // pixels
const fromZero = (_, low, high) => [Math.min(low ?? 0, 0), high > 0 ? high * 1.05 : 1];

/** Columns on top of each other: the sum of all first, which those below it are painted over. */
function stacked([xs, ...columns]) {
  const sums = [];
  for (const ys of columns) sums.push(ys.map((y, i) => (y ?? 0) + (sums.at(-1)?.[i] ?? 0)));
  return [xs, ...sums.reverse()];
}

/** Marks above the lines of a chart: a tick each, which some prolong across it. */
function drawMarks({ ctx, bbox, valToPos }, marks) {
  const ratio = window.devicePixelRatio;
  ctx.save();
  for (const { at, tone, size, wide, line } of marks) {
    const x = valToPos(at, "x", true);
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    ctx.strokeStyle = token(tone);
    ctx.lineWidth = (wide ? 3 : 1) * ratio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top - (1 + 6 * size) * ratio);
    ctx.lineTo(x, bbox.top);
    ctx.stroke();
    if (!line) continue;
    ctx.lineWidth = ratio;
    ctx.setLineDash([4, 3]);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.setLineDash([]);
  }
  ctx.restore();
}

const aboveZero = ([xs, ...columns]) => [
  xs,
  ...columns.map((ys) => ys.map((y) => (y > 0 ? y : null))),
];

/**
 * One chart. `data` is uPlot's: x first, then a column a series; `series` are
 * `{label, step, dash, scale, colour, fill, hatch}`, of which `hatch` makes one look absent.
 * With `stack` the columns lie on top of each other, the first below. `marks` are
 * `{at, tone, size, wide, line}`, `zoom` is called with the ends of what was dragged over, and
 * `pointed` with the place of the value below the pointer, or null. With `whole` the axis has whole
 * numbers alone, with `log` it is logarithmic and leaves out what is not above 0. `time` reads x as
 * seconds since the epoch. `describe` says in words what is drawn.
 */
export function Chart({
  data,
  series,
  time = true,
  height = 190,
  describe,
  format = number,
  xLabel,
  yLabel,
  range,
  whole = false,
  zero = false,
  log = false,
  stack = false,
  points = false,
  marks = [],
  zoom,
  pointed,
}) {
  const box = useRef(null),
    plot = useRef(null);
  const themed = useTheme();
  const [error, setError] = useState(null);
  const latest = useRef({});
  if (stack) series = [...series].reverse();
  const [own, lines] = useMemo(
    () => [
      stack ? [data[0], ...data.slice(1).reverse()] : data,
      log ? aboveZero(data) : stack ? stacked(data) : data,
    ],
    [data, log, stack],
  );
  latest.current = { own, lines, marks, zoom, pointed }; // more may come while the chart is loaded
  const early = time && data[0].length < 2; // of a single moment uPlot shows years
  const shape = JSON.stringify([
    early,
    series.map((line) => [line.label, line.step, line.dash, line.scale, line.colour]),
    time,
    height,
    xLabel,
    yLabel,
    range,
    log,
    stack,
    themed,
  ]);
  useEffect(() => {
    if (early) return undefined;
    let over = false,
      watcher = null;
    loadPlot().then((Plot) => {
      if (over || !box.current) return;
      const ink = token("dim"),
        grid = token("line");
      const axis = {
        stroke: ink,
        grid: { stroke: grid, width: 1 },
        ticks: { show: false },
        font: "11px system-ui",
        size: 44,
        values: (_, all) => all.map((value) => (value == null ? "" : format(value))),
      };
      const wide = (_, labels) =>
        Math.max(44, 12 + 6.5 * Math.max(0, ...(labels || []).map((label) => label.length)));
      const options = {
        width: Math.max(box.current.clientWidth, 120),
        height,
        padding: [8, 30, 0, 0], // half of the last time,
        legend: {
          live: true,
          markers: { dash: (_, i) => (series[i - 1]?.dash ? "dashed" : "solid") },
        },
        cursor: {
          y: false,
          points: { size: 6 },
          ...(zoom ? { drag: { x: true, y: false, setScale: false } } : {}),
        },
        hooks: {
          draw: [(u) => drawMarks(u, latest.current.marks)],
          setCursor: [(u) => latest.current.pointed?.(u.cursor.idx ?? null)],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (!latest.current.zoom || width < LEAST_DRAG) return;
              latest.current.zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
        scales: {
          x: { time },
          ...(log ? { y: { distr: 3 } } : range || zero ? { y: { range: range || fromZero } } : {}),
        },
        axes: [
          {
            ...axis,
            size: (_, labels) => (labels?.some((label) => label.includes("\n")) ? 40 : 26), // with the day
            space: 80,
            values: time ? (_, all) => timeMarks(all) : axis.values,
            label: xLabel,
            labelFont: "11px system-ui",
            labelSize: xLabel ? 16 : 0,
          },
          {
            ...axis,
            size: wide,
            ...(whole ? { incrs: WHOLE } : format === duration ? { incrs: SECONDS } : {}),
            ...(yLabel ? { label: yLabel, labelFont: "11px system-ui", labelSize: 16 } : {}),
          },
          ...(series.some((line) => line.scale)
            ? [
                {
                  ...axis,
                  scale: series.find((line) => line.scale).scale,
                  side: 1,
                  grid: { show: false },
                },
              ]
            : []),
        ],
        series: [
          {
            label: time ? "at" : xLabel || "x",
            value: (_, value) => (value == null ? "" : time ? clock(value) : format(value)),
          },
          ...series.map((line, i) => ({
            label: line.label,
            class: line.hatch ? "out" : line.fill ? "area" : undefined, // of its row of the legend
            stroke: line.colour || lineColour(i),
            width: 1.5,
            dash: line.dash,
            scale: line.scale || "y",
            spanGaps: Boolean(line.span),
            fill: line.hatch ? (u) => hatched(u.ctx) : line.fill,
            points: points ? { show: true, size: 4, fill: line.colour } : { show: false },
            paths: line.step ? Plot.paths.stepped({ align: 1 }) : undefined,
            value: (_, value, at, place) => {
              const shown = place == null ? null : latest.current.own[at][place];
              return shown == null ? "" : format(shown);
            },
          })),
        ],
      };
      plot.current = new Plot(options, latest.current.lines, box.current);
      watcher = new ResizeObserver(([entry]) =>
        plot.current?.setSize({
          width: Math.max(Math.floor(entry.contentRect.width), 120),
          height,
        }),
      );
      watcher.observe(box.current);
    }, setError);
    return () => {
      over = true;
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(lines);
  }, [lines, marks]);
  if (error) return html`<p class="dim">${error.message}</p>`;
  if (early) return html`<p class="dim">Not enough data to draw yet.</p>`;
  return html`<div class="chart" ref=${box} role="img" aria-label=${describe}></div>`;
}
