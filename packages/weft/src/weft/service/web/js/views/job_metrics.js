// What a job's program measured of itself: one metric over its steps, and all of them in a table.
import { at, get } from "../api.js";
import { chooseMetric, CurveChoices, Curves } from "../curves.js";
import { count, number } from "../format.js";
import { html } from "../lib.js";
import { Panel, Trouble, useAsk } from "../ui.js";
import { useRoute } from "../route.js";

const AGAIN_MS = 10_000;

export function JobMetrics({ job }) {
  const { query } = useRoute();
  const going = job.state === "running";
  const { data, error } = useAsk(
    (signal) => get(at("jobs", job.id, "metrics"), { signal }),
    `${job.id} ${job.state} ${job.attempt}`,
    { every: going ? AGAIN_MS : 0 },
  );
  const metrics = data?.metrics ?? [];
  if (!metrics.length) return html`<${Trouble} error=${error} />`;
  const names = metrics.map((metric) => metric.name);
  const chosen = chooseMetric(names, query.metric);
  const curve = metrics.find((metric) => metric.name === chosen);
  return html`<${Panel} title="Metrics" end=${html`<${CurveChoices} names=${names} chosen=${chosen} query=${query} />`}>
    <${Curves} key=${chosen} curves=${[{ label: chosen, ...curve }]} query=${query} height=${220}
    describe=${`${chosen} over its steps, ${count(curve.count, "value")}`} />
    <div class="scroll" tabindex="0" role="region" aria-label="Values of metrics">
    <table><thead><tr><th scope="col">Metric</th><th class="num" scope="col">Last</th>
    <th class="num" scope="col">Least</th><th class="num" scope="col">Most</th><th class="num roomy" scope="col">At step</th></tr></thead>
    <tbody>${metrics.map(
      (metric) => html`<tr key=${metric.name}><td class="wrap">${metric.name}</td>
    <td class="num">${metric.value == null ? "nan" : number(metric.value)}</td>
    <td class="num">${number(metric.least)}</td><td class="num">${number(metric.most)}</td>
    <td class="num roomy">${number(metric.step)}</td></tr>`,
    )}</tbody></table></div>
    ${data.left_out > 0 && html`<p class="dim small">${count(data.left_out, "value")} of further metrics were left out.</p>`}<//>`;
}
