// A job's past: what it held, how it went, and every event of the log that is about it.
import { at, get, query } from "../api.js";
import { Chart } from "../charts.js";
import { clock, count, duration, gpuHours, number, ranges, theDevice } from "../format.js";
import { html, useMemo } from "../lib.js";
import { clusterNow } from "../store.js";
import { Choice, Empty, Loading, Panel, Trouble, useAsk } from "../ui.js";
import { readRoute, setQuery } from "../route.js";

const MEASURES = [
  {
    key: "goodput",
    label: "goodput",
    unit: "useful samples/s",
    series: [
      ["goodput", (report) => usefulRate(report)],
      ["speed", (report) => rate(report)],
    ],
  },
  {
    key: "batch",
    label: "batch",
    unit: "samples",
    series: [
      ["batch", (report) => report.batch],
      ["per GPU", (report) => report.per_gpu],
    ],
  },
  { key: "loss", label: "loss", unit: "", series: [["loss", (report) => report.loss]] },
  {
    key: "stages",
    label: "stage times",
    unit: "s",
    series: [
      ["step", (report) => report.step_s],
      ["gradients", (report) => report.grad_s],
      ["synchronising", (report) => report.sync_s],
      ["data", (report) => report.data_s],
      ["waiting its turn", (report) => report.token_s],
    ],
  },
  {
    key: "steps",
    label: "steps",
    unit: "steps/s",
    series: [["speed", (report) => (report.step_s ? 1 / report.step_s : null)]],
  },
  {
    key: "device",
    label: "GPU memory",
    unit: "GB",
    series: [
      ["held", (report) => report.held_gb],
      ["most", (report) => report.mem_gb],
    ],
  },
  {
    key: "use",
    label: "GPU use",
    unit: "of the time",
    series: [["busy", (report) => report.sm]],
  },
  {
    key: "pace",
    label: "beside others",
    unit: "of its speed alone",
    series: [["measured pace", (report) => report.pace]],
  },
  { key: "progress", label: "progress", unit: "", series: [["done", (report) => report.progress]] },
];

const rate = (report) =>
  report.step_s && report.batch ? report.batch / report.step_s : (report.updates_per_s ?? null);
// Steps worth of the initial batch, as the service counts it.
const usefulRate = (report) =>
  report.step_s && report.gain && report.init
    ? (report.gain * report.init) / report.step_s
    : (report.goodput ?? rate(report));

export function History({ job, row }) {
  const key = `${job.id} ${job.state} ${job.attempt} ${row?.progress} ${row?.gpu_seconds}`;
  const events = useAsk(
    (signal) => get(at("jobs", job.id, "events") + query({ limit: 1000 }), { signal }),
    key,
  );
  const spans = useAsk((signal) => get("/timeline" + query({ job: job.id }), { signal }), key);
  return html`<${Allocations} job=${job} spans=${spans} />
    <div class="halves"><${Measures} events=${events} /><${Events} events=${events} /></div>`;
}

/** GPUs over time as steps, from the spans. */
function Allocations({ job, spans }) {
  const held = spans.data?.spans || [];
  const chart = useMemo(() => {
    const xs = [job.submitted],
      ys = [0];
    for (const span of [...held].sort((a, b) => a.start - b.start)) {
      const gpus = span.on.reduce((sum, part) => sum + part.gpus.length, 0) * span.share;
      xs.push(span.start, span.end ?? Math.max(clusterNow(), span.start + 1));
      ys.push(gpus, 0);
    }
    if (job.ended) {
      xs.push(job.ended);
      ys.push(0);
    }
    const order = xs.map((_, i) => i).sort((a, b) => xs[a] - xs[b] || a - b);
    return [order.map((i) => xs[i]), order.map((i) => ys[i])];
  }, [spans.data]);
  if (!job.attempt) return null; // it has held nothing yet
  const lost = held.reduce((sum, span) => sum + (span.lost_gpu_s || 0), 0);
  return html`<${Panel} title="What it held" end=${lost ? html`<span class="dim small">${gpuHours(lost)} of work lost to stops</span>` : null}>
    <${Trouble} error=${spans.error} />
    ${
      held.length
        ? html`<${Chart} data=${chart}
          series=${[{ label: `${theDevice()}s`, step: true, fill: "oklch(58% 0.15 262 / 15%)" }]} height=${150}
            whole=${true} describe=${`${theDevice()}s held over time: ${count(held.length, "span")}`} />
      <div class="scroll events" tabindex="0" role="region" aria-label="Spans">
      <table><thead><tr><th scope="col">From</th><th scope="col">To</th><th class="num" scope="col">For</th>
      <th class="num roomy" scope="col">Attempt</th><th scope="col">Where</th><th class="roomy" scope="col">Ended</th>
      <th class="num roomy" scope="col">Work lost</th></tr></thead>
      <tbody>${[...held]
        .reverse()
        .slice(0, 100)
        .map(
          (span) => html`<tr key=${span.start}><td class="nowrap">${clock(span.start)}</td>
            <td class="nowrap">${span.end === null ? "now" : clock(span.end)}</td>
            <td class="num nowrap">${duration((span.end ?? clusterNow()) - span.start)}</td><td class="num roomy">${span.attempt}</td>
        <td>${span.on.map((part) => `${part.node}: ${ranges(part.gpus)}`).join("; ")}
        ${span.share < 1 ? `, ${number(span.share)} of each` : ""}</td><td class="roomy">${span.how}</td>
        <td class="num nowrap roomy">${span.lost_gpu_s == null ? "" : gpuHours(span.lost_gpu_s)}</td></tr>`,
        )}</tbody></table></div>`
        : spans.loading
          ? html`<${Loading} />`
          : html`<p class="dim">It has not held any devices yet.</p>`
    }<//>`;
}

const ofDevice = (label) => label.replace("GPU", theDevice());

function Measures({ events }) {
  const reports = useMemo(() => {
    const all = events.data?.events || [];
    const init = all.find((event) => event.event === "Submitted")?.job.batch?.init;
    return all
      .filter((event) => event.event === "Reported")
      .map((event) => [event.at, { ...event.report, init }]);
  }, [events.data]);
  const known = MEASURES.filter((measure) =>
    measure.series.some(([, read]) => reports.some(([, report]) => read(report) != null)),
  );
  const asked = readRoute().query.measure;
  const chosen = known.find((measure) => measure.key === asked) || known[0];
  const data = useMemo(
    () =>
      chosen
        ? [
            reports.map(([when]) => when),
            ...chosen.series.map(([, read]) => reports.map(([, report]) => read(report) ?? null)),
          ]
        : null,
    [reports, chosen?.key],
  );
  const drawn = chosen
    ? chosen.series
        .map(([label], i) => ({ label: ofDevice(label), i }))
        .filter(({ i }) => data[i + 1].some((value) => value != null))
    : [];
  if (!chosen) return null; // a job that does not use weft_train
  return html`<${Panel} title="Measurements" end=${
    known.length > 1
      ? html`<${Choice} label="Measure"
    value=${chosen.key} options=${known.map((measure) => [measure.key, ofDevice(measure.label)])}
      choose=${(measure) => setQuery({ measure })} />`
      : null
  }>
    <${Chart} key=${chosen.key} data=${[data[0], ...drawn.map(({ i }) => data[i + 1])]}
    series=${drawn.map(({ label }) => ({ label, span: true }))} height=${220} zero=${true}
      describe=${`${ofDevice(chosen.label)} over time, ${count(reports.length, "report")}`} />
    <p class="dim small">${ofDevice(chosen.label)}${chosen.unit ? `, ${chosen.unit}` : ""}; as reported by the job</p><//>`;
}

const TELL = {
  Submitted: () => "submitted",
  Started: (event) => `attempt ${event.attempt} runs`,
  Stopped: (event) => `attempt ${event.attempt} left its devices`,
  Finished: () => "finished",
  Failed: (event) =>
    `attempt ${event.attempt} failed: ${event.reason || "no reason"}${event.retry ? "; it will be retried" : ""}`,
  StartFailed: (event) => `could not start: ${event.reason || ""}`,
  Cancelled: (event) => `cancelled${event.reason ? `: ${event.reason}` : ""}`,
  Suspended: (event) => `suspended by ${event.by || "its owner"}`,
  Resumed: () => "resumed",
  PriorityChanged: (event) =>
    `priority ${event.priority > 0 ? "guaranteed" : event.priority <= -1 ? "opportunistic" : event.priority < 0 ? "spot" : "normal"} from here on`,
  Saved: (event) => `checkpoint at step ${number(event.step ?? 0)}`,
  Noticed: (event) => event.text,
  DeadlineMissed: () => "its deadline has passed",
  Foretold: (event) =>
    `predicted to start in ${duration(event.low_s)} to ${duration(event.high_s)}`,
  Resizable: () => "can be resized while it trains",
  Resized: (event) => `resized while it trained, a pause of ${duration(event.pause_s ?? 0)}`,
  Observed: (event) =>
    [
      event.peak_gb == null ? "" : `holds up to ${number(event.peak_gb)} GB of its ${theDevice()}`,
      event.pace == null
        ? ""
        : `keeps ${Math.round(100 * event.pace)} % of its speed alone beside ${count((event.beside ?? []).length, "other job")}`,
    ]
      .filter(Boolean)
      .join("; "),
  ResizeFailed: () => "could not be resized while it trained",
};

function tellDecision(decision, job) {
  if (decision.rejected?.[job]) return `rejected: ${decision.rejected[job]}`;
  const why = decision.reasons?.[job] ? ` – ${decision.reasons[job]}` : "";
  if (decision.changes && job in decision.changes) {
    const to = decision.changes[job];
    if (to === null) return `decision ${decision.number}: gives its ${theDevice()}s back${why}`;
    const plan = to.plan ? ` by plan ${to.plan}` : "";
    return `decision ${decision.number}: gets ${to.slices.map((part) => `${part.node}: ${theDevice()} ${ranges(part.gpus)}`).join("; ")}${plan}${why}`;
  }
  return why ? `decision ${decision.number}${why}` : "";
}

function Events({ events }) {
  const all = events.data?.events || [];
  const id = readRoute().parts[0];
  const rows = all
    .filter((event) => event.event !== "Reported" && event.event !== "Measured")
    .map((event) => [
      event.seq,
      event.at,
      event.event === "Decided"
        ? tellDecision(event, id)
        : (TELL[event.event] || (() => event.event))(event),
    ])
    .filter(([, , text]) => text)
    .reverse();
  return html`<${Panel} title="Events" flush=${true} end=${html`<span class="dim small">${number(rows.length)}</span>`}>
    <${Trouble} error=${events.error} />
    ${
      rows.length
        ? html`<div class="events scroll" tabindex="0" role="region" aria-label="Events of the job">
          <table><tbody>${rows.map(
            ([seq, when, text]) => html`<tr key=${seq}>
          <td class="nowrap dim">${clock(when)}</td><td class="wrap">${text}</td></tr>`,
          )}</tbody></table></div>`
        : events.loading
          ? html`<${Loading} />`
          : html`<${Empty} title="No events">The log has no events of this job.<//>`
    }<//>`;
}
