// Charts by uPlot, which is loaded when the first one is drawn.
import { token } from "./colours.js";
import { clock, number, timeMarks } from "./format.js";
import { html, useEffect, useRef, useState } from "./lib.js";
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
const WHOLE = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]; // of what comes in pieces, such as GPUs
export const lineColour = (i) => LINES[i % LINES.length];
export const lineDash = (i) => (i < LINES.length ? undefined : [6, 4]); // its colour is another's

const fromZero = (_, low, high) => [Math.min(low ?? 0, 0), high > 0 ? high * 1.05 : 1];

export const aboveZero = ([xs, ...columns]) => [
  xs,
  ...columns.map((ys) => ys.map((y) => (y > 0 ? y : null))),
];

/**
 * One chart. `data` is uPlot's: x first, then a column a series; `series` are `{label, step, dash, scale, colour}`.
 * With `whole` the axis has whole numbers alone, with `log` it is logarithmic and leaves out what is not above 0. `time` reads x as seconds since the epoch. `describe` says in words what is drawn.
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
}) {
  const box = useRef(null),
    plot = useRef(null);
  const themed = useTheme();
  const [error, setError] = useState(null);
  const latest = useRef(data);
  if (log) data = aboveZero(data);
  latest.current = data; // more may have come by the time that the chart is loaded
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
      const options = {
        width: Math.max(box.current.clientWidth, 120),
        height,
        padding: [8, 30, 0, 0], // half of the last time,
        legend: {
          live: true,
          markers: { dash: (_, i) => (series[i - 1]?.dash ? "dashed" : "solid") },
        },
        cursor: { y: false, points: { size: 6 } },
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
            ...(whole ? { incrs: WHOLE } : {}),
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
            stroke: line.colour || lineColour(i),
            width: 1.5,
            dash: line.dash,
            scale: line.scale || "y",
            spanGaps: Boolean(line.span),
            fill: line.fill,
            points: { show: false },
            paths: line.step ? Plot.paths.stepped({ align: 1 }) : undefined,
            value: (_, value) => (value == null ? "" : format(value)),
          })),
        ],
      };
      plot.current = new Plot(options, latest.current, box.current);
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
    plot.current?.setData(data);
  }, [data]);
  if (error) return html`<p class="dim">${error.message}</p>`;
  if (early) return html`<p class="dim">Not enough data to draw yet.</p>`;
  return html`<div class="chart" ref=${box} role="img" aria-label=${describe}></div>`;
}
