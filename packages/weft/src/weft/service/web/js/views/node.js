// One machine: what its GPUs did over time, who is on it, and taking it out of use.
import { at, get, post, query } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { count, deviceWord, duration, number, percent, ranges } from "../format.js";
import { html, useMemo } from "../lib.js";
import { link } from "../route.js";
import { clusterNow, useStore } from "../store.js";
import { StreamCanvas } from "../stream.js";
import { rowsOf } from "../stream_canvas.js";
import { attempt, confirm, Empty, Panel, State, Trouble, useAsk } from "../ui.js";

const HOURS = 6;
const AGAIN_MS = 10_000;
const COUNTERS = [
  ["sm", "GPU use", percent],
  ["held_gb", "GPU memory, GB", (value) => value.toFixed(1)],
  ["power_w", "Power, W", number],
  ["temp_c", "Temperature, °C", number],
  ["errors", "Memory errors not corrected", number],
];
const MEMORY = COUNTERS.filter(([key]) => key === "held_gb"); // by job, beside the driver's counters
const REPORTED = { errors: "device_errors" }; // what jobs call it

export function NodeView({ route, me }) {
  const store = useStore();
  const node = store.nodes.get(route.parts[0]);
  const since = Math.max(0, Math.round(clusterNow() - HOURS * 3600));
  const spans = useAsk(
    (signal) => get("/timeline" + query({ since }), { signal }),
    `node ${route.parts[0]}`,
    { every: AGAIN_MS },
  );
  if (!node)
    return html`<${Empty} title="No such node"><a href=${link("cluster")}>All nodes</a><//>`;
  const gpusHere = (job) =>
    job.on.filter((part) => part.node === node.id).flatMap((part) => part.gpus);
  const here = [...store.jobs.values()]
    .filter((job) => gpusHere(job).length)
    .sort((a, b) => Math.min(...gpusHere(a)) - Math.min(...gpusHere(b)));
  const drained = ["drained", "draining", "set aside"].includes(node.state);
  const turn = async () => {
    const detail = drained
      ? "Jobs may start on it again."
      : "Jobs on it move or stop, and no new ones start.";
    const word = drained ? "undrain" : "drain";
    if (
      await confirm(`${drained ? "Use" : "Drain"} ${node.id}?`, {
        detail,
        action: drained ? "Put back into service" : "Drain it",
      })
    )
      await attempt(
        () => post(at("nodes", node.id, word)),
        (reply) => reply.done,
      );
  };
  const device = deviceWord([node.kind]);
  return html`<div class="head"><h1>${node.id}</h1><span class="badge">${node.state}</span>
      <span class="dim">${node.kind === "cpu" ? count(node.gpus, device) : `${count(node.gpus, device)} of kind ${node.kind}`}${node.links ? `, ${node.links}` : ""}${node.cpus ? `, ${count(node.cpus, "CPU")}` : ""}</span>
      <div class="end">${me.role === "admin" && html`<button onClick=${turn}>${drained ? "Put back into service …" : "Drain …"}</button>`}</div></div>
    ${node.reason && html`<div class="note">${node.reason}</div>`}
    ${(node.health || [])
      .filter((gpu) => gpu.fault || gpu.aside)
      .map(
        (gpu) =>
          html`<div class="note" key=${gpu.gpu}>GPU ${gpu.gpu} ${gpu.aside ? "is set aside" : "has a fault"}: ${gpu.fault}</div>`,
      )}
    <${Panel} title=${`Its ${device}s in the last ${HOURS} hours`}><${Trouble} error=${spans.error} /><${Held} node=${node} spans=${spans.data?.spans || []} since=${since} /><//>
    <${Panel} title="Jobs here now" flush=${true}>${
      here.length
        ? html`<div class="scroll" tabindex="0" role="region" aria-label="Jobs on it"><table><thead><tr><th scope="col">${device}</th><th scope="col">Job</th><th scope="col">State</th><th class="roomy" scope="col">Tenant</th><th class="num" scope="col">For</th></tr></thead>
      <tbody>${here.map(
        (job) =>
          html`<tr key=${job.id}><td>${ranges(gpusHere(job))}</td><td class="wrap"><a href=${link("job", [job.id])}>${job.name}</a></td><td><${State} state=${job.state} /></td><td class="roomy">${job.tenant}</td><td class="num">${job.started ? duration(clusterNow() - job.started) : ""}</td></tr>`,
      )}</tbody></table></div>`
        : html`<p class="dim lonely">No jobs run here.</p>`
    }<//>
    <${Devices} node=${node} since=${since} jobs=${here.filter((job) => job.state === "running").slice(0, 8)} />`;
}

/** What the driver counted of each GPU, whoever used it, and who held its memory; without that, what its jobs report. */
function Devices({ node, since, jobs }) {
  const devices = useAsk(
    (signal) => get(at("nodes", node.id, "devices") + query({ since }), { signal }),
    `devices ${node.id}`,
    { every: AGAIN_MS },
  );
  if (devices.error) return html`<${Trouble} error=${devices.error} />`;
  if (!devices.data) return null;
  const { at: times, gpus } = devices.data;
  if (times.length < 2) return html`<${Measured} jobs=${jobs} />`;
  const drawn = COUNTERS.map(([key, title, format]) => {
    const known = gpus.filter((gpu) => gpu[key].some((value) => value != null));
    if (!known.length) return null;
    const series = known.map((gpu) => ({
      label: `GPU ${gpu.gpu}`,
      colour: lineColour(gpu.gpu),
    }));
    return html`<${Panel} key=${key} title=${title}><${Chart} data=${[times, ...known.map((gpu) => gpu[key])]} zero=${true} whole=${key === "errors"} format=${format} series=${series} describe=${`${title} of each GPU over time`} /><//>`;
  });
  return html`${drawn}<${Measured} jobs=${jobs} counters=${MEMORY} />`;
}

function Held({ node, spans, since }) {
  const layout = useMemo(() => rowsOf(new Map([[node.id, node]])), [node.id, node.gpus]);
  const mine = useMemo(
    () => spans.filter((span) => span.on.some((part) => part.node === node.id)),
    [spans],
  );
  const now = clusterNow();
  const first = Math.min(...mine.map((span) => span.start), now - 60);
  return html`<${StreamCanvas} layout=${layout} spans=${mine} since=${Math.max(since, first)} until=${now} now=${now} />`;
}

/** What its jobs report of their GPUs; engines that see no GPU tell nothing. */
function Measured({ jobs, counters = COUNTERS }) {
  const histories = useAsk(
    (signal) =>
      Promise.all(
        jobs.map((job) => get(at("jobs", job.id, "events") + query({ limit: 1000 }), { signal })),
      ),
    jobs.map((job) => job.id).join(" "),
    { every: AGAIN_MS },
  );
  return counters.map(([key, title, format]) => {
    const name = REPORTED[key] || key;
    const points = (histories.data || []).map((history) =>
      history.events
        .filter((event) => event.report?.[name] != null)
        .map((event) => [event.at, event.report[name]]),
    );
    if (!points.some((some) => some.length > 1)) return null;
    const xs = [...new Set(points.flat().map(([x]) => x))].sort((a, b) => a - b);
    const columns = points.map((some) => {
      const known = new Map(some);
      return xs.map((x) => known.get(x) ?? null);
    });
    return html`<${Panel} key=${key} title=${`${title} by job`}><${Chart} data=${[xs, ...columns]} zero=${true} format=${format} series=${jobs.map((job, i) => ({ label: job.name, colour: lineColour(i), span: true }))} describe=${`${title} of its jobs over time`} /><//>`;
  });
}
