// One job: what it does, why it waits, what it printed, and what can be done about it.
import { at, get, post, put } from "../api.js";
import {
  asks,
  clock,
  count,
  duration,
  gpuHours,
  number,
  percent,
  range,
  ranges,
  startsIn,
  theDevice,
} from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { JobActions } from "../job_actions.js";
import { go, link } from "../route.js";
import { save } from "../save.js";
import { clusterNow, ENDED, store, useStore, WAITING } from "../store.js";
import {
  attempt,
  Bar,
  confirm,
  FactList,
  Loading,
  Panel,
  State,
  ticks,
  toast,
  Trouble,
  useAsk,
  Words,
} from "../ui.js";
import { History } from "./job_history.js";
import { Logs } from "./job_logs.js";
import { ratesOf } from "./job_use.js";
import { JobMetrics, useCurves } from "./job_metrics.js";

/** The whole job, asked for again when its row changes. */
function useJob(id) {
  useStore();
  const row = store.jobs.get(id);
  const [job, setJob] = useState(null);
  const [error, setError] = useState(null);
  const mark = row
    ? `${row.state} ${row.attempt} ${row.progress} ${row.goodput} ${row.batch} ${row.on.length} ${row.priority} ${row.suspended} ${store.reasons.get(row.why)}`
    : "";
  useEffect(() => {
    let over = false;
    get(at("jobs", id)).then(
      (details) => {
        if (!over) {
          setJob(details);
          setError(null);
        }
      },
      (problem) => {
        if (!over) setError(problem);
      },
    );
    return () => {
      over = true;
    };
  }, [id, mark, store.link]);
  return { job, row, error };
}

export function JobView({ route, me }) {
  const id = route.parts[0] || "";
  const { job, row, error } = useJob(id);
  const curves = useCurves(job);
  if (error && !job)
    return html`<${Trouble} error=${error} /><p><a href=${link("jobs")}>All jobs</a></p>`;
  if (!job) return html`<${Loading} what="Loading the job" />`;
  const why = ENDED.has(job.state) ? null : html`<${Why} job=${job} me=${me} />`;
  return html`
    <div class="head"><h1><bdi>${job.name}</bdi></h1><${State} state=${job.state} /><span class="dim mono small">${job.id}</span>
      <div class="end"><${Actions} job=${job} me=${me} /></div></div>
    ${
      job.notices.length > 0 &&
      html`<div class="note">${job.notices.slice(-3).map(
        (notice) => html`<div
    key=${notice.at}>${notice.text}</div>`,
      )}</div>`
    }
    <div class="halves">
      <div class="stack">
        <${Facts} job=${job} row=${row} metrics=${curves.metrics} />
        ${job.attempt > 0 && why}
      </div>
      <div class="stack">${job.attempt > 0 ? html`<${Logs} job=${job} />` : why}</div>
    </div>
    <${JobMetrics} job=${job} curves=${curves} />
    <${History} job=${job} row=${row} metrics=${curves.metrics} />`;
}

const SAME_FILE = "A new job with the same file, at the end of the queue.";
const HIDDEN = "********"; // a value that stays as it was, for the user who set it

function Actions({ job, me }) {
  const file = () =>
    get(at("jobs", job.id, "file")).catch((error) => {
      toast(error.message, true);
      return null;
    });
  const again = async () => {
    const jobFile = await file();
    if (!jobFile) return;
    const names = Object.keys(jobFile.job.env || {});
    const values = await confirm(`Submit ${job.name} again?`, {
      detail: names.length
        ? `${SAME_FILE} Secrets are not copied: enter them again. A field you leave empty keeps its value if you set it before.`
        : SAME_FILE,
      action: "Submit again",
      values: names,
    });
    if (!values) return;
    const env = Object.fromEntries(names.map((name) => [name, values[name] || HIDDEN]));
    const made = await attempt(
      () => post(at("jobs", job.id, "again"), names.length ? { change: { env } } : {}),
      (reply) => `submitted as ${reply.id}`,
    );
    if (made) go("job", [made.id]);
  };
  const copy = async () => {
    const jobFile = await file();
    if (!jobFile) return;
    try {
      await navigator.clipboard.writeText(jobFile.yaml);
      toast("job file copied");
    } catch {
      save(`${job.name}.yaml`, jobFile.yaml);
    }
  };
  return html`<button onClick=${copy}>Copy as job file</button>
    ${me.role !== "viewer" && html`<button onClick=${again}>Submit again …</button><${JobActions} jobs=${[job]} />`}`;
}

function Facts({ job, row, metrics }) {
  const now = clusterNow();
  const held = job.allocation
    ? job.allocation.map(
        (part) =>
          `${part.node}: ${theDevice()} ${ranges(part.gpus)}${part.kind === "cpu" ? "" : ` (${part.kind})`}` +
          (part.share < 1
            ? `, ${percent(part.share)} of ${part.gpus.length > 1 ? "each" : "it"}`
            : ""),
      )
    : [];
  const wanted = asks({ gpus: job.gpus, share: row && !row.on.length ? row.share : 1 });
  const facts = [
    ["why", WAITING.has(job.state) ? "" : job.reason], // said beside it
    ["tenant", job.tenant + (job.user ? ` · ${job.user}` : "")],
    [
      "asks for",
      `${wanted} ${theDevice()}${wanted === "1" ? "" : "s"}` +
        (job.kinds.length ? ` of ${job.kinds.join(" or ")}` : "") +
        (job.nodes ? ` on ${job.nodes} nodes` : ""),
    ],
    [
      "holds",
      held.length
        ? held.map((text) => html`<div key=${text}>${text}</div>`)
        : ENDED.has(job.state)
          ? ""
          : "nothing",
    ],
    ["priority", job.priority === "normal" ? "" : job.priority],
    ["batch", number(job.batch)],
    ["goodput", job.goodput == null ? "" : `${number(job.goodput)} useful samples/s`],
    ["speed", job.speed == null ? "" : `${number(job.speed)} samples/s`],
    ...measuredFacts(job.measured, !held.length),
    ["steps", job.measured?.steps == null ? stepsBy(metrics, !held.length) : ""],
    ["pace", row?.pace == null ? "" : `${percent(row.pace)} of what it does alone`],
    ["submitted", clock(job.submitted)],
    [
      "started",
      job.started ? `${clock(job.started)}, after ${duration(job.started - job.submitted)}` : "",
    ],
    ["ended", job.ended ? `${clock(job.ended)}, after ${duration(job.ended - job.submitted)}` : ""],
    ["has waited", !job.started && !job.ended ? duration(now - job.submitted) : ""],
    ["used", job.gpu_seconds ? gpuHours(job.gpu_seconds) : ""],
    [
      "restarts",
      job.restarts
        ? `${job.restarts}${job.failures ? `, ${job.failures} after failures` : ""}`
        : "",
    ],
    ["may be stopped", job.preemptible ? "yes" : "no"],
    ["checkpoint", job.saved_step == null ? "" : `step ${number(job.saved_step)}`],
    ["plan", job.plan || (job.plans?.length ? `any of ${job.plans.join(", ")}` : "")],
    [
      "deadline",
      job.deadline
        ? `${clock(job.deadline)}${job.deadline_missed ? ", missed" : job.deadline_or ? `, or ${job.deadline_or}` : ""}`
        : "",
    ],
    [
      "parameters",
      Object.entries(job.parameters ?? {})
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["part of", job.app && html`<a href=${link("sweep", [job.app])}>${job.app}</a>`],
    ["command", job.command.length ? html`<code>${job.command.join(" ")}</code>` : ""],
  ].filter(([, value]) => value !== "" && value != null);
  return html`<${Panel} title="Now">
    ${
      job.progress != null &&
      html`<div class="row"><span class="grow">
    <${Bar} part=${job.progress} label=${`${percent(job.progress)} done`} /></span><span class="small">${percent(job.progress)} done</span></div>`
    }
    <${FactList} facts=${facts} />
    ${job.state === "running" && job.pids.length > 0 && html`<${Inside} job=${job} />`}<//>`;
}

/** A shell beside it, and its ports, by the command line. */
function Inside({ job }) {
  const commands = [`weft shell ${job.id}`, `weft forward ${job.id} 6006`];
  const copy = (text) =>
    navigator.clipboard.writeText(text).then(
      () => toast("copied"),
      () => toast("the browser does not allow copying", true),
    );
  return html`<div class="row small">${commands.map(
    (text) => html`<button key=${text} class="quiet"
    title="Copy; run it in a terminal" onClick=${() => copy(text)}><code>${text}</code></button>`,
  )}</div>`;
}

/** Steps of a program that reports none, by the steps of what it measures. */
function stepsBy(metrics, idle) {
  if (!metrics.length) return "";
  const rate = ratesOf(metrics)[1].at(-1);
  const steps = number(Math.max(...metrics.map(({ step }) => step)));
  return rate && !idle ? `${steps}, ${number(rate)} per second` : steps;
}

/** What is seen of any job, also of one that reports nothing; of an `idle` one, how far it came. */
function measuredFacts(seen, idle) {
  if (!seen) return [];
  const steps =
    seen.steps == null
      ? ""
      : `${number(seen.steps)}${seen.total_steps ? ` of ${number(seen.total_steps)}` : ""}`;
  if (idle) return [["steps", steps]];
  const rate = seen.steps_per_s == null ? "" : `, ${number(seen.steps_per_s)} per second`;
  const left = seen.left_s == null ? "" : `, about ${duration(seen.left_s)} left`;
  const peak =
    seen.gpu_mem_peak_gb == null ? "" : `, at most ${seen.gpu_mem_peak_gb.toFixed(1)} GB`;
  return [
    ["steps", steps && `${steps}${rate}${left}`],
    [`${theDevice()} memory`, seen.gpu_mem_gb ? `${seen.gpu_mem_gb.toFixed(1)} GB${peak}` : ""],
    [`${theDevice()} busy`, seen.gpu_busy == null ? "" : `${percent(seen.gpu_busy)} of the time`],
    [
      "waits for data",
      seen.waits_for_data == null ? "" : `${percent(seen.waits_for_data)} of the time`,
    ],
  ];
}

// ---- why it waits or holds what it holds

function Why({ job, me }) {
  const waits = WAITING.has(job.state);
  const { data, error, loading, again } = useAsk(
    (signal) => get(at("jobs", job.id, "explain"), { signal }),
    `${job.id} ${job.state} ${job.suspended_by}`,
  );
  const end = html`<button class="quiet" disabled=${loading} onClick=${again}>Ask again</button>`;
  return html`<${Panel} title=${waits || job.suspended_by ? "Why it waits" : "Why it holds this"} end=${end}>
    ${loading && !data ? html`<${Loading} what=${waits ? "Simulating from the present state" : "Asking"} />` : null}
    <${Trouble} error=${error} again=${again} />
    ${
      data &&
      html`<p><${Words} text=${waits ? job.reason : data.reason} />${job.suspended_by ? "; Resume lets it continue" : ""}</p>
      ${waits && html`<${When} start=${data.start} />`}
      ${!waits && !job.suspended_by && html`<${Speeds} job=${job} numbers=${data.numbers} />`}
      ${data.cheapest_change && html`<${Cheapest} job=${job} change=${data.cheapest_change} me=${me} />`}
      ${waits && !data.cheapest_change && !loading && html`<p class="dim">No single change to what it asks for would start it now.</p>`}
      ${data.left_out.length > 0 && html`<p class="small dim">Left out: ${data.left_out.join("; ")}.</p>`}
      ${data.ahead.length > 0 && html`<${Ahead} ahead=${data.ahead} />`}
      ${data.numbers.promised && html`<p class="small dim">promised: ${data.numbers.promised}</p>`}
      ${data.numbers.figures && html`<details class="small dim"><summary>numbers of the policy</summary>${data.numbers.figures}</details>`}`
    }<//>`;
}

/** What is predicted against what is measured: its goodput, and its pace beside those that share its GPUs. */
function Speeds({ job, numbers }) {
  const {
    predicted_goodput: goodput,
    predicted_pace: predicted,
    measured_pace: measured,
    promised_slowdown: promised,
    promise_broken_s: broken,
    beside,
  } = numbers;
  const rows = [
    [
      "goodput",
      goodput == null
        ? ""
        : `${number(goodput)} predicted, ${job.goodput == null ? "not measured yet" : `${number(job.goodput)} measured`}`,
    ],
    ["shares with", beside ? `${beside} job${beside === 1 ? "" : "s"}` : ""],
    [
      "pace beside them",
      predicted == null && measured == null
        ? ""
        : `${predicted == null ? "nothing" : `${percent(predicted)} of alone`} predicted, ` +
          (measured == null ? "not measured yet" : `${percent(measured)} measured`),
    ],
    [
      "promised",
      promised == null
        ? ""
        : `steps take at most ${number(promised)} times as long as alone${broken ? `, broken for ${duration(broken)} in all` : ""}`,
    ],
  ].filter(([, value]) => value);
  return rows.length ? html`<${FactList} facts=${rows} />` : null;
}

function When({ start }) {
  if (!start) return html`<p class="dim">Its start is too far away to be simulated.</p>`;
  if (start.unknown)
    return html`<div><span class="when">unknown</span> <span class="dim"> expected start · ${start.unknown}</span></div>`;
  const by = start.simulations
    ? `8 in 10 of ${start.simulations} simulations`
    : "estimated from the jobs ahead";
  return html`<div><span class="when">${start.p50 == null ? "not in sight" : startsIn(start.p50)}</span>
    <span class="dim"> expected start · ${by}: ${range(start.p10, start.p90)}</span></div>`;
}

const SELF = new Set(["gpus", "kinds", "share", "nodes", "cpus", "mem_gb", "priority"]);

function Cheapest({ job, change, me }) {
  const own = Object.keys(change.fields).every((key) => SELF.has(key));
  const node = change.fields.undrain;
  const inPlace = Object.keys(change.fields).join() === "priority";
  const apply = async () => {
    if (inPlace) {
      const detail = "With this change it starts at once.";
      if (await confirm(`Start now: ${change.text}?`, { detail, action: "Change and start" }))
        await attempt(() => put(at("jobs", job.id, "priority"), change.fields));
    } else if (own) {
      const detail = `${job.name} leaves the queue and is submitted again with this change. It then starts at once.`;
      if (!(await confirm(`Start now: ${change.text}?`, { detail, action: "Change and start" })))
        return;
      const made = await attempt(
        () => post(at("jobs", job.id, "again"), { change: change.fields, replace: true }),
        (reply) => `submitted as ${reply.id}`,
      );
      if (made) go("job", [made.id]);
    } else if (
      node &&
      (await confirm(`Put node ${node} back into service?`, { action: "Put back into service" }))
    ) {
      attempt(() => post(at("nodes", node, "undrain")));
    }
  };
  const may = me.role !== "viewer" && (own || (node && me.role === "admin"));
  return html`<div class="change"><div><h3>The cheapest change that would start it now</h3><div>${ticks(change.text)}</div></div>
    ${
      may
        ? html`<button class="main" onClick=${apply}>${own ? "Change and start …" : "Do it …"}
    </button>`
        : html`<span class="dim small">an admin can do this</span>`
    }</div>`;
}

function Ahead({ ahead }) {
  const waiting = ahead.filter((job) => job.state === "waiting"),
    running = ahead.filter((job) => job.state === "running");
  const list = (some) =>
    some.slice(0, 6).map(
      (job, i) =>
        html`<li key=${i}>${
          job.id
            ? html`<a href=${link("job", [job.id])}>${job.name}
            </a>`
            : html`<span class="dim">${job.name}</span>`
        }<span class="dim">${count(job.gpus, theDevice())}</span></li>`,
    );
  return html`<div class="halves">${waiting.length > 0 && html`<div><h3>Ahead of it</h3><ul class="why-list">${list(waiting)}</ul></div>`}
    ${running.length > 0 && html`<div><h3>Running on devices it could use</h3><ul class="why-list">${list(running)}</ul></div>`}</div>`;
}
