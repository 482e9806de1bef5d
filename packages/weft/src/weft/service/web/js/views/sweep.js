// The jobs of a sweep side by side, the best first: a metric of theirs over steps and over what differs.
import { at, get, query } from "../api.js";
import { chooseMetric, CurveChoices, Curves, Scatter } from "../curves.js";
import { count, duration, number } from "../format.js";
import { html, useMemo } from "../lib.js";
import { link, setQuery } from "../route.js";
import { Choice, Empty, Loading, Panel, State, Trouble, useAsk } from "../ui.js";

const DRAWN = 12;
const AGAIN_MS = 10_000;
const MOST_METRICS = 4; // columns of the table besides the chosen one

export function SweepView({ route }) {
  const app = route.parts[0] || "";
  const asked = route.query;
  const { data, error, loading } = useAsk(
    async (signal) => {
      const [{ jobs }, terms] = await Promise.all([
        get("/jobs" + query({ app, limit: 1000 }), { signal }),
        get(at("sweeps", app, "metrics") + query({ limit: 1, points: 2 }), { signal }),
      ]);
      const ranked = rank(jobs, terms, asked);
      const drawn = ranked.jobs
        .filter((job) => Object.hasOwn(job.metrics, ranked.metric))
        .slice(0, DRAWN);
      const path = (job) => at("jobs", job.id, "metrics") + query({ name: ranked.metric });
      const curves = await Promise.all(drawn.map((job) => get(path(job), { signal })));
      const values = curves.map((curve) => curve.metrics[0]);
      return { ...ranked, drawn, curves: values, trouble: terms.trouble };
    },
    `${app} ${asked.metric} ${asked.goal}`,
    { every: AGAIN_MS },
  );
  if (loading && !data) return html`<${Loading} />`;
  if (!data || !data.jobs.length)
    return html`<${Trouble} error=${error} /><${Empty} title="No such sweep"><a href=${link("jobs")}>All jobs</a><//>`;
  return html`<div class="head"><h1>${app}</h1><span class="dim">${count(data.jobs.length, "job")}</span></div>
    <${Trouble} error=${data.trouble && { message: data.trouble }} />
    <${Metrics} sweep=${data} query=${asked} /><${Table} sweep=${data} />`;
}

function Metrics({ sweep, query: asked }) {
  const { jobs, metric, metrics, goal, names, drawn, curves, best } = sweep;
  const trials = useMemo(
    () =>
      jobs
        .map((job) => ({ ...job, value: job.metrics[metric]?.value }))
        .filter((job) => job.value != null),
    [jobs, metric],
  );
  if (!metric)
    return html`<${Panel} title="Metrics"><p class="dim">None of its jobs has measured anything yet.</p><//>`;
  const lines = drawn
    .map((job, i) => ({ label: `${job === best ? "★ " : ""}${shortName(job.name)}`, ...curves[i] }))
    .filter((line) => line.steps);
  const which = html`<${Choice} label="Best" options=${[
    ["min", "least is best"],
    ["max", "most"],
  ]} value=${goal} choose=${(value) => setQuery({ goal: value })} />`;
  return html`<${Panel} title="Metrics" end=${html`<${CurveChoices} names=${metrics} chosen=${metric} query=${asked}>${which}<//>`}>
    <${Curves} key=${metric} curves=${lines} query=${asked} height=${280} describe=${`${metric} of the jobs over their steps`} />
    ${jobs.length > drawn.length && html`<p class="dim small">The best ${drawn.length} of ${jobs.length} are drawn.</p>`}
    <${Scatter} trials=${trials} names=${names} metric=${metric} /><//>`;
}

function Table({ sweep }) {
  const { jobs, metric, metrics, names, best } = sweep;
  const shown = metric
    ? [metric, ...metrics.filter((name) => name !== metric).slice(0, MOST_METRICS)]
    : [];
  const steps = jobs.some((job) => job.measured?.steps != null);
  const isNumeric = (name) =>
    jobs.every((job) => Number.isFinite(Number(job.parameters[name] ?? 0)));
  const value = (held) => (!held ? "" : held.value == null ? "nan" : number(held.value));
  return html`<${Panel} title="Side by side" flush=${true}><div class="scroll" tabindex="0" role="region" aria-label="Jobs side by side"><table>
      <thead><tr><th scope="col">Job</th><th scope="col">State</th>
      ${names.map((name) => html`<th key=${name} class=${isNumeric(name) ? "num" : null} scope="col">${name}</th>`)}
      ${shown.map(
        (
          name,
        ) => html`<th key=${name} class=${name === metric ? "num" : "num roomy"} scope="col">${name}
      </th>`,
      )}${steps && html`<th class="num" scope="col">Steps</th>`}<th class="num roomy" scope="col">Took</th></tr></thead>
      <tbody>${jobs.map(
        (
          job,
        ) => html`<tr key=${job.id}><td><a href=${link("job", [job.id])} title=${job.name}>${shortName(job.name)}</a>
          ${job === best ? html` <span class="badge running">best</span>` : ""}</td><td><${State} state=${job.state} /></td>
        ${names.map(
          (name) => html`<td key=${name} class=${isNumeric(name) ? "num" : "wrap"}
        title=${job.parameters[name]}>${short(job.parameters[name] ?? "")}</td>`,
        )}
          ${shown.map(
            (name) => html`<td key=${name} class=${name === metric ? "num" : "num roomy"}>
          ${value(job.metrics[name])}</td>`,
          )}${steps && html`<td class="num">${number(job.measured?.steps)}</td>`}
          <td class="num roomy">${job.started && job.ended ? duration(job.ended - job.started) : ""}</td></tr>`,
      )}</tbody></table></div><//>`;
}

/** Its number where the sweep gave it one: what all have in common stands above. */
const shortName = (name) => name.replace(/^.*\.(\d+)$/, "#$1");

/** A drawn number in three figures. */
const short = (value) =>
  String(value).length > 7 && Number.isFinite(Number(value))
    ? String(Number(Number(value).toPrecision(3)))
    : String(value);

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
  const names = [...new Set(jobs.flatMap((job) => Object.keys(job.parameters)))].filter(
    (name) => new Set(jobs.map((job) => JSON.stringify(job.parameters[name]))).size > 1,
  );
  const ranked = [...known, ...jobs.filter((job) => value(job) == null)];
  return { jobs: ranked, metric, metrics, goal, names, best: alike ? null : (known[0] ?? null) };
}
