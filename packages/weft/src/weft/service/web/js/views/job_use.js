// How fast a job goes and what it uses of its machines, also one that reports nothing: small charts over time.
import { at, get, query } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { clock, count, number, percent, theDevice } from "../format.js";
import { html, useMemo } from "../lib.js";
import { readRoute, setQuery } from "../route.js";
import { Choice, Panel, useAsk } from "../ui.js";

const EVERY_MS = 15_000;
const MOST_NODES = 4;
const POINTS = 80;

/** Small charts, each of columns `[label, read]` of its reports; `gpu` is the driver's counter where it has none. */
const USES = [
  {
    title: "Steps per second",
    columns: [["steps/s", (report) => (report.step_s ? 1 / report.step_s : null)]],
  },
  { title: "GPU use", gpu: "sm", format: percent, columns: [["busy", (report) => report.sm]] },
  {
    title: "GPU memory, GB",
    gpu: "held_gb",
    columns: [
      ["held", (report) => report.held_gb],
      ["most", (report) => report.mem_gb],
    ],
  },
  { title: "CPU cores in use", columns: [["cores", (report) => report.cpus]] },
  {
    title: "Files, MB/s",
    columns: [
      ["read", (report) => report.read_mb_s],
      ["written", (report) => report.write_mb_s],
    ],
  },
];

/** What a job that trains with Weft's library says of itself. */
const MEASURES = [
  {
    key: "goodput",
    label: "goodput",
    unit: "useful samples/s",
    columns: [
      ["goodput", (report) => usefulRate(report)],
      ["speed", (report) => rate(report)],
    ],
  },
  {
    key: "batch",
    label: "batch",
    unit: "samples",
    columns: [
      ["batch", (report) => report.batch],
      ["per GPU", (report) => report.per_gpu],
    ],
  },
  { key: "loss", label: "loss", unit: "", columns: [["loss", (report) => report.loss]] },
  {
    key: "stages",
    label: "stage times",
    unit: "s",
    columns: [
      ["step", (report) => report.step_s],
      ["gradients", (report) => report.grad_s],
      ["synchronising", (report) => report.sync_s],
      ["data", (report) => report.data_s],
      ["waiting its turn", (report) => report.token_s],
    ],
  },
  {
    key: "pace",
    label: "beside others",
    unit: "of its speed alone",
    columns: [["measured pace", (report) => report.pace]],
  },
  {
    key: "progress",
    label: "progress",
    unit: "",
    columns: [["done", (report) => report.progress]],
  },
];

const rate = (report) =>
  report.step_s && report.batch ? report.batch / report.step_s : (report.updates_per_s ?? null);
// Steps worth of the initial batch, as the service counts it.
const usefulRate = (report) =>
  report.step_s && report.gain && report.init
    ? (report.gain * report.init) / report.step_s
    : (report.goodput ?? rate(report));

/** Columns that are not empty or 0 all the time, by the times of the reports; null if none does. */
function readColumns(columns, reports) {
  const known = columns.filter(([, read]) => reports.some(([, report]) => read(report)));
  if (!known.length) return null;
  const rows = reports.filter(([, report]) => known.some(([, read]) => read(report) != null));
  return {
    data: [
      rows.map(([when]) => when),
      ...known.map(([, read]) => rows.map(([, report]) => read(report) ?? null)),
    ],
    labels: known.map(([label]) => label),
  };
}

/** Steps per second between points of the metric that was measured most often. */
export function ratesOf(metrics) {
  const [curve] = [...metrics].sort((a, b) => b.count - a.count);
  const xs = [],
    ys = [];
  if (!curve) return [xs, ys];
  const apart = Math.max(1, Math.ceil(curve.steps.length / POINTS));
  let from = 0;
  for (let i = apart; i < curve.steps.length; i += apart) {
    const [steps, seconds] = [curve.steps, curve.at].map((all) => all[i] - all[from]);
    if (steps < 0) from = i; // it began again
    if (steps <= 0 || seconds <= 0) continue; // several were written at once
    xs.push(curve.at[i]);
    ys.push(steps / seconds);
    from = i;
  }
  return [xs, ys];
}

/** The driver's counts of the GPUs that a job held, while it held them. */
function useDevices(job, spans) {
  const last = spans.at(-1);
  const nodes = last ? last.on.slice(0, MOST_NODES) : [];
  const since = last?.start ?? 0;
  const { data } = useAsk(
    (signal) =>
      Promise.all(
        nodes.map(async ({ node, gpus }) => {
          const history = await get(at("nodes", node, "devices") + query({ since }), { signal });
          return {
            node,
            at: history.at,
            gpus: history.gpus.filter(({ gpu }) => gpus.includes(gpu)),
          };
        }),
      ),
    `${job.id} ${since} ${last?.end ?? ""} ${nodes.map(({ node }) => node)}`,
    { every: last && last.end === null ? EVERY_MS : 0 },
  );
  const until = last?.end ?? Infinity;
  return (counter) => {
    const lines = (data || []).flatMap(({ node, at: times, gpus }) =>
      gpus.map((gpu) => ({
        label: `${node}: ${theDevice()} ${gpu.gpu}`,
        times,
        values: gpu[counter],
      })),
    );
    const counted = lines.filter(({ values }) => values.some((value) => value != null));
    if (!counted.length) return null;
    const xs = [...new Set(counted.flatMap(({ times }) => times))].filter((when) => when <= until);
    xs.sort((a, b) => a - b);
    const columns = counted.map(({ times, values }) => {
      const known = new Map(times.map((when, i) => [when, values[i]]));
      return xs.map((when) => known.get(when) ?? null);
    });
    return { data: [xs, ...columns], labels: counted.map(({ label }) => label), whole: true };
  };
}

const ofDevice = (label) => label.replace("GPU", theDevice());

export function Use({ job, reports, metrics, spans }) {
  const counts = useDevices(job, spans);
  const charts = USES.map(({ title, gpu, format = number, columns }) => {
    let drawn = readColumns(columns, reports) || (gpu && counts(gpu));
    if (!drawn && title === USES[0].title) drawn = { data: ratesOf(metrics), labels: ["steps/s"] };
    return drawn && drawn.data[0].length > 1 && { title, format, ...drawn };
  }).filter(Boolean);
  if (!charts.length) return null;
  const shared =
    charts.some(({ whole }) => whole) && job.allocation?.some(({ share }) => share < 1);
  return html`<${Panel} title="Speed and use">
    <div class="multiples">${charts.map(
      ({ title, format, data, labels }) => html`<figure key=${title}><h3>${ofDevice(title)}</h3>
      <${Chart} data=${data} height=${150} zero=${true} format=${format} describe=${`${ofDevice(title)} over time`}
        series=${labels.map((label, i) => ({ label, colour: lineColour(i), span: true }))} /></figure>`,
    )}</div>
    ${shared && html`<p class="dim small">Its ${theDevice()}s as their driver counts them, with all jobs on them.</p>`}<//>`;
}

/** One measure of a training at a time. */
export function Measures({ reports }) {
  const known = useMemo(
    () =>
      MEASURES.map((measure) => ({
        ...measure,
        drawn: readColumns(measure.columns, reports),
      })).filter(({ drawn }) => drawn),
    [reports],
  );
  const asked = readRoute().query.measure;
  const chosen = known.find((measure) => measure.key === asked) || known[0];
  if (!chosen) return null; // it trains without Weft's library
  const { key, label, unit, drawn } = chosen;
  const series = drawn.labels.map((text) => ({ label: ofDevice(text), span: true }));
  const choices = known.map((measure) => [measure.key, ofDevice(measure.label)]);
  const end =
    known.length > 1 &&
    html`<${Choice} label="Measure" value=${key} options=${choices} choose=${(measure) => setQuery({ measure })} />`;
  const last = reports.at(-1)?.[0];
  return html`<${Panel} title="Measurements" end=${end}>
    <${Chart} key=${key} data=${drawn.data} series=${series} height=${220} zero=${true}
    describe=${`${ofDevice(label)} over time, ${count(drawn.data[0].length, "report")}`} />
    <p class="dim small">${ofDevice(label)}${unit && `, ${unit}`}; as the job reported, last at ${clock(last)}</p><//>`;
}
