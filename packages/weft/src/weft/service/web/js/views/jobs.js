// The queue and all jobs: find, group, sort, choose some and act on them. What is shown is in the address.
import { get, query as ask } from "../api.js";
import { count } from "../format.js";
import { html, useEffect, useMemo, useState } from "../lib.js";
import { MOST_COMPARED } from "../curves.js";
import { JobActions } from "../job_actions.js";
import { fold, GROUPS, ORDER, tellApart, wanted } from "../job_list.js";
import { columnOf, JobTable, useColumns } from "../job_table.js";
import { go, setQuery } from "../route.js";
import { ENDED, remember, useStore, WAITING } from "../store.js";
import { toast } from "../ui.js";

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

export function JobsView({ route, me }) {
  const store = useStore();
  const { query } = route;
  const [chosen, setChosen] = useState(new Set());
  const [columns, columnsMenu] = useColumns();
  const line = useLine(store);
  const group = query.group || (query.q || query.name ? "" : "sweep");
  const nodeKinds = useMemo(
    () => new Map([...store.nodes.values()].map((node) => [node.id, node.kind])),
    [store.nodesVersion],
  );
  const asked = JSON.stringify(query);
  const jobs = useMemo(() => {
    const matches = [];
    for (const job of store.jobs.values()) {
      for (const part of job.on) part.kind = nodeKinds.get(part.node);
      if (wanted(job, query)) matches.push(job);
    }
    return matches;
  }, [store.jobsVersion, store.reasons, nodeKinds, asked]);
  const apart = useMemo(() => tellApart(jobs), [jobs]);
  const rows = useMemo(
    () => sortRows(fold(jobs, group), query.sort || "", line),
    [jobs, line, asked],
  );
  const tenants = [...new Set([...store.jobs.values()].map((job) => job.tenant))].sort();
  const kinds = [...new Set(nodeKinds.values())].sort();
  const picked = jobs.filter((job) => chosen.has(job.id));
  const select = (label, field, options, usual) =>
    html`<select aria-label=${label} value=${query[field] || usual}
      onChange=${(event) => setQuery({ [field]: event.target.value === usual ? "" : event.target.value })}>
      ${options.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select>`;
  const named = (all, values) => [["", all], ...values.map((value) => [value, value])];
  return html`<section class="panel" aria-label="Jobs">
    <header><h1>Jobs</h1><span class="dim" role="status">${count(jobs.length, "job")}</span>
      <div class="end filters">
        <input type="search" aria-label="Filter by words" placeholder="Filter by name, user, reason"
        value=${query.q || ""} onInput=${(event) => setQuery({ q: event.target.value })} />
        ${["user", "name"].map(
          (field) =>
            query[field] &&
            html`<button key=${field}
        aria-label=${`Show every ${field} again`} onClick=${() => setQuery({ [field]: "" })}>${field}: ${query[field]} ✕</button>`,
        )}
        ${select(
          "State",
          "state",
          STATES.map((state) => [state, state]),
          "recent",
        )}
        ${tenants.length > 1 && select("Tenant", "tenant", named("all tenants", tenants), "")}
        ${kinds.length > 1 && select("Kind of GPU", "kind", named("all kinds", kinds), "")}
        ${select("Group by", "group", [["", "group sweeps"], ["none", "no groups"], ...groupChoices], "")}
        ${columnsMenu}
        <${Saved} query=${query} />
      </div></header>
    ${picked.length > 0 && html`<${Actions} jobs=${picked} viewer=${me.role === "viewer"} clear=${() => setChosen(new Set())} />`}
    ${ENDED.has(query.state) || query.state === "all" ? html`<${Older} state=${query.state} />` : null}
    <${JobTable} jobs=${jobs} rows=${rows} apart=${apart} line=${line} columns=${columns} chosen=${chosen}
    setChosen=${setChosen} query=${query} />
  </section>`;
}

const groupChoices = Object.keys(GROUPS)
  .slice(1)
  .map((group) => [group, `group by ${group}`]);

function sortRows(rows, sort, line) {
  const column = columnOf(sort.replace("-", ""));
  if (!column)
    return [...rows].sort(
      (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.submitted - a.submitted,
    );
  const sign = sort.startsWith("-") ? -1 : 1;
  const keyed = rows.map((job) => [column.by(job, line), job]);
  keyed.sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0));
  return keyed.map(([, job]) => job);
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
  return html`${
    Object.keys(saved).length > 0 &&
    html`<select aria-label="Saved filters" value=${chosen}
    onChange=${use}><option value="">saved filters</option>${Object.keys(saved).map(
      (name) => html`<option key=${name}
      value=${name}>${name}</option>`,
    )}</select>`
  }
    ${
      Object.keys(query).length > 0 &&
      (chosen
        ? html`<button class="quiet"
    onClick=${drop}>Forget</button>`
        : html`<button class="quiet" onClick=${save}>Save</button>`)
    }`;
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
  return html`<div class="chosen"><span class="dim">The most recently ended jobs.</span>
    <button disabled=${busy} onClick=${load}>${busy ? "Reading …" : "Load older jobs"}</button></div>`;
}

/** Who starts when, as the service simulates it from now on: `entries` by job, null while nothing is known. */
function useLine(store) {
  const [line, setLine] = useState(NO_LINE);
  const some = [...store.jobs.values()].some((job) => WAITING.has(job.state));
  useEffect(() => {
    if (!some) {
      setLine(NO_LINE);
      return undefined;
    }
    const abort = new AbortController();
    let timer = 0;
    const ask = () =>
      get("/queue", { signal: abort.signal }).then(
        (queue) => {
          const entries = new Map(queue.jobs.map((entry) => [entry.id, entry]));
          setLine({ entries, unknown: queue.unknown });
          timer = setTimeout(ask, Math.max(5, queue.again_s) * 1000);
        },
        (error) => {
          if (error.name === "AbortError") return;
          setLine({ entries: new Map(), unknown: error.message });
          timer = setTimeout(ask, 15_000);
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

const NO_LINE = { entries: null, unknown: "" };

function Compare({ jobs }) {
  const compare = () => go("compare", [], { jobs: jobs.map((job) => job.id).join(",") });
  const many = jobs.length > MOST_COMPARED;
  return html`<button onClick=${compare} disabled=${many} title=${many ? `at most ${MOST_COMPARED} at a time` : ""}>Compare</button>`;
}

function Actions({ jobs, clear, viewer }) {
  return html`<div class="chosen"><b>${count(jobs.length, "job")} chosen</b>
    ${jobs.length > 1 && html`<${Compare} jobs=${jobs} />`}
    ${!viewer && html`<${JobActions} jobs=${jobs} then=${clear} undo=${true} />`}
    <button class="quiet" onClick=${clear}>Choose none</button></div>`;
}
