// What a job's program measured of itself: one metric over its steps, and all of them in a table.
import { at, get } from "../api.js";
import { chooseMetric, CurveChoices, Curves } from "../curves.js";
import { count, number } from "../format.js";
import { html } from "../lib.js";
import { useRoute } from "../route.js";
import { Panel, Trouble, useAsk } from "../ui.js";

const AGAIN_MS = 10_000;

/** All metrics of a job with their curves, asked for again while it runs. */
export function useCurves(job) {
  const asked = useAsk(
    (signal) => (job ? get(at("jobs", job.id, "metrics"), { signal }) : null),
    `${job?.id} ${job?.state} ${job?.attempt}`,
    { every: job?.state === "running" ? AGAIN_MS : 0 },
  );
  return { ...asked, metrics: asked.data?.metrics ?? [] };
}

export function JobMetrics({ job, curves }) {
  const { query } = useRoute();
  const { metrics, data, error } = curves;
  if (!metrics.length) return html`<${Trouble} error=${error} />`;
  const names = metrics.map((metric) => metric.name);
  const chosen = chooseMetric(names, query.metric);
  const curve = metrics.find((metric) => metric.name === chosen);
  const drawn = [{ label: chosen, began: job.started, ...curve }];
  const row = (metric) =>
    html`<tr key=${metric.name}><td class="wrap">${metric.name}</td>
      <td class="num">${metric.value == null ? "nan" : number(metric.value)}</td><td class="num">${number(metric.least)}</td>
      <td class="num">${number(metric.most)}</td><td class="num roomy">${number(metric.step)}</td></tr>`;
  return html`<${Panel} title="Metrics" end=${html`<${CurveChoices} names=${names} chosen=${chosen} query=${query} />`}>
    <${Curves} key=${chosen} curves=${drawn} metric=${chosen} query=${query} height=${220}
      describe=${`${chosen} over its ${query.over || "steps"}, ${count(curve.count, "value")}`} />
    <div class="scroll" tabindex="0" role="region" aria-label="Values of metrics"><table>
      <thead><tr><th scope="col">Metric</th><th class="num" scope="col">Last</th><th class="num" scope="col">Least</th>
        <th class="num" scope="col">Most</th><th class="num roomy" scope="col">At step</th></tr></thead>
      <tbody>${metrics.map(row)}</tbody></table></div>
    ${data.left_out > 0 && html`<p class="dim small">${count(data.left_out, "value")} of further metrics were left out.</p>`}<//>`;
}
