// What runs where: every GPU as a cell, beside it how much of what is used and why the rest waits.
import { at, get } from "../api.js";
import { colourOf, token } from "../colours.js";
import { count, deviceWord, duration, number, percent, theDevice } from "../format.js";
import { byKind, cellAt, draw, layOut, occupants, outOfUse } from "../gpu_map.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { go, link, setQuery } from "../route.js";
import { clusterNow, held, reasonOf, useStore, WAITING } from "../store.js";
import { Stream } from "../stream.js";
import { useTheme } from "../theme.js";
import { Bar, Choice, Empty, FactList, Loading, Panel, State } from "../ui.js";
import { useWidth } from "../width.js";
import { Needs } from "./needs.js";
import { OverTime } from "./over_time.js";

const LOOKED_MS = 350;
const PAINTS = [
  ["job", "Job"],
  ["tenant", "Tenant"],
  ["speed", "Pace"],
];

/** From red to green: what a job does of what it would do alone. */
function paceColour(job) {
  if (job.pace == null) return token("unmeasured");
  return `oklch(70% 0.14 ${25 + 120 * Math.max(0, Math.min(1, job.pace))})`;
}

const paintOf = {
  job: (job) => colourOf(job.id),
  tenant: (job) => colourOf(`tenant ${job.tenant}`),
  speed: paceColour,
};

export function ClusterView({ route }) {
  const store = useStore();
  const paint = Object.hasOwn(paintOf, route.query.colour) ? route.query.colour : "job";
  const find = route.query.q || "";
  const waiting = [...store.jobs.values()].filter((job) => WAITING.has(job.state));
  return html`
    <${Needs} />
    <div class="columns totals-first">
      <aside class="stack">
        <${Figures} store=${store} waiting=${waiting} />
        <${Waiting} waiting=${waiting} />
      </aside>
      <div class="stack">
        <${Panel} title=${`${theDevice()}s`} level=1 end=${html`
          <input type="search" aria-label="Find a job, tenant or node" placeholder="Find a job, tenant or node"
            value=${find} onInput=${(event) => setQuery({ q: event.target.value })} />
          <${Choice} label="Colour by" value=${paint} options=${PAINTS}
            choose=${(colour) => setQuery({ colour: colour === "job" ? "" : colour })} />`}>
          ${
            store.nodes.size
              ? html`<${GpuMap} store=${store} paint=${paint} find=${find} />`
              : html`<${Empty} title="No machines yet">The engine has reported none.<//>`
          }
          <${Legend} paint=${paint} />
        <//>
        <${Later} title="Over time"><${OverTime} route=${route} /><//>
        <${Later} title="Stream"><${Stream} route=${route} /><//>
      </div>
    </div>`;
}

const mapFirstMs = 60;

/** What is not needed at once: the map is on the screen before it is begun. */
function Later({ title, children }) {
  const [begun, setBegun] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setBegun(true), mapFirstMs);
    return () => clearTimeout(timer);
  }, []);
  return begun ? children : html`<${Panel} title=${title}><${Loading} /><//>`;
}

const HELD = {
  job: html`<span><i class="held"></i>held, one colour per job</span>`,
  tenant: html`<span><i class="held"></i>held, one colour per tenant</span>`,
  speed: html`<span>0 % <i class="pace"></i>100 % of its speed alone</span><span><i class="unmeasured"></i>not measured</span>`,
};
const Legend = ({
  paint,
}) => html`<div class="legend">${HELD[paint]}<span><i class="shared"></i>shared</span>
  <span><i class="other"></i>another tenant's</span><span><i></i>idle</span><span><i class="out"></i>draining, drained or down</span></div>`;

function matches(job, find) {
  if (!find) return true;
  const wanted = find.toLowerCase();
  return (
    [job.name, job.id, job.tenant, job.user].some((text) => text.toLowerCase().includes(wanted)) ||
    job.on.some((part) => part.node.toLowerCase().includes(wanted))
  );
}

function GpuMap({ store, paint, find }) {
  const [box, width] = useWidth();
  const canvas = useRef(null);
  const [over, setOver] = useState({ cell: -1, keyed: false });
  const themed = useTheme();
  const plan = useMemo(
    () => layOut(store.nodes, Math.max(width, 200)),
    [store.nodesVersion, width],
  );
  const who = useMemo(() => occupants(store.jobs), [store.jobsVersion]);
  const cell = plan.cells[over.cell];
  const there = cell ? who.get(`${cell.node.id}:${cell.gpu}`) || [] : [];
  useEffect(() => {
    if (!width) return;
    draw(canvas.current, plan, who, {
      width,
      paint: paintOf[paint],
      dimmed: (job) => !matches(job, find),
      chosen: over.cell,
      chosenJob: there[0]?.id,
    });
  }, [plan, who, width, paint, find, over.cell, themed]);

  const point = (event) => {
    const area = canvas.current.getBoundingClientRect();
    return cellAt(plan, event.clientX - area.left, event.clientY - area.top);
  };
  const open = (index) => {
    const cell = plan.cells[index];
    const jobs = cell ? who.get(`${cell.node.id}:${cell.gpu}`) : null;
    if (jobs) go("job", [jobs[0].id]);
  };
  const keys = (event) => {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8, Home: -1e9, End: 1e9 };
    if (event.key in moves) {
      event.preventDefault();
      const to = (over.cell < 0 ? 0 : over.cell) + moves[event.key];
      setOver({ cell: Math.max(0, Math.min(plan.cells.length - 1, to)), keyed: true });
    } else if (event.key === "Enter") open(over.cell);
    else if (event.key === "Escape") setOver({ cell: -1, keyed: false });
  };
  const words =
    `${plan.cells.length} ${theDevice()}s, ${who.size} of them in use by jobs you see. ` +
    "Arrow keys go from one to the next, Enter opens its job.";
  const described = there
    .map((job) => `${job.name}, ${job.state}, tenant ${job.tenant}`)
    .join("; ");
  return html`<div class="gpu-map" ref=${box}>
    <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="map of GPUs"
      aria-label=${words}
      onMouseMove=${(event) => {
        const at = point(event);
        if (at !== over.cell) setOver({ cell: at, keyed: false });
      }}
      onMouseLeave=${() => setOver({ cell: -1, keyed: false })} onClick=${(event) => open(point(event))}
      onKeyDown=${keys} onBlur=${() => setOver({ cell: -1, keyed: false })}></canvas>
    <div class="visually-hidden" aria-live="polite">${
      over.keyed && cell
        ? `${cell.node.id} ${theDevice()} ${cell.gpu}: ${described || nobody(cell)}`
        : ""
    }</div>
    ${cell && html`<${Tip} cell=${cell} jobs=${there} plan=${plan} width=${width} />`}</div>`;
}

/** What a GPU is on which no job is that one may see. */
function nobody({ node, gpu }) {
  if (node.held_gpus.includes(gpu)) return "another tenant's job";
  return outOfUse(node, gpu) ? "not to be used" : "idle";
}

function Tip({ cell, jobs, plan, width }) {
  const left = Math.max(0, Math.min(cell.x, width - 290));
  const { id, kind, links } = cell.node;
  const facts = [id, `${theDevice()} ${cell.gpu}`, kind, links, outOfUse(cell.node, cell.gpu)];
  return html`<div class="tip" style=${{ left: `${left}px`, top: `${cell.y + plan.size + 8}px` }}>
    <div class="dim">${facts.filter(Boolean).join(" · ")}</div>
    ${jobs.length ? jobs.map((job) => html`<${JobFacts} key=${job.id} job=${job} />`) : html`<div>${nobody(cell)}</div>`}</div>`;
}

/** What the service predicts for a job, requested once someone has looked at it for a moment. */
function usePredicted(job) {
  const [numbers, setNumbers] = useState({});
  useEffect(() => {
    setNumbers({});
    if (job.state !== "running") return undefined;
    const abort = new AbortController();
    const timer = setTimeout(
      () =>
        get(at("jobs", job.id, "explain"), { signal: abort.signal }).then(
          (explanation) => setNumbers(explanation.numbers),
          () => {},
        ),
      LOOKED_MS,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [job.id, job.attempt]);
  return numbers;
}

function JobFacts({ job }) {
  const predicted = usePredicted(job);
  const against = (value, predictedValue, write) =>
    value == null && predictedValue == null
      ? ""
      : `${value == null ? "–" : write(value)}${predictedValue == null ? "" : ` (predicted ${write(predictedValue)})`}`;
  const facts = [
    ["tenant", job.tenant],
    ["share", job.share < 1 ? number(job.share) : ""],
    [`${theDevice()}s`, String(held(job))],
    ["batch", number(job.batch)],
    ["speed", job.speed == null ? "" : `${number(job.speed)} samples/s`],
    [
      "goodput",
      against(job.goodput, predicted.predicted_goodput, (value) => `${number(value)} /s`),
    ],
    ["pace", against(job.pace, predicted.predicted_pace, percent)],
    ["done", percent(job.progress)],
    ["runs for", job.started ? duration(clusterNow() - job.started) : ""],
  ].filter(([, value]) => value);
  return html`<div><b>${job.name}</b> <${State} state=${job.state} /><${FactList} facts=${facts} /></div>`;
}

function Figures({ store, waiting }) {
  const jobs = [...store.jobs.values()];
  const running = jobs.filter((job) => job.state === "running");
  const goodput = running.reduce((sum, job) => sum + (job.goodput || 0), 0);
  const kinds = [...byKind(store.nodes)].map(([kind, nodes]) => {
    const gpus = nodes.reduce((sum, node) => sum + node.gpus, 0);
    const busy = nodes.reduce((sum, node) => sum + node.held_gpus.length, 0);
    const out = nodes.reduce(
      (sum, node) => sum + (node.state === "up" ? node.drained_gpus.length : node.gpus),
      0,
    );
    return { kind, gpus, busy, out };
  });
  const node = ({ id, held_gpus: busy, gpus, kind, state }) =>
    html`<li key=${id}><a href=${link("node", [id])}>${id}</a>
      <span class="dim">${used(busy.length, gpus, kind)}${state === "up" ? "" : `, ${state}`}</span></li>`;
  return html`<${Panel} title="In use">
    <div class="figures">
      <div><div class="big">${number(running.length)}</div><a class="small" href=${link("jobs", [], { state: "running" })}>running</a></div>
      <div><div class="big">${number(waiting.length)}</div><a class="small" href=${link("jobs", [], { state: "waiting" })}>waiting</a></div>
      ${goodput > 0 && html`<div><div class="big">${number(goodput)}</div><span class="dim small">useful samples/s</span></div>`}
      <div><div class="big">${number(store.cluster.decisions)}</div><span class="dim small">decisions</span></div>
    </div>
    <div class="kinds">${kinds.map(
      ({ kind, gpus, busy, out }) =>
        html`<div key=${kind}><div class="line"><span>${kind}</span>
          <span class="dim">${used(busy, gpus, kind)}${out ? `, ${out} out of use` : ""}</span></div>
        <${Bar} part=${busy / gpus} label=${`${busy} of ${gpus} ${kind} in use`} /></div>`,
    )}</div>
    <details class="small"><summary class="dim">${count(store.nodes.size, "node")}</summary>
      <ul>${[...store.nodes.values()].map(node)}</ul></details><//>`;
}

const used = (busy, gpus, kind) => `${busy} of ${count(gpus, deviceWord([kind]))}`;

const UNDECIDED = "not decided yet";
/** Why, less what differs from job to job and stands with each: who holds what it waits for, its size. */
export const withoutHolders = (text) =>
  text
    .replace(/[:;] [^:;]* holds? (?:it|them|the others?)(?=;|$)/, "")
    .replace(/with its [^']* tenant '/, "tenant '");

function Waiting({ waiting }) {
  const reasons = new Map();
  for (const job of waiting) {
    const text = withoutHolders(reasonOf(job)) || UNDECIDED;
    reasons.set(text, (reasons.get(text) || 0) + 1);
  }
  const most = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 8);
  const row = ([text, n]) =>
    html`<li key=${text}>${
      text === UNDECIDED
        ? html`<span>${text}</span>`
        : html`<a href=${link("jobs", [], { q: text })}>${text}</a>`
    }<b>${number(n)}</b></li>`;
  return html`<${Panel} title="Why jobs wait">${
    most.length
      ? html`<ul class="why-list">${most.map(row)}</ul>`
      : html`<p class="dim">Nobody waits.</p>`
  }<//>`;
}
