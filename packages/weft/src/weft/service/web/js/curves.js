// Metrics that programs measured of themselves: curves over steps, smoothed, and points over parameters.
import { Chart, lineColour, lineDash } from "./charts.js";
import { number } from "./format.js";
import { html } from "./lib.js";
import { setQuery } from "./route.js";
import { Choice } from "./ui.js";

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

/** What is drawn and how: which metric, how smooth, on which scale. */
export function CurveChoices({ names, chosen, query, children }) {
  return html`<label class="pick"><span class="dim small">metric</span> <select value=${chosen}
    onChange=${(event) => setQuery({ metric: event.target.value })}>
      ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    ${children}
    <${Choice} label="Smoothing" options=${SMOOTH} value=${query.smooth ?? ""} choose=${(weight) => setQuery({ smooth: weight })} />
    <${Choice} label="Scale" options=${[
      ["linear", "linear"],
      ["log", "log"],
    ]} value=${query.scale === "log" ? "log" : "linear"} choose=${(scale) => setQuery({ scale: scale === "log" ? "log" : "" })} />`;
}

/** Curves `{label, steps, values}` in one chart. */
export function Curves({ curves, query, height, describe }) {
  const data = overSteps(curves, Number(query.smooth) || 0);
  if (data[0].length < 2) return null;
  return html`<${Chart} data=${data} time=${false} xLabel="steps" height=${height} log=${query.scale === "log"}
    describe=${describe} series=${curves.map(({ label }, i) => ({ label, colour: lineColour(i), dash: lineDash(i), span: true }))} />`;
}

const WIDE = 240,
  HIGH = 130,
  EDGE = 8;
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

/** For each parameter, where trials with which value of it came to: `{parameters, value}`, the best first. */
export function Scatter({ trials, names, metric }) {
  if (trials.length < 2) return null;
  const reached = trials.map((trial) => trial.value);
  const ys = placesOf(reached);
  const [least, most] = [Math.min(...reached), Math.max(...reached)];
  return html`<div class="scatter">${names.slice(0, PANELS).map((name) => {
    const values = trials.map((trial) => trial.parameters[name] ?? "");
    const xs = placesOf(values);
    const order = [...values.keys()].sort((a, b) => xs[a] - xs[b]);
    const ends = [values[order[0]], values[order.at(-1)]];
    return html`<figure key=${name}><svg viewBox=${`0 0 ${WIDE} ${HIGH}`} role="img" aria-label=${`${metric} over ${name}`}>
      ${trials
        .map(
          (trial, i) => html`<circle key=${trial.id} class=${i ? null : "best"}
      cx=${EDGE + xs[i] * (WIDE - 2 * EDGE)} cy=${HIGH - EDGE - ys[i] * (HIGH - 2 * EDGE)} r=${i ? 3 : 5}>
        <title>${`${trial.name}: ${name}=${values[i]}, ${metric} ${number(trial.value)}`}</title></circle>`,
        )
        .reverse()}</svg>
      <figcaption><span>${shown(ends[0])}</span><b>${name}</b><span>${shown(ends[1])}</span></figcaption></figure>`;
  })}</div><p class="dim small">A point per job: the higher, the more ${metric}, from ${number(least)} to ${number(most)}.</p>`;
}

const shown = (value) =>
  Number.isFinite(Number(value)) && value !== "" ? number(Number(value)) : value;
