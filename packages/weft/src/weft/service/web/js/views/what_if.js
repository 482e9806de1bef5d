// The same jobs with something different: another policy, quota or machine, side by side with how it is.
import { get, streamLines } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { duration, number, percent } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { link } from "../route.js";
import { useStore } from "../store.js";
import { StreamCanvas } from "../stream.js";
import { rowsOfSpans } from "../stream_canvas.js";
import { Bar, Choice, Empty, Field, Panel, Trouble, useAsk } from "../ui.js";

const FRESH = {
  start: "history",
  hours: "",
  cpu: "",
  policy: "",
  nodes: "",
  limits: "",
  weights: "",
  parameters: "",
};

/** One and four more machines of each sort there is. */
function machinesLike(store) {
  const sorts = new Set([...store.nodes.values()].map((node) => `${node.gpus}:${node.kind}`));
  return [...sorts].flatMap((sort) => [`1x${sort}`, `4x${sort}`]);
}

function tenantsOf(store) {
  return [...new Set([...store.jobs.values()].map((job) => job.tenant))].sort();
}

/** `vision=8, nlp=4` as an object; throws a sentence for what cannot be read. */
function pairs(text, what) {
  const values = {};
  for (const pair of text.split(/[\s,]+/).filter(Boolean)) {
    const [name, value] = pair.split("=");
    if (!name || !Number.isFinite(Number(value)) || value === "")
      throw Object.assign(new Error(`${what}: ${pair} is not TENANT=NUMBER`), {
        hint: "such as vision=8, nlp=4",
      });
    values[name] = Number(value);
  }
  return values;
}

function bodyOf(form) {
  const body = { start: form.start };
  if (form.policy) body.policy = [form.policy, form.parameters.trim()].filter(Boolean).join(":");
  if (form.nodes.trim()) body.nodes = form.nodes.trim();
  if (form.limits.trim()) body.limits = pairs(form.limits, "limits");
  if (form.weights.trim()) body.weights = pairs(form.weights, "weights");
  if (form.start === "history" && form.hours) body.hours = Number(form.hours);
  if (form.cpu) body.cpu_s = Number(form.cpu);
  return body;
}

export function WhatIfView({ me }) {
  const store = useStore();
  const policies = useAsk((signal) => get("/policies", { signal }), "policies");
  const [form, setForm] = useState({ ...FRESH, start: me.everywhere ? "history" : "now" });
  const [progress, setProgress] = useState(null);
  const [error, setError] = useState(null);
  const [result, setResult] = useState(null);
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const set = (key) => (event) => setForm((was) => ({ ...was, [key]: event.target.value }));
  const run = async (event) => {
    event.preventDefault();
    setError(null);
    setResult(null);
    abort.current = new AbortController();
    try {
      const body = bodyOf(form);
      setProgress({});
      for await (const line of streamLines("/what-if/stream", body, {
        signal: abort.current.signal,
      })) {
        if (line.progress)
          setProgress((was) => ({ ...was, [line.progress.label]: line.progress.part }));
        if (line.problem)
          setError(Object.assign(new Error(line.problem.error), { hint: line.problem.hint }));
        if (line.result) setResult({ ...line.result, metrics: line.metrics, sides: line.sides });
      }
    } catch (problem) {
      if (problem.name !== "AbortError") setError(problem);
    }
    setProgress(null);
  };
  const open = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    setError(null);
    try {
      setResult(readResult(JSON.parse(await file.text()), file.name));
    } catch (problem) {
      setError(
        Object.assign(new Error(`${file.name} is not a result of weft compare`), {
          hint: `${problem.message}; \`weft compare … --json --per-job > result.json\` writes one`,
        }),
      );
    }
  };
  const changed = form.policy || form.nodes || form.limits || form.weights;
  return html`
    <${Panel} title="What if" level=1>
      <form class="form" onSubmit=${run}>
        <div class="row"><${Choice} label="From" value=${form.start}
        options=${[...(me.everywhere ? [["history", "Replay the past"]] : []), ["now", "From now on"]]}
          choose=${(start) => setForm((was) => ({ ...was, start }))} />
          <span class="dim small">
          ${form.start === "history" ? "Simulates the log's jobs as they were scheduled and with the change." : "Simulates all running and waiting jobs to their end, both ways."}</span></div>
        <div class="fields">
          <${Field} label="Another policy"><select value=${form.policy} onChange=${set("policy")}>
          <option value="">${store.cluster.policy}, as it is</option>
            ${(policies.data?.policies || []).map(
              (policy) => html`<option key=${policy.name} value=${policy.name}
            title=${policy.summary}>${policy.name}</option>`,
            )}</select><//>
          <${Field} label="with parameters"><input placeholder="wake_s=30,share=true" disabled=${!form.policy}
          value=${form.parameters} onInput=${set("parameters")} /><//>
          <${Field} label="More machines"><input list="machines" placeholder="2x8:a100" value=${form.nodes} onInput=${set("nodes")} /><//>
          <${Field} label="Other limits of tenants"><input list="limits" placeholder="vision=8, nlp=4"
          value=${form.limits} onInput=${set("limits")} /><//>
          <${Field} label="Other weights of tenants"><input placeholder="vision=2" value=${form.weights} onInput=${set("weights")} /><//>
          ${
            form.start === "history" &&
            html`<${Field} label="Only the last hours">
          <input type="number" min="0.1" step="any" placeholder="all" value=${form.hours} onInput=${set("hours")} /><//>`
          }
          <${Field} label="CPU seconds to spend"><input type="number" min="1" max="100" placeholder="20"
          value=${form.cpu} onInput=${set("cpu")} /><//>
          <datalist id="machines">${machinesLike(store).map((machine) => html`<option key=${machine} value=${machine} />`)}</datalist>
          <datalist id="limits">${tenantsOf(store).map((tenant) => html`<option key=${tenant} value=${`${tenant}=8`} />`)}</datalist>
        </div>
        <div class="row"><button class="main" disabled=${Boolean(progress) || !changed}>${progress ? "Simulating …" : "Simulate both"}</button>
          ${progress && html`<button type="button" onClick=${() => abort.current.abort()}>Stop</button>`}
          <label class="button">Open a result of <code>weft compare</code>
          <input class="visually-hidden" type="file" accept=".json" onChange=${open} /></label></div>
        ${
          progress &&
          html`<div class="stack" role="status" aria-label="Progress">
        ${
          Object.keys(progress).length
            ? Object.entries(progress).map(
                ([label, part]) => html`<div key=${label}>
        <div class="small">${label} · ${percent(part)}</div>
        <${Bar} part=${part} label=${`${label}: ${percent(part)}`} />
        </div>`,
              )
            : html`<p class="dim">It waits for its turn to be simulated.</p>`
        }</div>`
        }
        <${Trouble} error=${error} />
      </form><//>
    ${
      result
        ? html`<${Result} result=${result} />`
        : !progress &&
          html`<${Empty}
    title="Nothing has been simulated yet">Choose what to change; both results appear here, as a table, as distributions and as streams.<//>`
    }`;
}

/** What `weft compare --json` wrote, as this view shows it. */
function readResult(written, name) {
  if (!written || typeof written.policies !== "object") throw new Error("it has no policies");
  const sides = {};
  for (const [label, numbers] of Object.entries(written.policies)) {
    const rows = numbers.per_job || [];
    const hours = (a, b) =>
      rows
        .filter((row) => row[a] != null && row[b] != null)
        .map((row) => (row[b] - row[a]) / 3600)
        .sort((x, y) => x - y);
    sides[label] = {
      jct_h: hours("submit_s", "end_s"),
      wait_h: hours("submit_s", "start_s"),
      spans: (numbers.timeline || []).map((bar) => spanOf(bar, rows)),
      begun: 0,
    };
  }
  const names = [
    ...new Set(
      Object.values(written.policies).flatMap((numbers) =>
        Object.keys(numbers).filter((key) => typeof numbers[key] === "number"),
      ),
    ),
  ];
  const metrics = names.map((key) => ({
    name: key,
    heading: key.replace(/_h$/, " (h)").replaceAll("_", " "),
    unit: "plain",
    better: /util|jain|finished|goodput/.test(key) ? "more" : "less",
  }));
  return {
    policies: written.policies,
    jobs: Object.values(written.policies)[0]?.jobs,
    hours: 0,
    note: `${name}: ${written.workload} on ${written.cluster}`,
    file: true,
    outlook: [],
    metrics,
    sides,
  };
}

/** A bar of a result, from the first submission on. */
function spanOf(bar, rows) {
  const zero = rows[0]?.submit_s ?? 0;
  return {
    job: bar.job,
    name: bar.job,
    tenant: "",
    attempt: 1,
    on: [{ node: bar.node, gpus: [bar.gpu] }],
    share: 1,
    start: bar.start_s - zero,
    end: bar.end_s - zero,
    how: "",
  };
}

function Result({ result }) {
  const labels = Object.keys(result.policies);
  return html`<p class="dim">${result.note}</p>
    ${labels
      .filter((label) => result.never?.[label]?.length)
      .map(
        (label) => html`<${Never} key=${label}
    label=${label} never=${result.never[label]} />`,
      )}
    <div class="halves"><${Table} result=${result} labels=${labels} /><${Distributions} result=${result} labels=${labels} /></div>
    <${Streams} result=${result} labels=${labels} />
    ${result.outlook.length > 0 && html`<${Outlook} outlook=${result.outlook} />`}`;
}

/** Jobs that a side leaves waiting forever, by reason. */
function Never({ label, never }) {
  const count = never.reduce((sum, group) => sum + group.count, 0);
  return html`<${Panel} title=${`${label}: never starts (${count})`}><ul>${never.map(
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

function Table({ result, labels }) {
  const rows = [...result.metrics, ...AHEAD].filter((metric) =>
    labels.some((label) => result.policies[label][metric.name] != null),
  );
  const [first] = labels;
  // Where no job ends there is nothing to average.
  const noneEnds = (label) => result.never?.[label]?.length && !result.sides[label]?.jct_h.length;
  const valueOf = (row, label) => (noneEnds(label) ? null : result.policies[label][row.name]);
  const against = (row, label) => {
    const [was, is] = [valueOf(row, first), valueOf(row, label)];
    if (label === first || was == null || is == null || was === 0 || was === is) return null;
    const part = is / was - 1,
      better = row.better === "more" ? part > 0 : part < 0;
    if (Math.abs(part) < 0.0005) return null;
    return html` <span class="small ${better ? "better" : "worse"}">${part > 0 ? "+" : "−"}${percent(Math.abs(part))}</span>`;
  };
  return html`<${Panel} title="Numbers" flush=${true}><div class="scroll" tabindex="0" role="region" aria-label="Numbers side by side"><table>
    <thead><tr><th scope="col">Metric</th>${labels.map(
      (label, i) => html`<th key=${label} class="num" scope="col">
    <span class="key" style=${{ background: lineColour(i) }}></span>${label}</th>`,
    )}</tr></thead>
    <tbody>${rows.map(
      (row) => html`<tr key=${row.name}><td>${row.heading}
    ${row.help && html`<div class="dim small">${row.help}</div>`}</td>
    ${labels.map(
      (label) => html`<td key=${label} class="num nowrap">${write(valueOf(row, label), row.unit)}
    ${against(row, label)}</td>`,
    )}</tr>`,
    )}</tbody></table></div>
    <p class="dim small lonely">JCT, job completion time: from submission to end. FTF, finish-time fairness: that time over what it would have been with an equal part of the cluster; above 1 a job was worse off.</p><//>`;
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
            xLabel=${`${unit} ${what === "jct_h" ? "to completion" : "of waiting"}`} height=${280}
              format=${(value) => number(value, 2)} range=${[0, 1]}
                describe=${`Part of the jobs done within so many ${unit}, for ${labels.join(" and ")}`} />`
        : html`<p class="dim">The result has no data on single jobs.</p>`
    }<//>`;
}

/** What to multiply hours by, and what they are then, so that the largest is written in few digits. */
export const unitFor = (hours) =>
  hours < 1 / 30 ? [3600, "seconds"] : hours < 2 ? [60, "minutes"] : [1, "hours"];

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
    return html`<${Panel} title="Streams">
      <p class="dim">
      ${result.file ? "The file holds no streams: " : "There are no streams: "}they are kept of runs on at most 128 GPUs with at most 4,000 spans${result.file ? ", by weft compare … --json --per-job with one seed" : ""}.</p><//>`;
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
    <th class="num" scope="col">if so</th><th class="num" scope="col">Ends in</th><th class="num" scope="col">if so</th></tr></thead>
    <tbody>${outlook.slice(0, 500).map(
      (job) => html`<tr key=${job.id}>
    <td class="nowrap"><a href=${link("job", [job.id])}>${job.name}</a></td><td class="num">${middle(job.start)}</td>
    <td class="num">${middle(job.start_then)}</td><td class="num">${middle(job.end)}</td>
    <td class="num">${middle(job.end_then)}</td></tr>`,
    )}</tbody></table></div><//>`;
}
