// The table of jobs: columns that people choose, and of 10,000 rows those that are on the screen.
import {
  asks,
  clock,
  count,
  duration,
  gpuHours,
  number,
  percent,
  ranges,
  theDevice,
} from "./format.js";
import { entryOf, heldNow, ORDER, startText, whyOrWhere } from "./job_list.js";
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { link, setQuery } from "./route.js";
import { clusterNow, WAITING } from "./store.js";
import { Bar, Empty, Name, State, Words } from "./ui.js";

const AROUND = 4;
const ON_A_PHONE = new Set(["name", "state", "gpus"]);
const narrow = window.matchMedia("(max-width: 560px)");
const rowHeight = () => (narrow.matches ? 73 : 47); // two lines

// By worth: where there is little room the last are left out first, and those that hold nothing always.
// `more` are shown only if someone chose them.
const COLUMNS = [
  { key: "name", label: "Job", by: (job) => job.name.toLowerCase() },
  { key: "state", label: "State", by: (job) => ORDER.indexOf(job.state) },
  { key: "why", label: "Why or where", by: whyOrWhere, has: whyOrWhere },
  { key: "gpus", label: "GPUs", num: true, by: (job) => heldNow(job) || job.gpus.asked / 1000 },
  {
    key: "start",
    label: "Starts in",
    num: true,
    by: (job, line) => entryOf(job, line)?.place ?? 1e9,
    has: (job) => WAITING.has(job.state),
  },
  {
    key: "progress",
    label: "Done",
    by: (job) => job.progress ?? -1,
    has: (job) => job.progress != null,
  },
  { key: "tenant", label: "Tenant", by: (job) => job.tenant },
  {
    key: "goodput",
    label: "Goodput",
    num: true,
    by: (job) => job.goodput ?? -1,
    has: (job) => job.goodput != null,
  },
  {
    key: "restarts",
    label: "Restarts",
    num: true,
    by: (job) => job.restarts,
    has: (job) => job.restarts > 0,
  },
  { key: "age", label: "Age", num: true, by: (job) => -job.submitted },
  { key: "user", label: "User", more: true, by: (job) => job.user },
  { key: "id", label: "Id", more: true, by: (job) => job.id },
  { key: "kind", label: "Kind", more: true, by: kindsOf },
  { key: "priority", label: "Priority", more: true, by: (job) => job.priority },
  { key: "used", label: "Used", more: true, num: true, by: (job) => job.gpu_seconds },
  { key: "submitted", label: "Submitted", more: true, num: true, by: (job) => job.submitted },
];

export const columnOf = (key) => COLUMNS.find((column) => column.key === key);

function kindsOf(job) {
  const on = job.on.map((part) => part.kind);
  return [...new Set(on.length ? on : job.kinds)].join(", ");
}

const KEPT = "weft-columns";

/** Which columns someone chose to see or not to see, kept by the browser, and the menu for it. */
export function useColumns() {
  const [kept, setKept] = useState(() => JSON.parse(localStorage.getItem(KEPT) || "{}"));
  const [open, setOpen] = useState(false);
  const keep = (next) => {
    localStorage.setItem(KEPT, JSON.stringify(next));
    setKept(next);
  };
  const choices = COLUMNS.slice(1).map(
    ({ key, label, more }) =>
      html`<label class="check" key=${key}><input type="checkbox" checked=${kept[key] ?? !more}
        onChange=${(event) => keep({ ...kept, [key]: event.target.checked })} />${label}</label>`,
  );
  const menu = html`<details class="menu" onToggle=${(event) => setOpen(event.target.open)}><summary class="button">Columns</summary>
    ${open && html`<div class="tip">${choices}<button onClick=${() => keep({})}>As they were</button></div>`}</details>`;
  return [kept, menu];
}

export function JobTable(props) {
  const { jobs, rows, apart, line, columns: kept, chosen, setChosen, query } = props;
  const box = useRef(null);
  const [range, setRange] = useState([0, 60]);
  const [read, setRead] = useState("");
  const look = () => {
    const view = box.current;
    const first = Math.floor(view.scrollTop / rowHeight()) - AROUND;
    const last = first + Math.ceil(view.clientHeight / rowHeight()) + 2 * AROUND;
    setRange((was) => (was[0] === first && was[1] === last ? was : [first, last]));
  };
  useEffect(() => {
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  const first = Math.max(0, range[0]);
  const shown = rows.slice(first, range[1]);
  const above = Math.min(first, rows.length) * rowHeight(),
    below = Math.max(0, rows.length - range[1]) * rowHeight();
  // Rows that scroll out of sight become those that come: half of what new ones cost the browser.
  const slot = (index) => index % (range[1] - range[0]);
  const columns = useMemo(
    () =>
      COLUMNS.filter(({ key, has, more }) =>
        narrow.matches
          ? ON_A_PHONE.has(key)
          : (kept[key] ?? !more) && (kept[key] || !has || jobs.some((job) => has(job))),
      ),
    [jobs, kept, narrow.matches],
  );
  const wide = columns.length + 1;
  const pick = (some, on) =>
    setChosen((was) => {
      const next = new Set(was);
      for (const job of some) on ? next.add(job.id) : next.delete(job.id);
      return next;
    });
  const sort = (key) =>
    setQuery({ sort: query.sort === key ? `-${key}` : query.sort === `-${key}` ? "" : key });
  if (!rows.length)
    return html`<div class="jobs-view" ref=${box}>
      <${Empty} title=${Object.keys(query).length ? "No jobs match this filter" : "No jobs have been submitted yet"}>
      ${
        Object.keys(query).length
          ? "Change the filter, or choose all states."
          : html`<a href=${link("submit")}>Submit one</a> here, or with <code>weft submit job.yaml</code>.`
      }<//></div>`;
  const reading = read && rows.find((job) => job.id === read);
  const row = (job, index) =>
    html`<${Row} key=${slot(index)} job=${job} index=${index} columns=${columns} line=${line} apart=${apart.get(job.id)}
      chosen=${chosen} pick=${pick} read=${setRead} query=${query} />`;
  const filler = (height) =>
    height > 0 &&
    html`<tr class="filler" aria-hidden="true"><td colspan=${wide} style=${{ height: `${height}px` }}></td></tr>`;
  return html`<div class="jobs-view" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label="Table of jobs">
    <table aria-rowcount=${rows.length + 1}
    style=${{ minWidth: narrow.matches ? "0" : `${1080 + 120 * columns.filter(({ more }) => more).length}px` }}>
      <thead><tr><th class="c-pick" scope="col"><input type="checkbox" aria-label="Choose all"
        checked=${jobs.every((job) => chosen.has(job.id))} onChange=${(event) => pick(jobs, event.target.checked)} /></th>
        ${columns.map(
          ({ key, label, num }) =>
            html`<th key=${key} scope="col" class="c-${key} ${num ? "num" : ""}"
              aria-sort=${query.sort === key ? "ascending" : query.sort === `-${key}` ? "descending" : null}>
          <button onClick=${() => sort(key)}>${key === "gpus" && theDevice() !== "GPU" ? "Slots" : label}
          <span aria-hidden="true">${query.sort === key ? "↑" : query.sort === `-${key}` ? "↓" : ""}</span></button></th>`,
        )}</tr></thead>
      <tbody>
        ${filler(above)}
        ${shown.map((job, i) => row(job, first + i))}
        ${filler(below)}
      </tbody></table>
    ${
      reading &&
      html`<div class="told" role="status"><b>${reading.name}</b>
    <span class="grow"><${Words} text=${whyOrWhere(reading)} /></span><button class="quiet" aria-label="Close" onClick=${() => setRead("")}>✕</button></div>`
    }</div>`;
}

/** Where the name of a row leads to: its job, its sweep, or the list of its group. */
function placeOf(job, query) {
  if (!job.members) return ["job", [job.id]];
  if (job.group === "sweep") return ["sweep", [job.app]];
  return ["jobs", [], { ...query, group: "none", [job.group]: job.name }];
}

/** What a phone shows below the name; nothing where there is nothing to say. */
function below(job, why, apart, read) {
  const text = [job.members && count(job.members.length, "job"), apart, why || ended(job)];
  return html`<div class="below" onClick=${() => read(job.id)}><${Words} text=${text.filter(Boolean).join(" · ")} /></div>`;
}

const ended = (job) => job.ended && `${job.tenant} · ended ${clock(job.ended, { seconds: false })}`;

const CELLS = {
  name: (job, { why, apart, query, read }) =>
    html`<a class="name" aria-label=${job.name} href=${link(...placeOf(job, query))}><${Name} text=${job.name} /></a>
      ${job.members && !narrow.matches ? html`<span class="dim"> ${count(job.members.length, "job")}</span>` : ""}
      ${narrow.matches ? below(job, why, apart, read) : apart && html`<div class="apart">${apart}</div>`}`,
  state: (job) => html`<${State} state=${job.state} />`,
  why: (job, { why, read }) =>
    why &&
    html`<button class="reason" onClick=${() => read(job.id)}><${Words} text=${why} /></button>`,
  gpus: (job, { now }) =>
    job.members
      ? number(now)
      : now && number(now) !== asks(job)
        ? html`${number(now)}<span class="dim"> / ${asks(job)}</span>`
        : asks(job),
  start: (_, { start }) =>
    html`${start.text}${start.place ? html` <span class="dim">#${start.place}</span>` : ""}`,
  progress: (job) =>
    job.progress == null
      ? ""
      : html`<div class="progress"><${Bar} part=${job.progress} label=${percent(job.progress)} />
        <span class="small">${percent(job.progress)}</span></div>`,
  tenant: (job) => job.tenant,
  goodput: (job) => number(job.goodput),
  restarts: (job) => job.restarts || "",
  age: (job) => duration(Math.floor((job.ended ?? clusterNow()) - job.submitted)),
  user: (job) => job.user,
  id: (job) => (job.members ? "" : job.id),
  kind: kindsOf,
  priority: (job) => job.priority,
  used: (job) => gpuHours(job.gpu_seconds),
  submitted: (job) => clock(job.submitted, { seconds: false }),
};

function Row({ job, index, columns, line, apart, chosen, pick, read, query }) {
  const some = job.members || [job];
  const start = startText(job, line);
  const facts = { now: heldNow(job), start, why: whyOrWhere(job), apart, query, read };
  const titles = {
    name: job.members ? job.name : `${job.name}\n${job.id}`,
    gpus: job.on.map((part) => `${part.node}: ${ranges(part.gpus)}`).join("\n"),
    start: start.title,
    why: facts.why,
    age: "since it was submitted",
  };
  const cell = ({ key, num }) =>
    html`<td key=${key} class="c-${key} ${num ? "num" : ""}" title=${titles[key]}>${CELLS[key](job, facts)}</td>`;
  return html`<tr aria-rowindex=${index + 2}>
    <td class="c-pick"><input type="checkbox" aria-label=${`Choose ${job.name}`}
      checked=${some.every((each) => chosen.has(each.id))} onChange=${(event) => pick(some, event.target.checked)} /></td>
    ${columns.map(cell)}</tr>`;
}
