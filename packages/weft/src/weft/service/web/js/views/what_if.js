// The same jobs with something different: another policy, quota or machine, side by side with how it is.
import { get, streamLines } from "../api.js";
import { percent } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { useStore } from "../store.js";
import { Bar, Choice, Empty, Field, Panel, Trouble, useAsk } from "../ui.js";
import { Result } from "./what_if_result.js";

const FIRST_LOOK_S = 3; // of CPU time

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

const SAYS = {
  history: "Simulates the log's jobs as they were scheduled and with the change.",
  now: "Simulates all running and waiting jobs to their end, both ways.",
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

export function WhatIfView({ route, me }) {
  const store = useStore();
  const policies = useAsk((signal) => get("/policies", { signal }), "policies");
  const [form, setForm] = useState({
    ...FRESH,
    start: me.everywhere ? "history" : "now",
    policy: route.query.policy || "",
  });
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
    const { signal } = abort.current;
    try {
      const body = bodyOf(form);
      // What a few seconds can say is shown while the rest is simulated.
      for (const cpu_s of body.cpu_s ? [body.cpu_s] : [FIRST_LOOK_S, undefined]) {
        setProgress({});
        let over = true;
        for await (const line of streamLines("/what-if/stream", { ...body, cpu_s }, { signal })) {
          const { progress: part, problem, result: outcome } = line;
          if (part) setProgress((was) => ({ ...was, [part.label]: part.part }));
          if (problem) setError(Object.assign(new Error(problem.error), { hint: problem.hint }));
          if (!outcome) continue;
          over = outcome.complete || cpu_s !== FIRST_LOOK_S;
          setResult({ ...outcome, early: !over, metrics: line.metrics, sides: line.sides });
        }
        if (over) break;
      }
    } catch (problem) {
      if (problem.name !== "AbortError") setError(problem);
    }
    setProgress(null);
    setResult((was) => was && { ...was, early: false });
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
          ${SAYS[form.start]}</span></div>
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
          <${Field} label="CPU seconds to spend"><input type="number" min="1" max="100" placeholder="100"
          value=${form.cpu} onInput=${set("cpu")} /><//>
          <datalist id="machines">${machinesLike(store).map((machine) => html`<option key=${machine} value=${machine} />`)}</datalist>
          <datalist id="limits">${tenantsOf(store).map((tenant) => html`<option key=${tenant} value=${`${tenant}=8`} />`)}</datalist>
        </div>
        <div class="row"><button class="main" disabled=${Boolean(progress) || !changed}>${progress ? "Simulating …" : "Simulate both"}</button>
          ${progress && html`<button type="button" onClick=${() => abort.current.abort()}>Stop</button>`}
          <label class="button">Open a result of <code>weft compare</code>
          <input class="visually-hidden" type="file" accept=".json" onChange=${open} /></label></div>
        ${progress && html`<${Running} progress=${progress} />`}
        <${Trouble} error=${error} />
      </form><//>
    ${result && html`<${Result} result=${result} />`}
    ${
      !result &&
      !progress &&
      html`<${Empty} title="Nothing has been simulated yet">
        Choose what to change; both results appear here, as a picture, as numbers and as streams.<//>`
    }`;
}

/** How far the simulations are. */
const Running = ({ progress }) =>
  html`<div class="stack" role="status" aria-label="Progress">${Object.entries(progress).map(
    ([label, part]) =>
      html`<div key=${label}><div class="small">${label} · ${percent(part)}</div>
        <${Bar} part=${part} label=${`${label}: ${percent(part)}`} /></div>`,
  )}${Object.keys(progress).length === 0 && html`<p class="dim">It waits for its turn to be simulated.</p>`}</div>`;

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
