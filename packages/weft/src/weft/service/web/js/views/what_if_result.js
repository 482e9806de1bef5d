// What came of a what-if: in a sentence and a picture, in numbers, as distributions and as streams.
import { Chart, lineColour } from "../charts.js";
import { count, duration, number, percent, unitFor } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { link } from "../route.js";
import { StreamCanvas } from "../stream.js";
import { rowsOfSpans } from "../stream_canvas.js";
import { Choice, Panel } from "../ui.js";

export function Result({ result }) {
  const labels = Object.keys(result.policies);
  const stuck = labels.filter((label) => result.never?.[label]?.length);
  return html`
    ${
      result.early &&
      html`<div class="note"
    role="status">A first look${result.jobs ? ` at ${count(result.jobs, "job")}` : ""}: the rest is being simulated.</div>`
    }
    <${Picture} result=${result} labels=${labels} />
    <p class="dim">${result.note}</p>
    ${stuck.map((label) => html`<${Never} key=${label} label=${label} never=${result.never[label]} />`)}
    <div class="halves"><${Table} result=${result} labels=${labels} /><${Distributions} result=${result} labels=${labels} /></div>
    <${Streams} result=${result} labels=${labels} />
    ${result.outlook.length > 0 && html`<${Outlook} outlook=${result.outlook} />`}`;
}

// What the picture shows, by what a person asks, and how a sentence says it: of less, of more.
const DRAWN = [
  ["avg_jct_h", "A job takes from submission to end, on average", "end sooner", "end later"],
  ["avg_end_h", "A job ends in, on average", "end sooner", "end later"],
  ["avg_queue_h", "A job waits, on average", "wait less", "wait longer"],
  ["avg_start_h", "A job starts in, on average", "start sooner", "start later"],
  ["p99_jct_h", "99 of 100 jobs end within"],
  ["makespan_h", "All jobs take, first submission to last end"],
  [
    "worst_ftf",
    "The job treated worst takes, as a multiple of its time with an equal part of the cluster",
  ],
];
const DIFFERS = 0.005;

/** By how much a side differs from the first: -0.2 is a fifth less. */
const changeOf = ([was, is]) => (was ? is / was - 1 : 0);

/** The result in a sentence or two, or why there is none: averages of a few jobs say nothing. */
export function inWords(rows, label, outlook) {
  const seen = outlook.filter((job) => job.start?.p50 != null && job.start_then?.p50 != null);
  if (2 * seen.length < outlook.length)
    return `Too little is simulated to compare: ${seen.length} of ${count(outlook.length, "waiting job")} start in it.`;
  const parts = rows
    .filter(({ values, less }) => less && Math.abs(changeOf(values)) >= DIFFERS)
    .map(({ values, less, more }) => {
      const part = changeOf(values);
      return `${part < 0 ? less : more} by ${percent(Math.abs(part))}`;
    });
  return parts.length
    ? `With ${label}, jobs ${parts.join(" and ")}, on average.`
    : `With ${label}, jobs start and end as they do now, on average.`;
}

/** Both sides as bars, for what matters most. */
function Picture({ result, labels }) {
  const rows = DRAWN.map(([name, text, less, more]) => {
    const values = labels.map((label) => valueOf(result, name, label));
    const unit = result.metrics.find((metric) => metric.name === name)?.unit;
    return { name, text, values, less, more, unit: name.endsWith("_h") ? "hours" : unit };
  }).filter(({ values }) => values.length > 1 && values.every((value) => value != null));
  if (!rows.length) return null;
  const bar = ({ values, unit }, i) =>
    html`<div key=${i} class="side"><i style=${{ width: `${(100 * values[i]) / Math.max(...values, 1e-9)}%`, background: lineColour(i) }}></i>
      <span>${write(values[i], unit)}</span></div>`;
  const figure = (row) =>
    html`<figure key=${row.name} role="img"
      aria-label=${`${row.text}: ${labels.map((label, i) => `${write(row.values[i], row.unit)} with ${label}`).join(", ")}`}>
      <figcaption>${row.text}</figcaption>${labels.map((_, i) => bar(row, i))}</figure>`;
  return html`<${Panel} title="In short">
    ${labels.length === 2 && html`<p class="when">${inWords(rows, labels[1], result.outlook)}</p>`}
    <div class="legend">${labels.map(
      (label, i) => html`<span key=${label}>
    <span class="key" style=${{ background: lineColour(i) }}></span>${label}${i || result.file ? "" : ", as it is"}</span>`,
    )}</div>
    <div class="multiples sides">${rows.map(figure)}</div><//>`;
}

/** Jobs that a side leaves waiting forever, by reason. */
function Never({ label, never }) {
  const all = never.reduce((sum, group) => sum + group.count, 0);
  return html`<${Panel} title=${`${label}: never starts (${all})`}><ul>${never.map(
    (group) => html`<li key=${group.because}>${number(group.count)}, because ${group.because}:
      ${group.jobs.map((job, i) => html`${i ? ", " : " "}<a href=${link("job", [job])}>${job}</a>`)}
      ${group.count > group.jobs.length ? " …" : ""}</li>`,
  )}</ul><//>`;
}

const AHEAD = [
  { name: "avg_start_h", heading: "mean start in", unit: "hours", better: "less" },
  { name: "avg_end_h", heading: "mean end in", unit: "hours", better: "less" },
];

function write(value, unit) {
  if (value == null) return "–";
  return unit === "hours"
    ? duration(value * 3600)
    : unit === "percent"
      ? percent(value)
      : number(value);
}

/** A number of one side; where no job ends there is nothing to average. */
const valueOf = (result, name, label) =>
  result.never?.[label]?.length && !result.sides[label]?.jct_h.length
    ? null
    : result.policies[label][name];

// Said where the word stands first.
const WORDS = [
  ["JCT", "Job completion time: from submission to end."],
  [
    "FTF",
    "Finish-time fairness: a job's completion time over what it would have been with an equal part of the cluster.",
  ],
];

function explain(rows) {
  const texts = new Map();
  for (const [word, text] of WORDS) {
    const first = rows.find(({ heading }) => heading.includes(word));
    if (first) texts.set(first, text);
  }
  return texts;
}

function Table({ result, labels }) {
  const rows = [...result.metrics, ...AHEAD].filter((metric) =>
    labels.some((label) => result.policies[label][metric.name] != null),
  );
  const [first] = labels;
  const against = (row, label) => {
    const [was, is] = [valueOf(result, row.name, first), valueOf(result, row.name, label)];
    if (label === first || was == null || is == null || was === 0 || was === is) return null;
    const part = is / was - 1,
      better = row.better === "more" ? part > 0 : part < 0;
    if (Math.abs(part) < 0.0005) return null;
    return html` <span class="small ${better ? "better" : "worse"}">${part > 0 ? "+" : "−"}${percent(Math.abs(part))}</span>`;
  };
  const texts = explain(rows);
  const heads = labels.map(
    (label, i) =>
      html`<th key=${label} class="num" scope="col"><span class="key" style=${{ background: lineColour(i) }}></span>${label}</th>`,
  );
  const cell = (row, label) =>
    html`<td key=${label} class="num nowrap">${write(valueOf(result, row.name, label), row.unit)}${against(row, label)}</td>`;
  const line = (row) =>
    html`<tr key=${row.name}><td>${row.heading}${row.help && html`<div class="dim small">${row.help}</div>`}
      ${texts.has(row) && html`<div class="small">${texts.get(row)}</div>`}</td>${labels.map((label) => cell(row, label))}</tr>`;
  return html`<${Panel} title="Numbers" flush=${true}><div class="scroll" tabindex="0" role="region" aria-label="Numbers side by side"><table>
    <thead><tr><th scope="col">Metric</th>${heads}</tr></thead>
    <tbody>${rows.map(line)}</tbody></table></div><//>`;
}

function Distributions({ result, labels }) {
  const [what, setWhat] = useState("jct_h");
  const [data, unit] = useMemo(() => {
    const lists = labels.map((label) => result.sides[label]?.[what] || []);
    const [times, unit] = unitFor(Math.max(0, ...lists.map((list) => list.at(-1) ?? 0)));
    return [cdf(lists.map((list) => list.map((hours) => hours * times))), unit];
  }, [result, what]);
  return html`<${Panel} title="Distributions" end=${html`<${Choice} label="Of what" value=${what} options=${[
    ["jct_h", "Completion"],
    ["wait_h", "Waiting"],
  ]} choose=${setWhat} />`}>
    ${
      data[0].length > 1
        ? html`<${Chart} key=${what} data=${data}
          series=${labels.map((label, i) => ({ label, colour: lineColour(i), span: true }))} time=${false}
            yLabel="part of the jobs" xLabel=${`${unit} ${what === "jct_h" ? "to completion" : "of waiting"}`} height=${280}
              format=${(value) => number(value, 2)} range=${[0, 1]}
                describe=${`Part of the jobs done within so many ${unit}, for ${labels.join(" and ")}`} />`
        : html`<p class="dim">The result has no data on single jobs.</p>`
    }<//>`;
}

/** Several sorted lists as columns over their common axis: the part that is no larger. */
function cdf(lists) {
  const xs = [...new Set(lists.flat())].sort((a, b) => a - b);
  return [
    xs,
    ...lists.map((list) => {
      let i = 0;
      return xs.map((x) => {
        while (i < list.length && list[i] <= x) i += 1;
        return list.length ? i / list.length : null;
      });
    }),
  ];
}

function Streams({ result, labels }) {
  const drawn = labels.filter((label) => result.sides[label]?.spans.length);
  const layout = useMemo(
    () => rowsOfSpans(drawn.flatMap((label) => result.sides[label].spans)),
    [result],
  );
  if (!drawn.length)
    return html`<${Panel} title="Streams"><p class="dim">${result.file ? "The file holds no streams: " : "There are no streams: "}
      they are kept of runs on at most 128 GPUs with at most 4,000 spans${result.file && ", by weft compare … --json --per-job with one seed"}.</p><//>`;
  const end = Math.max(
    ...drawn.flatMap((label) => result.sides[label].spans.map((span) => span.end)),
  );
  return html`<div class="halves">${drawn.map(
    (label) => html`<${Panel} key=${label} title=${label}>
    <${StreamCanvas} layout=${layout} spans=${result.sides[label].spans} since=${0} until=${end} now=${end} zero=${0}
    tallest=${360} open=${!result.file} /><//>`,
  )}</div>`;
}

function Outlook({ outlook }) {
  const middle = (start) => (start ? duration(start.p50) : "–");
  return html`<${Panel} title="Jobs" flush=${true}><div class="scroll events" tabindex="0" role="region" aria-label="When jobs start and end"><table>
    <thead><tr><th scope="col">Job</th><th class="num" scope="col">Starts in</th>
    <th class="num" scope="col">if so</th><th class="num roomy" scope="col">Ends in</th>
    <th class="num roomy" scope="col">if so</th></tr></thead>
    <tbody>${outlook.slice(0, 500).map(
      (job) => html`<tr key=${job.id}>
    <td class="wrap"><a href=${link("job", [job.id])}><bdi>${job.name}</bdi></a></td><td class="num">${middle(job.start)}</td>
    <td class="num">${middle(job.start_then)}</td><td class="num roomy">${middle(job.end)}</td>
    <td class="num roomy">${middle(job.end_then)}</td></tr>`,
    )}</tbody></table></div><//>`;
}
