// Metrics that programs measured of themselves: curves over steps, smoothed, and points over parameters.
import { Chart, lineColour, lineDash } from "./charts.js";
import { number, unitFor } from "./format.js";
import { html, useRef } from "./lib.js";
import { setQuery } from "./route.js";
import { csvOf, pngOf, save, svgOf } from "./save.js";
import { Choice } from "./ui.js";

export const MOST_COMPARED = 24; // jobs in one address
const SMOOTH = [
  ["", "as measured"],
  ["0.6", "smoothed"],
  ["0.9", "more"],
];

/** The moving average of values, of which the last ones count most; gaps stay gaps. */
export function smooth(values, weight) {
  let sum = 0,
    all = 0;
  return values.map((value) => {
    if (value == null || !weight) return value;
    sum = weight * sum + (1 - weight) * value;
    all = weight * all + (1 - weight);
    return sum / all;
  });
}

/** Curves of `{steps, values}` over common steps, as a chart takes them. */
export function overSteps(curves, weight = 0) {
  const known = curves.map(
    ({ steps, values }) => new Map(smooth(values, weight).map((value, i) => [steps[i], value])),
  );
  const xs = [...new Set(known.flatMap((some) => [...some.keys()]))].sort((a, b) => a - b);
  return [xs, ...known.map((some) => xs.map((x) => some.get(x) ?? null))];
}

/** The metric that is shown: what the address names, else what is preferred, else the first. */
export const chooseMetric = (names, asked, preferred) =>
  [asked, preferred].find((name) => names.includes(name)) ?? names[0];

const choice = (label, query, field, options) =>
  html`<${Choice} label=${label} options=${options} value=${query[field] ?? ""} choose=${(value) => setQuery({ [field]: value })} />`;

/** What is drawn and how: which metric, over what, how smooth, on which scale. */
export const CurveChoices = ({ names, chosen, query, children }) =>
  html`<label class="pick"><span class="dim small">metric</span> <select value=${chosen}
    onChange=${(event) => setQuery({ metric: event.target.value })}>
      ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    ${children}
    ${choice("Over", query, "over", [
      ["", "steps"],
      ["time", "time"],
    ])}
    ${choice("Smoothing", query, "smooth", SMOOTH)}
    ${choice("Scale", query, "scale", [
      ["", "linear"],
      ["log", "log"],
    ])}`;

/** Curves with, in place of steps, the time since their job started; and the unit of that. */
function overTime(curves) {
  const since = curves.map(({ at, began, steps }) => steps.map((_, i) => at[i] - began));
  const [times, unit] = unitFor(Math.max(0, ...since.map((all) => all.at(-1) ?? 0)) / 3600);
  const steps = (i) => since[i].map((seconds) => (seconds / 3600) * times);
  return [curves.map((curve, i) => ({ ...curve, steps: steps(i) })), unit];
}

/** Curves `{label, steps, values, at, began}` in one chart, and what it shows as files. */
export function Curves({ curves, metric, query, height, describe }) {
  const box = useRef(null);
  const [drawn, xLabel] = query.over === "time" ? overTime(curves) : [curves, "steps"];
  const data = overSteps(drawn, Number(query.smooth) || 0);
  if (data[0].length < 2) return null;
  const look = { title: metric, xLabel, log: query.scale === "log" };
  const series = curves.map(({ label }, i) => ({
    label,
    colour: lineColour(i),
    dash: lineDash(i),
    span: true,
  }));
  const files = {
    CSV: () => {
      const rows = curves.flatMap((curve) =>
        curve.steps.map((step, i) => [curve.label, metric, step, curve.values[i], curve.at[i]]),
      );
      save(`${metric}.csv`, csvOf([["job", "metric", "step", "value", "at"], ...rows]), "text/csv");
    },
    SVG: () => save(`${metric}.svg`, svgOf(data, series, look), "image/svg+xml"),
    PNG: async () =>
      save(`${metric}.png`, await pngOf(box.current.querySelector("canvas"), series, look)),
  };
  const button = ([name, make]) =>
    html`<button key=${name} class="quiet" aria-label=${`Save the curves as ${name}`} onClick=${make}>${name}</button>`;
  return html`<div ref=${box}><${Chart} data=${data} time=${false} xLabel=${xLabel} height=${height}
    log=${look.log} describe=${describe} series=${series} /></div>
    <div class="row small files"><span class="dim">Save as</span>${Object.entries(files).map(button)}</div>`;
}

const WIDE = 240,
  HIGH = 130,
  EDGE = 8;
const FEWEST = 3; // points; of fewer nothing is seen
const PANELS = 6;

/** Places from 0 to 1 of values on their own scale: by ratio if that is over 50, words side by side. */
export function placesOf(values) {
  const numbers = values.map(Number);
  if (values.some((value, i) => value === "" || value == null || !Number.isFinite(numbers[i]))) {
    const words = [...new Set(values)].sort();
    return values.map((value) => (words.indexOf(value) + 0.5) / words.length);
  }
  const log = Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) > 50;
  const scaled = log ? numbers.map(Math.log) : numbers;
  const least = Math.min(...scaled),
    width = Math.max(...scaled) - least;
  return scaled.map((value) => (width ? (value - least) / width : 0.5));
}

const valueOf = (trial, name) => trial.parameters[name] ?? trial.arguments?.[name];

/** Where trials with which value of a parameter came to; `trials` are `{parameters, value}`, the best first. */
function Points({ trials, name, metric }) {
  const values = trials.map((trial) => valueOf(trial, name));
  const [xs, ys] = [placesOf(values), placesOf(trials.map((trial) => trial.value))];
  const order = [...values.keys()].sort((a, b) => xs[a] - xs[b]);
  const circle = (trial, i) =>
    html`<circle key=${trial.id} class=${i ? null : "best"} r=${i ? 3 : 5} cx=${EDGE + xs[i] * (WIDE - 2 * EDGE)}
      cy=${HIGH - EDGE - ys[i] * (HIGH - 2 * EDGE)}>
      <title>${`${trial.name}: ${name}=${values[i]}, ${metric} ${number(trial.value)}`}</title></circle>`;
  return html`<figure><svg viewBox=${`0 0 ${WIDE} ${HIGH}`} role="img" aria-label=${`${metric} over ${name}`}>${trials.map(circle).reverse()}</svg>
    <figcaption><span>${shown(values[order[0]])}</span><b>${name}</b><span>${shown(values[order.at(-1)])}</span></figcaption></figure>`;
}

/** A figure for each parameter that several trials have. */
export function Scatter({ trials, names, metric }) {
  const figures = names
    .map((name) => [name, trials.filter((trial) => valueOf(trial, name) != null)])
    .filter(([, some]) => some.length >= FEWEST)
    .slice(0, PANELS);
  if (!figures.length) return null;
  const reached = trials.map((trial) => trial.value);
  return html`<div class="scatter">${figures.map(([name, some]) => html`<${Points} key=${name} trials=${some} name=${name} metric=${metric} />`)}</div>
    <p class="dim small">A point per job: the higher, the more ${metric}, from ${number(Math.min(...reached))} to ${number(Math.max(...reached))}.</p>`;
}

const shown = (value) =>
  Number.isFinite(Number(value)) && value !== "" ? number(Number(value)) : value;
