// A job's past: what it held, how it went, and its story in sentences from the log.
import { at, get, query } from "../api.js";
import { Chart } from "../charts.js";
import { clock, count, duration, gpuHours, number, percent, ranges, theDevice } from "../format.js";
import { html, useMemo } from "../lib.js";
import { clusterNow } from "../store.js";
import { Empty, Loading, Panel, Trouble, useAsk } from "../ui.js";
import { Measures, Use } from "./job_use.js";

const MOST = 1000;

export function History({ job, row, metrics }) {
  const key = `${job.id} ${job.state} ${job.attempt} ${row?.progress} ${row?.gpu_seconds}`;
  const ask = (more) => (signal) =>
    get(`${at("jobs", job.id, "events")}${query({ limit: MOST })}${more}`, { signal });
  const story = useAsk(ask("&without=Reported&without=Measured"), key);
  const latest = useAsk(ask("&without=Measured"), key);
  const spans = useAsk((signal) => get("/timeline" + query({ job: job.id }), { signal }), key);
  const reports = useMemo(() => {
    const init = story.data?.events.find(({ event }) => event === "Submitted")?.job.batch?.init;
    return (latest.data?.events || [])
      .filter(({ event }) => event === "Reported")
      .map((event) => [event.at, { ...event.report, init }]);
  }, [latest.data, story.data]);
  const held = [...(spans.data?.spans || [])].sort((a, b) => a.start - b.start);
  return html`<${Use} job=${job} reports=${reports} metrics=${metrics} spans=${held} />
    <${Allocations} job=${job} spans=${spans} held=${held} />
    <div class="halves"><${Measures} reports=${reports} /><${Story} story=${story} job=${job} /></div>`;
}

/** GPUs over time as steps, from the spans. */
function Allocations({ job, spans, held }) {
  const chart = useMemo(() => {
    const xs = [job.submitted],
      ys = [0];
    for (const span of held) {
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
  const series = [{ label: `${theDevice()}s`, step: true, fill: "oklch(58% 0.15 262 / 15%)" }];
  return html`<${Panel} title="What it held" end=${lost ? html`<span class="dim small">${gpuHours(lost)} of work lost to stops</span>` : null}>
    <${Trouble} error=${spans.error} />
    ${
      held.length
        ? html`${
            held.length > 1 &&
            html`<${Chart} data=${chart} series=${series} height=${130} zero=${true} whole=${chart[1].every(Number.isInteger)}
            describe=${`${theDevice()}s held over time: ${count(held.length, "span")}`} />`
          }
          <${Spans} held=${held} />`
        : spans.loading
          ? html`<${Loading} />`
          : html`<p class="dim">It has not held any devices yet.</p>`
    }<//>`;
}

function Spans({ held }) {
  const where = (span) =>
    span.on.map((part) => `${part.node}: ${ranges(part.gpus)}`).join("; ") +
    partOf(span.share, span.on);
  const some = (read) => held.some((span) => read(span));
  const [ends, loses] = [some((span) => span.how), some((span) => span.lost_gpu_s)];
  const row = (span) =>
    html`<tr key=${span.start}><td class="nowrap">${clock(span.start)}</td><td class="nowrap roomy">${span.end === null ? "now" : clock(span.end)}</td>
      <td class="num nowrap">${duration((span.end ?? clusterNow()) - span.start)}</td><td class="num roomy">${span.attempt}</td>
      <td>${where(span)}</td>${ends && html`<td class="roomy">${span.how}</td>`}
      ${loses && html`<td class="num nowrap roomy">${span.lost_gpu_s ? gpuHours(span.lost_gpu_s) : ""}</td>`}</tr>`;
  return html`<div class="scroll events" tabindex="0" role="region" aria-label="Spans"><table>
    <thead><tr><th scope="col">From</th><th class="roomy" scope="col">To</th><th class="num" scope="col">For</th>
      <th class="num roomy" scope="col">Attempt</th><th scope="col">Where</th>
      ${ends && html`<th class="roomy" scope="col">Ended</th>`}${loses && html`<th class="num roomy" scope="col">Work lost</th>`}</tr></thead>
    <tbody>${[...held].reverse().slice(0, 100).map(row)}</tbody></table></div>`;
}

// ---- its story

const priorityWord = (priority) =>
  priority > 0 ? "guaranteed" : priority <= -1 ? "opportunistic" : priority < 0 ? "spot" : "normal";

const after = (seconds, what) => (seconds >= 1 ? ` after ${what} ${duration(seconds)}` : "");

/** An event as a sentence; `was` is what came before it: when it was submitted, began to wait and to run. */
const TELL = {
  Submitted: ({ job }) =>
    `${job.user ? `${job.user} submitted it` : "It was submitted"} for tenant ${job.tenant || "default"}`,
  Started: (event, was) =>
    `Attempt ${event.attempt} began to run${after(event.at - was.waits, "waiting")}`,
  Stopped: (event, was) =>
    `Attempt ${event.attempt} left its ${theDevice()}s${after(event.at - was.runs, "running for")}`,
  Finished: (event, was) => `It ended well${after(event.at - was.runs, "running for")}`,
  Failed: (event) =>
    `Attempt ${event.attempt} failed: ${event.reason || "no reason is known"}${event.retry ? "; it is tried again" : ""}`,
  StartFailed: (event) => `It could not start: ${event.reason || "no reason is known"}`,
  Cancelled: (event) => `It was cancelled${event.reason ? `: ${event.reason}` : ""}`,
  Suspended: (event) => `${event.by || "Its owner"} suspended it`,
  Resumed: () => "It was resumed",
  PriorityChanged: (event) => `Its priority is ${priorityWord(event.priority)} from here on`,
  Saved: (event) => `It saved a checkpoint at step ${number(event.step ?? 0)}`,
  Noticed: (event) => event.text,
  DeadlineMissed: () => "Its deadline passed",
  Foretold: (event) =>
    `It was predicted to start in ${duration(event.low_s)} to ${duration(event.high_s)}`,
  Slept: () => `It went to sleep: its ${theDevice()}s are free, and it goes on where it is`,
  SleepFailed: (event) => `It could not be put to sleep: ${event.reason || "no reason is known"}`,
  Awoke: () => "It woke up and goes on",
  StartedAhead: (event) => `It started ahead of its turn on ${places(event.on)}, and sleeps there`,
  Resizable: () => "It can be resized while it trains",
  Resized: (event) =>
    `It was resized while it trained, with a pause of ${duration(event.pause_s ?? 0)}`,
  ResizeFailed: () => "It could not be resized while it trained",
  Observed: (event) =>
    [
      event.peak_gb == null
        ? ""
        : `It holds up to ${number(event.peak_gb)} GB of its ${theDevice()}`,
      event.pace == null
        ? ""
        : `It keeps ${percent(event.pace)} of its speed alone beside ${count((event.beside ?? []).length, "other job")}`,
    ]
      .filter(Boolean)
      .join("; "),
};

/** How much of its GPUs is meant, where it is not all. */
function partOf(share, parts) {
  if (share >= 1) return "";
  const single = parts.length === 1 && parts[0].gpus.length === 1;
  return `, ${percent(share)} of ${single ? "it" : "each"}`;
}

const places = (to) =>
  to.slices.map((part) => `${theDevice()} ${ranges(part.gpus)} of ${part.node}`).join(" and ");

/** A decision as far as it is about this job; empty if it left the job as it was. */
function tellDecision(decision, id, was) {
  const name = `Decision ${decision.number}`;
  if (decision.rejected?.[id]) return `${name} was rejected: ${decision.rejected[id]}`;
  const why = decision.reasons?.[id] ? `: ${decision.reasons[id]}` : "";
  if (!decision.changes || !Object.hasOwn(decision.changes, id))
    return why && `${name} left it waiting${why}`;
  const to = decision.changes[id];
  if (to === null) return `${name} took its ${theDevice()}s back${why}`;
  const share = partOf(to.sharing?.share ?? 1, to.slices);
  const text = `${places(to)}${share}${to.plan ? `, by plan ${to.plan}` : ""}`;
  if (text === was.place) return "";
  const kept = was.place && was.place.startsWith(places(to));
  was.place = text;
  return `${name} ${kept ? "left it on" : was.runs ? "moved it to" : "gave it"} ${text}${why}`;
}

const OFTEN = new Set(["Saved", "Foretold"]); // of several in a row the last is told
const LEFT = / left it waiting.*$/; // so is that of several decisions for the same reason

/** `[number, time, sentence]` of each event, the newest first. */
export function storyOf(events, id) {
  const was = { waits: null, runs: null, place: "" };
  const rows = [];
  let before = null;
  for (const event of events) {
    const kind = event.event;
    const text =
      kind === "Decided" ? tellDecision(event, id, was) : (TELL[kind] || (() => kind))(event, was);
    if (kind === "Submitted" || kind === "Resumed") was.waits = event.at;
    if (kind === "Started") was.runs = event.at;
    if (kind === "Stopped" || kind === "Failed" || kind === "StartFailed")
      Object.assign(was, { waits: event.at, runs: null, place: "" });
    if (!text) continue;
    const row = [event.seq, event.at, text, 1];
    const sort = OFTEN.has(kind) ? kind : text.match(LEFT)?.[0];
    if (sort && before === sort) row[3] += rows.pop()[3];
    rows.push(row);
    before = sort;
  }
  return rows
    .reverse()
    .map(([seq, when, text, times]) => [
      seq,
      when,
      times > 1 ? `${text} (the last of ${times} times)` : text,
    ]);
}

function Story({ story, job }) {
  const rows = storyOf(story.data?.events || [], job.id);
  const row = ([seq, when, text]) =>
    html`<tr key=${seq}><td class="nowrap dim">${clock(when)}</td><td class="wrap" dir="auto">${text}</td></tr>`;
  return html`<${Panel} title="History" flush=${true} end=${html`<span class="dim small">the newest first</span>`}>
    <${Trouble} error=${story.error} />
    ${
      rows.length
        ? html`<div class="events scroll" tabindex="0" role="region" aria-label="History of the job"><table><tbody>${rows.map(row)}</tbody></table></div>`
        : story.loading
          ? html`<${Loading} />`
          : html`<${Empty} title="No events">The log has no events of this job.<//>`
    }<//>`;
}
