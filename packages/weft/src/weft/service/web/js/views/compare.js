// Several jobs side by side, those of a sweep or any that someone chose: a metric of theirs as curves and over what
// differs, and what each was given beside what it came to. The address holds all of it.
import { at, get, query } from "../api.js";
import { lineColour } from "../charts.js";
import { chooseMetric, CurveChoices, Curves, MOST_COMPARED, Scatter } from "../curves.js";
import { count, duration, gpuHours, number } from "../format.js";
import { html, useMemo } from "../lib.js";
import { tellApart } from "../job_list.js";
import { link, setQuery } from "../route.js";
import { csvOf, save } from "../save.js";
import { clusterNow } from "../store.js";
import { Choice, Empty, Loading, Panel, State, Trouble, useAsk, Words } from "../ui.js";

const DRAWN = 12; // of a sweep; of chosen jobs all
const AGAIN_MS = 10_000;
const MOST_METRICS = 4; // columns of the table besides the chosen one

/** The jobs of a sweep, the best first. */
export function SweepView({ route }) {
  const app = route.parts[0] || "";
  const ask = async (options) => {
    const [{ jobs }, terms] = await Promise.all([
      get("/jobs" + query({ app, limit: 1000 }), options),
      get(at("sweeps", app, "metrics") + query({ limit: 1, points: 2 }), options),
    ]);
    return { jobs, terms, labels: new Map(jobs.map((job) => [job.id, shortName(job.name)])) };
  };
  return html`<${Runs} title=${app} name=${app} asked=${route.query} ask=${ask} drawn=${DRAWN} none="No such sweep" />`;
}

/** The jobs that the address names. */
export function CompareView({ route }) {
  const ids = (route.query.jobs || "").split(",").filter(Boolean).slice(0, MOST_COMPARED);
  const ask = async (options) => {
    const asked = ids.map((id) => get(at("jobs", id), options));
    const jobs = await Promise.all(asked);
    const apart = tellApart(jobs);
    const label = (job) => [job.name, apart.get(job.id)].filter(Boolean).join(" · ");
    return { jobs, terms: {}, labels: new Map(jobs.map((job) => [job.id, label(job)])) };
  };
  const drop = (job) => setQuery({ jobs: ids.filter((id) => id !== job.id).join(",") });
  return html`<${Runs} title="Compare" name=${ids.join(" ")} asked=${route.query} ask=${ask} drawn=${MOST_COMPARED} drop=${drop}
    none="No jobs to compare" />`;
}

function Runs({ title, name, asked, ask, drawn, drop, none }) {
  const { data, error, loading } = useAsk(
    async (signal) => {
      const { jobs, terms, labels } = await ask({ signal });
      const ranked = rank(jobs, terms, asked);
      const measured = ranked.jobs.filter((job) => Object.hasOwn(job.metrics, ranked.metric));
      const path = (job) => at("jobs", job.id, "metrics") + query({ name: ranked.metric });
      const of = async (job) => {
        const { metrics } = await get(path(job), { signal });
        return { job, label: labels.get(job.id), began: job.started, ...metrics[0] };
      };
      const curves = await Promise.all(measured.slice(0, drawn).map(of));
      const trouble = terms.trouble && { message: terms.trouble };
      return { ...ranked, labels, curves: curves.filter((curve) => curve.steps), trouble };
    },
    `${name} ${asked.metric} ${asked.goal}`,
    { every: AGAIN_MS },
  );
  if (loading && !data) return html`<${Loading} />`;
  if (!data?.jobs.length)
    return html`<${Trouble} error=${error} />
      <${Empty} title=${none}>Choose some in the <a href=${link("jobs")}>list of jobs</a>.<//>`;
  return html`<div class="head"><h1>${title}</h1><span class="dim">${count(data.jobs.length, "job")}</span></div>
    <${Trouble} error=${data.trouble || error} />
    <${Metrics} runs=${data} asked=${asked} /><${Table} runs=${data} drop=${data.jobs.length > 1 && drop} />`;
}

const GOALS = [
  ["min", "least is best"],
  ["max", "most"],
];

function Metrics({ runs, asked }) {
  const { jobs, metric, metrics, goal, names, curves, best } = runs;
  const trials = useMemo(
    () =>
      jobs
        .map((job) => ({ ...job, value: job.metrics[metric]?.value }))
        .filter((job) => job.value != null),
    [jobs, metric],
  );
  if (!metric)
    return html`<${Panel} title="Metrics"><p class="dim">None of these jobs has measured anything of itself. A program that
      prints numbers is enough: name them in its job file, such as <code>metrics: [loss, val_*]</code>.</p><//>`;
  const lines = curves.map((curve) => ({
    ...curve,
    label: `${curve.job === best ? "★ " : ""}${curve.label}`,
  }));
  const which = html`<${Choice} label="Best" options=${GOALS} value=${goal} choose=${(value) => setQuery({ goal: value })} />`;
  const choices = html`<${CurveChoices} names=${metrics} chosen=${metric} query=${asked}>${which}<//>`;
  return html`<${Panel} title="Metrics" end=${choices}>
    <${Curves} key=${metric} curves=${lines} metric=${metric} query=${asked} height=${280}
    describe=${`${metric} of the jobs over their ${asked.over || "steps"}`} />
    ${trials.length > curves.length && html`<p class="dim small">The best ${curves.length} of ${trials.length} are drawn.</p>`}
    <${Scatter} trials=${trials} names=${names} metric=${metric} /><//>`;
}

/** Columns of the table: heading, value as a number or text, how it is written, and where there is no room for it. */
function columnsOf({ jobs, metric, metrics, names }) {
  const numeric = (name) => jobs.every((job) => Number.isFinite(Number(given(job)[name] ?? 0)));
  const shown = metric
    ? [metric, ...metrics.filter((each) => each !== metric).slice(0, MOST_METRICS)]
    : [];
  return [
    ...names.map((name) => ({
      label: name,
      value: (job) => given(job)[name] ?? "",
      write: short,
      look: numeric(name) ? "num" : "wrap",
    })),
    ...shown.map((name) => ({
      label: name,
      value: (job) => (Object.hasOwn(job.metrics, name) ? (job.metrics[name].value ?? "nan") : ""),
      write: (value) => (Number.isFinite(value) ? number(value) : value),
      look: name === metric ? "num" : "num roomy",
    })),
    {
      label: "Steps",
      value: (job) => job.measured?.steps ?? "",
      write: (value) => (value === "" ? "" : number(value)),
      look: "num roomy",
    },
    { label: "Took", value: took, write: (value) => duration(value || null), look: "num roomy" },
    { label: "Used", value: (job) => job.gpu_seconds, write: gpuHours, look: "num roomy" },
  ].filter(({ value }) => jobs.some((job) => value(job) !== ""));
}

const took = (job) => (job.started ? Math.max(0, (job.ended ?? clusterNow()) - job.started) : "");

function Table({ runs, drop }) {
  const { jobs, best, curves, labels } = runs;
  const columns = columnsOf(runs);
  const line = new Map(curves.map(({ job }, i) => [job, i]));
  const file = () => {
    const rows = jobs.map((job) => [
      job.id,
      job.name,
      job.state,
      ...columns.map(({ value }) => value(job)),
    ]);
    const heads = ["job", "name", "state", ...columns.map(({ label }) => label)];
    save("jobs.csv", csvOf([heads, ...rows]), "text/csv");
  };
  const row = (job) =>
    html`<tr key=${job.id}><td>${line.has(job) && html`<span class="key" style=${{ background: lineColour(line.get(job)) }}></span>`}
      <a href=${link("job", [job.id])} title=${job.name}>${labels.get(job.id)}</a>
      ${job === best && html` <span class="badge running">best</span>`}</td>
      <td><${State} state=${job.state} />
        ${job.state === "failed" && job.reason && html`<div class="reason" title=${job.reason}><${Words} text=${job.reason} /></div>`}</td>
      ${columns.map(({ label, value, write, look }) => html`<td key=${label} class=${look} title=${value(job)}>${write(value(job))}</td>`)}
      ${drop && html`<td class="num"><button class="quiet" aria-label=${`Leave out ${job.name}`} onClick=${() => drop(job)}>✕</button></td>`}</tr>`;
  const end = html`<button onClick=${file}>Table as CSV</button>`;
  return html`<${Panel} title="Side by side" flush=${true} end=${end}>
    <div class="scroll" tabindex="0" role="region" aria-label="Jobs side by side"><table>
      <thead><tr><th scope="col">Job</th><th scope="col">State</th>
        ${columns.map(({ label, look }) => html`<th key=${label} class=${look} scope="col">${label}</th>`)}
        ${drop && html`<th scope="col"><span class="visually-hidden">Leave out</span></th>`}</tr></thead>
      <tbody>${jobs.map(row)}</tbody></table></div><//>`;
}

/** Its number where the sweep gave it one: what all have in common stands above. */
const shortName = (name) => name.replace(/^.*\.(\d+)$/, "#$1");

/** A drawn number in three figures. */
const short = (value) =>
  String(value).length > 7 && Number.isFinite(Number(value))
    ? String(Number(Number(value).toPrecision(3)))
    : String(value);

/** Values of its sweep, else what its command was given. */
const given = (job) =>
  Object.keys(job.parameters).length ? job.parameters : (job.arguments ?? {});

/** Jobs, the best first, by the metric that is asked for, else that its search goes by; and what differs. */
export function rank(jobs, terms, asked) {
  const metrics = [...new Set(jobs.flatMap((job) => Object.keys(job.metrics)))];
  const metric = chooseMetric(metrics, asked.metric, terms.metric);
  const own = metric === terms.metric && terms.goal;
  const goal = ["min", "max"].includes(asked.goal) ? asked.goal : own || "min";
  const value = (job) => job.metrics[metric]?.value ?? null;
  const better = (a, b) => (goal === "min" ? a - b : b - a);
  const known = jobs.filter((job) => value(job) != null);
  known.sort((a, b) => better(value(a), value(b)));
  const alike = known.length > 1 && value(known[0]) === value(known.at(-1));
  const names = [...new Set(jobs.flatMap((job) => Object.keys(given(job))))].filter(
    (name) => new Set(jobs.map((job) => JSON.stringify(given(job)[name]))).size > 1,
  );
  const ranked = [...known, ...jobs.filter((job) => value(job) == null)];
  return { jobs: ranked, metric, metrics, goal, names, best: alike ? null : (known[0] ?? null) };
}
