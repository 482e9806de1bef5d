// One job: what it does, why it waits, what it printed, and what can be done about it.
import { at, get, remove } from "../api.js";
import { asks, clock, duration, gpuHours, number, percent } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { link } from "../route.js";
import { clusterNow, ENDED, store, useStore } from "../store.js";
import { attempt, Bar, confirm, Loading, Panel, State, Trouble } from "../ui.js";
import { Logs } from "./job_logs.js";

/** The whole job, asked for again when its row changes. */
function useJob(id) {
  useStore();
  const row = store.jobs.get(id);
  const [job, setJob] = useState(null);
  const [error, setError] = useState(null);
  const mark = row ? `${row.state} ${row.attempt} ${row.progress} ${row.goodput} ${row.batch} ${store.reasons.get(row.why)}` : "";
  useEffect(() => {
    let over = false;
    get(at("jobs", id)).then(found => { if (!over) { setJob(found); setError(null); } }, problem => { if (!over) setError(problem); });
    return () => { over = true; };
  }, [id, mark, store.link]);
  return { job, row, error };
}

export function JobView({ route, me }) {
  const id = route.parts[0] || "";
  const { job, row, error } = useJob(id);
  if (error && !job) return html`<${Trouble} error=${error} /><p><a href=${link("jobs")}>All jobs</a></p>`;
  if (!job) return html`<${Loading} what="Asking for the job" />`;
  const ended = ENDED.has(job.state);
  const cancel = async () => {
    if (await confirm(`Cancel ${job.name}?`, { detail: job.allocation ? "It has its grace time to leave its devices." : "It leaves the queue.", action: "Cancel the job", danger: true })) attempt(() => remove(at("jobs", job.id)), `${job.name} is cancelled`);
  };
  return html`
    <div class="head"><h1>${job.name}</h1><${State} state=${job.state} /><span class="dim mono small">${job.id}</span>
      <div class="end">${me.role !== "viewer" && !ended && html`<button class="danger" onClick=${cancel}>Cancel …</button>`}</div></div>
    ${job.notices.length > 0 && html`<div class="note">${job.notices.slice(-3).map(one => html`<div key=${one.at}>${one.text}</div>`)}</div>`}
    <div class="halves">
      <${Facts} job=${job} row=${row} />
      <${Logs} job=${job} />
    </div>`;
}

function Facts({ job, row }) {
  const now = clusterNow();
  const held = job.allocation ? job.allocation.map(part => `${part.node}: GPU ${part.gpus.join(", ")} (${part.kind})`) : [];
  const facts = [
    ["why", job.reason], ["tenant", job.tenant + (job.user ? ` · ${job.user}` : "")], ["asks for", `${asks({ gpus: job.gpus, share: row?.share ?? 1 })} GPUs${job.kinds.length ? " of " + job.kinds.join(" or ") : ""}${job.nodes ? ` on ${job.nodes} nodes` : ""}`],
    ["holds", held.length ? html`${held.map(text => html`<div key=${text}>${text}</div>`)}` : "nothing"],
    ["priority", job.priority], ["batch", number(job.batch)], ["goodput", job.goodput == null ? "" : `${number(job.goodput)} useful samples/s`],
    ["speed", job.speed == null ? "" : `${number(job.speed)} samples/s`], ["pace", row?.pace == null ? "" : `${percent(row.pace)} of what it does alone`],
    ["handed in", clock(job.submitted)], ["started", job.started ? `${clock(job.started)}, after ${duration(job.started - job.submitted)}` : ""],
    ["ended", job.ended ? `${clock(job.ended)}, after ${duration(job.ended - job.submitted)}` : ""], ["waits for", !job.started && !job.ended ? duration(now - job.submitted) : ""],
    ["used", gpuHours(job.gpu_seconds)], ["restarts", job.restarts ? `${job.restarts}${job.failures ? `, ${job.failures} after failures` : ""}` : ""],
    ["checkpoint", job.saved_step == null ? "" : `step ${number(job.saved_step)}`], ["deadline", job.deadline ? `${clock(job.deadline)}${job.deadline_missed ? ", missed" : ""}` : ""],
    ["app", job.app], ["command", job.command.length ? html`<code>${job.command.join(" ")}</code>` : ""],
  ].filter(([, value]) => value !== "" && value != null);
  return html`<${Panel} title="Now">
    ${job.progress != null && html`<div><${Bar} part=${job.progress} label=${`${percent(job.progress)} done`} /><span class="small dim">${percent(job.progress)} done</span></div>`}
    <dl class="facts">${facts.map(([key, value]) => html`<dt key=${key}>${key}</dt><dd>${value}</dd>`)}</dl><//>`;
}

