// One machine: what is wrong with it, what happened on it, who is on it, and taking it out of use.
import { at, get, post, query } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { clock, count, deviceWord, duration, number, percent, ranges } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { link, setQuery } from "../route.js";
import { clusterNow, useStore } from "../store.js";
import { StreamCanvas } from "../stream.js";
import { rowsOf } from "../stream_canvas.js";
import { attempt, Choice, confirm, Empty, More, Panel, State, Trouble, useAsk } from "../ui.js";
import { sentence } from "./over_time.js";

const RANGES = [
  ["6", "6 h"],
  ["24", "24 h"],
  ["168", "7 d"],
  ["720", "30 d"],
];
const SHOWN = 8;
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
  const hours = RANGES.some(([value]) => value === route.query.past) ? route.query.past : "6";
  const since = Math.max(0, Math.round(clusterNow() - Number(hours) * 3600));
  const spans = useAsk(
    (signal) => get("/timeline" + query({ since }), { signal }),
    `node ${route.parts[0]} ${hours}`,
    { every: AGAIN_MS },
  );
  const past = useAsk(
    (signal) => get(at("nodes", route.parts[0], "history"), { signal }),
    `past ${route.parts[0]} ${node?.state}`,
    { every: AGAIN_MS },
  );
  if (!node)
    return html`<${Empty} title="No such node"><a href=${link("cluster")}>All nodes</a><//>`;
  const gpusHere = (job) =>
    job.on.filter((part) => part.node === node.id).flatMap((part) => part.gpus);
  const here = [...store.jobs.values()]
    .filter((job) => gpusHere(job).length)
    .sort((a, b) => Math.min(...gpusHere(a)) - Math.min(...gpusHere(b)));
  const mine = (spans.data?.spans || []).filter((span) =>
    span.on.some((part) => part.node === node.id),
  );
  const { marks = [], out = [] } = past.data || {};
  const device = deviceWord([node.kind]);
  const has = [
    count(node.gpus, device) + (node.kind === "cpu" ? "" : ` of kind ${node.kind}`),
    node.links,
    node.cpus && count(node.cpus, "CPU"),
  ];
  const row = (job) =>
    html`<tr key=${job.id}><td>${ranges(gpusHere(job))}</td>
      <td class="wrap"><a href=${link("job", [job.id])}><bdi>${job.name}</bdi></a></td><td><${State} state=${job.state} /></td>
      <td class="roomy">${job.tenant}</td><td class="num">${job.started ? duration(clusterNow() - job.started) : ""}</td></tr>`;
  return html`<div class="head"><h1>${node.id}</h1><span class="badge">${node.state}</span>
      <span class="dim">${has.filter(Boolean).join(", ")}</span>
      ${me.role === "admin" && html`<${Actions} node=${node} out=${out} again=${past.again} />`}</div>
    <${Wrong} node=${node} out=${out} />
    <${Panel} title=${`Its ${device}s over time`} end=${html`<${Choice} label="How far back" value=${hours}
      options=${RANGES} choose=${(value) => setQuery({ past: value })} />`}>
      <${Trouble} error=${spans.error || past.error} />
      <${Held} node=${node} spans=${[...mine, ...absences(node, marks, out)]} since=${since} />
      <div class="legend"><span>one row per ${device}, one colour per job</span><span>red end: failed</span>
        <span><i class="out"></i>drained, set aside or down</span></div><//>
    <div class="halves"><${Panel} title="Jobs here now" flush=${true}>${
      here.length
        ? html`<div class="scroll" tabindex="0" role="region" aria-label="Jobs on it"><table><thead><tr>
            <th scope="col">${device}</th><th scope="col">Job</th><th scope="col">State</th>
            <th class="roomy" scope="col">Tenant</th><th class="num" scope="col">For</th></tr></thead>
          <tbody>${here.map(row)}</tbody></table></div>`
        : html`<p class="dim lonely">No jobs run here.</p>`
    }<//>
    <${Happened} marks=${marks} spans=${mine} /></div>
    <${Devices} node=${node} since=${since} jobs=${here.filter((job) => job.state === "running").slice(0, 8)} />`;
}

/** Drain it, put it back into service, and open each of its GPUs to see whether they work. */
function Actions({ node, out, again }) {
  const drained = ["drained", "draining", "set aside"].includes(node.state);
  const act = async (word, question, more, path = {}) => {
    const answer = await confirm(question, more);
    if (!answer) return;
    await attempt(
      () => post(at("nodes", node.id, word) + query({ ...path, why: answer.why })),
      (reply) => reply.done || checked(reply),
    );
    again();
  };
  const drain = () =>
    act("drain", `Drain ${node.id}?`, {
      detail: "Jobs on it move or stop, and no new ones start.",
      action: "Drain it",
      values: ["why"],
      shown: true,
    });
  const undrain = () =>
    act("undrain", `Use ${node.id}?`, {
      detail: "Jobs may start on it again.",
      action: "Put back into service",
    });
  const check = () =>
    act("check", `Check ${node.id}?`, {
      detail: "Opens each GPU that no job holds, and allocates memory there.",
      action: "Check it",
    });
  return html`<div class="end">${node.kind !== "cpu" && html`<button onClick=${check}>Check …</button>`}
    ${(drained || out.length > 0) && html`<button onClick=${undrain}>Put back into service …</button>`}
    ${!drained && html`<button onClick=${drain}>Drain …</button>`}</div>`;
}

function checked({ gpus }) {
  const bad = gpus.filter((gpu) => gpu.fault);
  if (!bad.length) return `${count(gpus.length, "GPU")} opened: no fault`;
  return bad.map((gpu) => `GPU ${gpu.gpu}: ${gpu.fault}`).join("; ");
}

/** What is wrong with it, each in a sentence with since when. */
function Wrong({ node, out }) {
  const faults = (node.health || []).filter((gpu) => gpu.fault || gpu.aside);
  const known = new Set(out.map((mark) => mark.about));
  const texts = [
    ...out.map(
      (mark) => `${sentence(mark)}, ${duration(clusterNow() - mark.at)} ago (${clock(mark.at)})`,
    ),
    ...(node.reason && !out.some((mark) => mark.why === node.reason) ? [node.reason] : []),
    ...faults
      .filter((gpu) => !(gpu.aside && known.has(`${node.id}:${gpu.gpu}`) && !gpu.fault))
      .map(
        (gpu) =>
          `GPU ${gpu.gpu} ${gpu.aside ? "is set aside" : "has a fault"}${gpu.fault ? `: ${gpu.fault}` : ""}`,
      ),
  ];
  const notes = (node.health || []).filter((gpu) => gpu.notes.length);
  const note = ({ gpu, notes }) =>
    html`<p class="dim small" key=${gpu}>GPU ${gpu}: ${notes.join(", ")}</p>`;
  return html`<section class="stack" aria-label="What is wrong">
    ${texts.map((text) => html`<div class="note" key=${text}>${text}</div>`)}
    ${!texts.length && node.state === "up" && html`<p class="dim small">Nothing is wrong with it.</p>`}
    ${notes.map(note)}</section>`;
}

const OUT = ["drained", "aside", "down"];

/** Stretches in which it, or some of its GPUs, were out of use: bars beside those of jobs. */
function absences(node, marks, out) {
  const begun = new Map(),
    stretches = [];
  const all = Array.from({ length: node.gpus }, (_, gpu) => gpu);
  const add = (mark, end) =>
    stretches.push({
      job: "",
      attempt: 1,
      share: 1,
      start: mark.at,
      end,
      how: "",
      out: sentence(mark),
      on: [{ node: node.id, gpus: mark.about.includes(":") ? gpusOf(mark.about) : all }],
    });
  for (const mark of [
    ...out.filter(
      (mark) => !marks.some(({ at: when, about }) => when === mark.at && about === mark.about),
    ),
    ...marks,
  ]) {
    const was = begun.get(mark.about);
    if (OUT.includes(mark.what)) {
      if (!was) begun.set(mark.about, mark);
    } else if (was) {
      add(was, mark.at);
      begun.delete(mark.about);
    }
  }
  for (const mark of begun.values()) add(mark, null);
  return stretches;
}

/** `n1:0,2-3` as 0, 2, 3. */
const gpusOf = (about) =>
  about
    .split(":")[1]
    .split(",")
    .flatMap((part) => {
      const [first, last = first] = part.split("-").map(Number);
      return Array.from({ length: last - first + 1 }, (_, i) => first + i);
    });

/** What happened on it, the last first: what people and faults did, and jobs that failed here. */
function Happened({ marks, spans }) {
  const [all, showAll] = useState(false);
  const failed = spans
    .filter((span) => span.how === "failed")
    .map((span) => ({
      at: span.end,
      text: `${span.name || "another tenant's job"} failed${span.attempt > 1 ? ` in attempt ${span.attempt}` : ""}`,
      job: span.job,
    }));
  const rows = [...marks.map((mark) => ({ at: mark.at, text: sentence(mark) })), ...failed].sort(
    (a, b) => b.at - a.at,
  );
  const line = ({ at: when, text, job }, i) =>
    html`<li key=${i}><span>${job ? html`<a href=${link("job", [job])}>${text}</a>` : text}</span>
      <span class="dim">${clock(when)}</span></li>`;
  return html`<${Panel} title="What happened">
    ${!rows.length && html`<p class="dim">Nothing but jobs that came and went.</p>`}
    <ul class="why-list">${rows.slice(0, all ? 200 : SHOWN).map(line)}</ul>
    <${More} more=${rows.length - SHOWN} all=${all} show=${showAll} /><//>`;
}

/** What the driver counted of each GPU, and who held its memory; without that, what jobs report. */
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
    const data = [times, ...known.map((gpu) => gpu[key])];
    return html`<${Panel} key=${key} title=${title}><${Chart} data=${data} zero=${true} whole=${key === "errors"}
      format=${format} series=${series} describe=${`${title} of each GPU over time`} /><//>`;
  });
  return html`${drawn}<${Measured} jobs=${jobs} counters=${MEMORY} />`;
}

function Held({ node, spans, since }) {
  const layout = useMemo(() => rowsOf(new Map([[node.id, node]])), [node.id, node.gpus]);
  const now = clusterNow();
  const first = Math.min(...spans.map((span) => span.start), now - 60);
  const from = Math.max(since, first);
  return html`<${StreamCanvas} layout=${layout} spans=${spans} since=${from} until=${now} now=${now} />`;
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
    const series = jobs.map((job, i) => ({ label: job.name, colour: lineColour(i), span: true }));
    return html`<${Panel} key=${key} title=${`${title} by job`}><${Chart} data=${[xs, ...columns]} zero=${true}
      format=${format} series=${series} describe=${`${title} of its jobs over time`} /><//>`;
  });
}
