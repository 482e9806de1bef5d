// The jobs of a sweep side by side: what differs, their losses in one chart, the best marked.
import { at, get, query } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { count, duration, number } from "../format.js";
import { html, useMemo } from "../lib.js";
import { link, setQuery } from "../route.js";
import { Choice, Empty, Loading, Panel, State, Trouble, useAsk } from "../ui.js";

const DRAWN = 12;
const AGAIN_MS = 10_000;

export function SweepView({ route }) {
  const app = route.parts[0] || "";
  const { data, error, loading } = useAsk(
    async (signal) => {
      const { jobs } = await get("/jobs" + query({ app, limit: 1000 }), { signal });
      const histories = await Promise.all(
        jobs
          .slice(0, DRAWN)
          .map((job) => get(at("jobs", job.id, "events") + query({ limit: 1000 }), { signal })),
      );
      return {
        jobs,
        reports: histories.map((history) => history.events.filter((event) => event.report)),
      };
    },
    app,
    { every: AGAIN_MS },
  );
  const comparison = useMemo(() => (data ? compare(data) : null), [data]);
  if (loading && !data) return html`<${Loading} />`;
  if (!data || !data.jobs.length)
    return html`<${Trouble} error=${error} /><${Empty} title="No such sweep"><a href=${link("jobs")}>All jobs</a><//>`;
  const { jobs } = data;
  const known = comparison.last.some((loss) => loss != null);
  const steps = jobs.some((job) => job.measured?.steps != null);
  const log = route.query.scale === "log";
  const isNumeric = (name) =>
    jobs.every((job) => Number.isFinite(Number(job.parameters[name] ?? 0)));
  return html`<div class="head"><h1>${app}</h1><span class="dim">${count(jobs.length, "job")}</span></div>
    <${Panel} title="Loss" end=${comparison.xs.length > 1 ? html`<${Scale} log=${log} />` : null}>${comparison.xs.length > 1 ? html`<${Chart} data=${[comparison.xs, ...comparison.columns]} time=${false} xLabel="steps" height=${280} log=${log} series=${jobs.slice(0, DRAWN).map((job, i) => ({ label: `${i === comparison.best ? "★ " : ""}${shortName(job.name)}`, colour: lineColour(i), span: true }))} describe="Losses of the jobs over their steps" />` : html`<p class="dim">None of its jobs has reported a loss yet.</p>`}
      ${jobs.length > DRAWN && html`<p class="dim small">The first ${DRAWN} of ${jobs.length} are drawn.</p>`}<//>
    <${Panel} title="Side by side" flush=${true}><div class="scroll" tabindex="0" role="region" aria-label="Jobs side by side"><table>
      <thead><tr><th scope="col">Job</th><th scope="col">State</th>${comparison.names.map((name) => html`<th key=${name} class=${isNumeric(name) ? "num" : null} scope="col">${name}</th>`)}${known && html`<th class="num" scope="col">Loss</th>`}${steps && html`<th class="num" scope="col">Steps</th>`}<th class="num" scope="col">Took</th></tr></thead>
      <tbody>${jobs.map(
        (
          job,
          i,
        ) => html`<tr key=${job.id}><td><a href=${link("job", [job.id])} title=${job.name}>${shortName(job.name)}</a>${i === comparison.best ? html` <span class="badge running">best</span>` : ""}</td><td><${State} state=${job.state} /></td>
        ${comparison.names.map((name) => html`<td key=${name} class=${isNumeric(name) ? "num" : "wrap"}>${String(job.parameters[name] ?? "")}</td>`)}${known && html`<td class="num">${number(comparison.last[i])}</td>`}${steps && html`<td class="num">${number(job.measured?.steps)}</td>`}<td class="num">${job.started && job.ended ? duration(job.ended - job.started) : ""}</td></tr>`,
      )}</tbody></table></div><//>`;
}

/** Losses that differ tenfold and more are told apart on a logarithmic axis. */
function Scale({ log }) {
  const choose = (scale) => setQuery({ scale: scale === "log" ? "log" : "" });
  return html`<${Choice} label="Scale of the losses" options=${[
    ["linear", "linear"],
    ["log", "log"],
  ]} value=${log ? "log" : "linear"} choose=${choose} />`;
}

/** Its number where the sweep gave it one: what all have in common stands above. */
const shortName = (name) => name.replace(/^.*\.(\d+)$/, "#$1");

/** Losses over common steps, the last of each, who is best, and what differs. */
export function compare({ jobs, reports }) {
  const points = reports.map((some) =>
    some
      .filter((event) => event.report.loss != null)
      .map((event, i) => [event.report.steps ?? event.report.iteration ?? i, event.report.loss]),
  );
  const xs = [...new Set(points.flat().map(([x]) => x))].sort((a, b) => a - b);
  const columns = points.map((some) => {
    const known = new Map(some);
    return xs.map((x) => known.get(x) ?? null);
  });
  const last = points.map((some) => some.at(-1)?.[1] ?? null);
  const known = last.map((loss, i) => [loss, i]).filter(([loss]) => loss != null);
  const [least, best] = known.reduce((a, b) => (b[0] < a[0] ? b : a), [Infinity, -1]);
  const alike = known.length > 1 && known.every(([loss]) => loss === least);
  const names = [...new Set(jobs.flatMap((job) => Object.keys(job.parameters)))].filter(
    (name) => new Set(jobs.map((job) => JSON.stringify(job.parameters[name]))).size > 1,
  );
  return { xs, columns, last, best: alike ? -1 : best, names };
}
