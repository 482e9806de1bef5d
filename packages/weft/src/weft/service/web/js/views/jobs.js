// The queue and all jobs: find, sort, choose some and act on them. What is shown is in the address.
import { get, query as ask } from "../api.js";
import { asks, count, duration, number, percent, range, ranges, theDevice } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { JobActions } from "../job_actions.js";
import { go, link, setQuery } from "../route.js";
import { clusterNow, ENDED, held, reasonOf, remember, useStore, WAITING } from "../store.js";
import { Bar, Empty, Name, State, toast } from "../ui.js";

const AROUND = 12;
const ON_A_PHONE = new Set(["name", "state", "gpus"]);
const narrow = window.matchMedia("(max-width: 560px)");
const rowHeight = () => (narrow.matches ? 57 : 39); // two lines: why is below the name
const STATES = [
  "recent",
  "active",
  "waiting",
  "running",
  "pending",
  "preempted",
  "starting",
  "checkpointing",
  "suspended",
  "succeeded",
  "failed",
  "cancelled",
  "all",
];
const ORDER = [
  "running",
  "starting",
  "checkpointing",
  "preempted",
  "pending",
  "suspended",
  "failed",
  "succeeded",
  "cancelled",
];

// By worth: where there is little room the last are left out first, and those that hold nothing always.
const COLUMNS = [
  { key: "name", label: "Job", cls: "c-name", by: (job) => job.name.toLowerCase() },
  { key: "state", label: "State", cls: "c-state", by: (job) => ORDER.indexOf(job.state) },
  {
    key: "why",
    label: "Why or where",
    cls: "c-why",
    by: (job) => whyOrWhere(job),
    has: (job) => whyOrWhere(job),
  },
  {
    key: "gpus",
    label: "GPUs",
    cls: "c-gpus",
    num: true,
    by: (job) => held(job) || job.gpus.asked / 1000,
  },
  {
    key: "start",
    label: "Starts in",
    cls: "c-start",
    num: true,
    by: (job, line) => line.get(job.id)?.place ?? 1e9,
    has: (job, line) => WAITING.has(job.state) && line.has(job.id),
  },
  {
    key: "progress",
    label: "Done",
    cls: "c-prog",
    by: (job) => job.progress ?? -1,
    has: (job) => job.progress != null,
  },
  { key: "tenant", label: "Tenant", cls: "c-tenant", by: (job) => job.tenant },
  {
    key: "goodput",
    label: "Goodput",
    cls: "c-good",
    num: true,
    by: (job) => job.goodput ?? -1,
    has: (job) => job.goodput != null,
  },
  {
    key: "restarts",
    label: "Restarts",
    cls: "c-rest",
    num: true,
    by: (job) => job.restarts,
    has: (job) => job.restarts > 0,
  },
  { key: "age", label: "Age", cls: "c-age", num: true, by: (job) => -job.submitted },
];

/** Why it waits, or the nodes that it is on. */
export const whyOrWhere = (job) =>
  reasonOf(job) || (job.on.length ? `on ${job.on.map((part) => part.node).join(", ")}` : "");

function ofState(job, state) {
  if (state === "active") return !ENDED.has(job.state);
  if (state === "waiting") return WAITING.has(job.state);
  return state === "recent" || state === "all" || job.state === state;
}

export function wanted(job, { q = "", state = "recent", tenant = "", kind = "" }) {
  if (!ofState(job, state)) return false;
  if (tenant && job.tenant !== tenant) return false;
  if (
    kind &&
    !(
      job.kinds.includes(kind) ||
      (!job.kinds.length && !job.on.length) ||
      job.on.some((part) => part.kind === kind)
    )
  )
    return false;
  if (!q) return true;
  const text =
    `${job.name}\n${job.id}\n${job.user}\n${job.tenant}\n${job.app}\n${reasonOf(job)}`.toLowerCase();
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

export function JobsView({ route, me }) {
  const store = useStore();
  const { query } = route;
  const [chosen, setChosen] = useState(new Set());
  const line = useLine(store);
  const nodeKinds = useMemo(
    () => new Map([...store.nodes.values()].map((node) => [node.id, node.kind])),
    [store.nodesVersion],
  );
  const jobs = useMemo(() => {
    const column =
      COLUMNS.find((candidate) => candidate.key === (query.sort || "").replace("-", "")) || null;
    const matches = [];
    for (const job of store.jobs.values()) {
      for (const part of job.on) part.kind = nodeKinds.get(part.node);
      if (wanted(job, query)) matches.push(job);
    }
    if (!query.q) foldSweeps(matches);
    if (!column)
      return matches.sort(
        (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.submitted - a.submitted,
      );
    const sign = query.sort.startsWith("-") ? -1 : 1;
    const keyed = matches.map((job) => [column.by(job, line), job]);
    keyed.sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0));
    return keyed.map(([, job]) => job);
  }, [store.jobsVersion, store.reasons, line, JSON.stringify(query)]);
  const tenants = [...new Set([...store.jobs.values()].map((job) => job.tenant))].sort();
  const kinds = [...new Set(nodeKinds.values())].sort();
  const picked = jobs.filter((job) => chosen.has(job.id));
  return html`<section class="panel" aria-label="Jobs">
    <header><h1>Jobs</h1><span class="dim" role="status">${count(jobs.length, "job")}</span>
      <div class="end filters">
        <input type="search" aria-label="Filter by words" placeholder="Filter by name, user, reason" value=${query.q || ""} onInput=${(event) => setQuery({ q: event.target.value })} />
        <select aria-label="State" value=${query.state || "recent"} onChange=${(event) => setQuery({ state: event.target.value === "recent" ? "" : event.target.value })}>${STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}</select>
        ${tenants.length > 1 && html`<select aria-label="Tenant" value=${query.tenant || ""} onChange=${(event) => setQuery({ tenant: event.target.value })}><option value="">all tenants</option>${tenants.map((tenant) => html`<option key=${tenant} value=${tenant}>${tenant}</option>`)}</select>`}
        ${kinds.length > 1 && html`<select aria-label="Kind of GPU" value=${query.kind || ""} onChange=${(event) => setQuery({ kind: event.target.value })}><option value="">all kinds</option>${kinds.map((kind) => html`<option key=${kind} value=${kind}>${kind}</option>`)}</select>`}
        <${Saved} query=${query} />
      </div></header>
    ${picked.length > 0 && html`<${Actions} jobs=${picked} clear=${() => setChosen(new Set())} />`}
    ${ENDED.has(query.state) || query.state === "all" ? html`<${Older} state=${query.state} />` : null}
    <${Table} jobs=${jobs} line=${line} chosen=${chosen} setChosen=${setChosen} query=${query} viewer=${me.role === "viewer"} />
  </section>`;
}

/** Of each sweep one row: its first job that is not done, with how many there are. */
export function foldSweeps(jobs) {
  const first = new Map();
  for (const job of jobs) if (job.app) first.set(job.app, [...(first.get(job.app) || []), job]);
  for (const [app, members] of first) {
    if (members.length < 2) continue;
    const shown = [...members].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state))[0];
    const left = jobs.filter((job) => job.app !== app);
    jobs.splice(0, jobs.length, ...left, { ...shown, name: app, members: members.length });
  }
}

const SAVED = "weft-filters";
const readSaved = () => JSON.parse(localStorage.getItem(SAVED) || "{}");

/** Filters that someone gave a name, kept by the browser. */
function Saved({ query }) {
  const [saved, setSaved] = useState(readSaved);
  const keep = (next) => {
    localStorage.setItem(SAVED, JSON.stringify(next));
    setSaved(next);
  };
  const chosen =
    Object.keys(saved).find((name) => JSON.stringify(saved[name]) === JSON.stringify(query)) || "";
  const save = () => {
    const name = window.prompt("A name for this filter");
    if (name) keep({ ...saved, [name]: query });
  };
  const drop = () =>
    keep(Object.fromEntries(Object.entries(saved).filter(([name]) => name !== chosen)));
  const use = (event) => go("jobs", [], saved[event.target.value] || {});
  return html`${Object.keys(saved).length > 0 && html`<select aria-label="Saved filters" value=${chosen} onChange=${use}><option value="">saved filters</option>${Object.keys(saved).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>`}
    ${Object.keys(query).length > 0 && (chosen ? html`<button class="quiet" onClick=${drop}>Forget</button>` : html`<button class="quiet" onClick=${save}>Save</button>`)}`;
}

/** Jobs that ended before those that are watched, a page at a time. */
function Older({ state }) {
  const [after, setAfter] = useState("");
  const [busy, setBusy] = useState(false);
  const load = async () => {
    setBusy(true);
    try {
      const page = await get(
        "/jobs" + ask({ state: state === "all" ? "" : state, limit: 1000, after }),
      );
      remember(page.jobs);
      setAfter(page.next);
    } catch (error) {
      toast(error.message, true);
    }
    setBusy(false);
  };
  useEffect(() => setAfter(""), [state]);
  if (after === null)
    return html`<div class="chosen"><span class="dim">All jobs are shown.</span></div>`;
  return html`<div class="chosen"><span class="dim">The most recently ended jobs.</span><button disabled=${busy} onClick=${load}>${busy ? "Reading …" : "Load older jobs"}</button></div>`;
}

/** Who starts when, as the service simulates it from now on. */
function useLine(store) {
  const [line, setLine] = useState(new Map());
  const some = [...store.jobs.values()].some((job) => WAITING.has(job.state));
  useEffect(() => {
    if (!some) {
      setLine(new Map());
      return undefined;
    }
    const abort = new AbortController();
    let timer = 0;
    const ask = () =>
      get("/queue", { signal: abort.signal }).then(
        (queue) => {
          setLine(new Map(queue.jobs.map((entry) => [entry.id, entry])));
          timer = setTimeout(ask, Math.max(5, queue.again_s) * 1000);
        },
        (error) => {
          if (error.name !== "AbortError") timer = setTimeout(ask, 15_000);
        },
      );
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [some]);
  return line;
}

function Actions({ jobs, clear }) {
  return html`<div class="chosen"><b>${count(jobs.length, "job")} chosen</b>
    <${JobActions} jobs=${jobs} then=${clear} />
    <button class="quiet" onClick=${clear}>Choose none</button></div>`;
}

function Table({ jobs, line, chosen, setChosen, query, viewer }) {
  const box = useRef(null);
  const [range, setRange] = useState([0, 60]);
  const look = () => {
    const view = box.current;
    const first = Math.max(0, Math.floor(view.scrollTop / rowHeight()) - AROUND);
    const last = Math.ceil((view.scrollTop + view.clientHeight) / rowHeight()) + AROUND;
    setRange((was) => (was[0] === first && was[1] === last ? was : [first, last]));
  };
  useEffect(() => {
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  const shown = jobs.slice(range[0], range[1]);
  const above = Math.min(range[0], jobs.length) * rowHeight(),
    below = Math.max(0, jobs.length - range[1]) * rowHeight();
  const columns = useMemo(
    () =>
      COLUMNS.filter(
        (column) =>
          (!narrow.matches || ON_A_PHONE.has(column.key)) &&
          (!column.has || jobs.some((job) => column.has(job, line))),
      ),
    [jobs, line, narrow.matches],
  );
  const wide = columns.length + (viewer ? 0 : 1);
  const all = jobs.length > 0 && jobs.every((job) => chosen.has(job.id));
  const pick = (id, on) =>
    setChosen((was) => {
      const next = new Set(was);
      if (on) next.add(id);
      else next.delete(id);
      return next;
    });
  const sort = (key) =>
    setQuery({ sort: query.sort === key ? `-${key}` : query.sort === `-${key}` ? "" : key });
  if (!jobs.length)
    return html`<div class="jobs-view" ref=${box}><${Empty} title=${Object.keys(query).length ? "No jobs match this filter" : "No jobs have been submitted yet"}>${Object.keys(query).length ? "Change the filter, or choose all states." : html`Submit one here, or with <code>weft submit job.yaml</code>.`}<//></div>`;
  return html`<div class="jobs-view" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label="Table of jobs">
    <table aria-rowcount=${jobs.length + 1}>
      <thead><tr>${!viewer && html`<th class="c-pick" scope="col"><input type="checkbox" aria-label="Choose all" checked=${all} onChange=${(event) => setChosen(event.target.checked ? new Set(jobs.map((job) => job.id)) : new Set())} /></th>`}
        ${columns.map(
          (
            column,
          ) => html`<th key=${column.key} scope="col" class="${column.cls} ${column.num ? "num" : ""}" aria-sort=${query.sort === column.key ? "ascending" : query.sort === `-${column.key}` ? "descending" : null}>
          <button onClick=${() => sort(column.key)}>${column.key === "gpus" && theDevice() !== "GPU" ? "Slots" : column.label}<span aria-hidden="true">${query.sort === column.key ? "↑" : query.sort === `-${column.key}` ? "↓" : ""}</span></button></th>`,
        )}</tr></thead>
      <tbody>
        ${above > 0 && html`<tr class="filler" aria-hidden="true"><td colspan=${wide} style=${{ height: `${above}px` }}></td></tr>`}
        ${shown.map((job, i) => html`<${Row} key=${job.id} job=${job} index=${range[0] + i} columns=${columns} line=${line} chosen=${chosen.has(job.id)} pick=${viewer ? null : pick} />`)}
        ${below > 0 && html`<tr class="filler" aria-hidden="true"><td colspan=${wide} style=${{ height: `${below}px` }}></td></tr>`}
      </tbody></table></div>`;
}

/** "12 min", with the interval for who asks. */
export function startText(entry) {
  if (!entry || entry.p50 == null) return { text: "", title: "" };
  return {
    text: duration(entry.p50),
    title: `8 in 10 simulations: ${range(entry.p10, entry.p90)}`,
  };
}

const CELLS = {
  name: (job, { why }) =>
    html`<a class="name" aria-label=${job.name} href=${job.members ? link("sweep", [job.app]) : link("job", [job.id])}><${Name} text=${job.name} /></a>${job.members ? html`<span class="dim members"> ${count(job.members, "job")}</span>` : ""}<div class="below why">${[job.members && count(job.members, "job"), why].filter(Boolean).join(" · ")}</div>`,
  state: (job) => html`<${State} state=${job.state} />`,
  why: (_, { why }) => why,
  gpus: (job, { now }) =>
    now && number(now * job.share) !== asks(job)
      ? html`${number(now * job.share)}<span class="dim"> / ${asks(job)}</span>`
      : asks(job),
  start: (_, { entry, start }) =>
    entry
      ? html`${start.text}${entry.place ? html` <span class="dim">#${entry.place}</span>` : ""}`
      : "",
  progress: (job) =>
    job.progress == null
      ? ""
      : html`<div class="progress"><${Bar} part=${job.progress} label=${percent(job.progress)} /><span class="small">${percent(job.progress)}</span></div>`,
  tenant: (job) => job.tenant,
  goodput: (job) => number(job.goodput),
  restarts: (job) => job.restarts || "",
  age: (job) => duration((job.ended ?? clusterNow()) - job.submitted),
};

function Row({ job, index, columns, line, chosen, pick }) {
  const entry = WAITING.has(job.state) ? line.get(job.id) : null;
  const facts = { now: held(job), entry, start: startText(entry), why: whyOrWhere(job) };
  const titles = {
    name: `${job.name}\n${job.id}`,
    gpus: job.on.map((part) => `${part.node}: ${ranges(part.gpus)}`).join("\n"),
    start: facts.start.title,
    why: facts.why,
    age: "since it was submitted",
  };
  return html`<tr aria-rowindex=${index + 2}>
    ${pick && html`<td class="c-pick"><input type="checkbox" aria-label=${`Choose ${job.name}`} checked=${chosen} onChange=${(event) => pick(job.id, event.target.checked)} /></td>`}
    ${columns.map((column) => html`<td key=${column.key} class="${column.cls} ${column.num ? "num" : ""} ${column.key === "why" ? "why" : ""}" title=${titles[column.key]}>${CELLS[column.key](job, facts)}</td>`)}</tr>`;
}
