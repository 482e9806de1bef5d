// The cluster over time: how its GPUs were used, who waited how long, what jobs did, what happened.
import { get, query } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { token } from "../colours.js";
import { clock, count, duration, gpuHours, number, percent, theDevice } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { isKiosk, link, setQuery } from "../route.js";
import { clusterNow } from "../store.js";
import { Choice, Loading, More, Panel, Trouble, useAsk } from "../ui.js";

const AGAIN_MS = 10_000;
const HOUR = 3600;
const RANGES = [
  ["1", "1 h"],
  ["12", "12 h"],
  ["72", "3 d"],
  ["168", "7 d"],
  ["720", "30 d"],
];
const BY = [
  ["", "All"],
  ["tenant", "Tenant"],
  ["kind", "Kind"],
];
const GROUPS = 7; // that have a colour of their own
const NEWS = 6;
const NO_MARKS = [];
const OTHERS = "others";
const MOST_LINES = 12; // on a chart; more would hide it

const sum = (columns) =>
  columns[0]?.map((_, i) => columns.reduce((all, ys) => all + (ys[i] || 0), 0)) || [];
const total = (ys, seconds) => ys.reduce((all, y, i) => all + y * seconds[i], 0);
const plus = (ys) => ys.reduce((all, y) => all + y, 0);

/** The tenants or kinds that have a colour, the largest first; all beyond a few are others. */
function groupsOf({ use, queues }, by) {
  if (!by) return [""];
  const sizes = new Map();
  for (const row of [...use, ...(by === "tenant" ? queues : [])])
    sizes.set(row[by], (sizes.get(row[by]) || 0) + plus(row.used || row.wanted_gpus));
  const names = [...sizes.keys()]
    .filter((name) => name !== "*")
    .sort((a, b) => sizes.get(b) - sizes.get(a) || (a < b ? -1 : 1));
  const kept = names.slice(0, names.length > GROUPS || sizes.has("*") ? GROUPS - 1 : GROUPS);
  return kept.length < sizes.size ? [...kept, OTHERS] : kept;
}

/** Rows as `[group, column]` in the order of the groups; one column where rows do not know them. */
export function grouped(rows, by, groups, column) {
  const known = rows.filter((row) => row[column].length);
  if (!known.length) return [];
  if (!by || !(by in known[0])) return [["", sum(known.map((row) => row[column]))]];
  const group = (row) => (groups.includes(row[by]) ? row[by] : OTHERS);
  return groups
    .map((name) => [
      name,
      sum(known.filter((row) => group(row) === name).map((row) => row[column])),
    ])
    .filter(([, ys]) => ys.length);
}

/** Means of each window as steps of a line: the last one goes on to where it ends. */
const steps = (past, columns) => [
  [...past.at, past.at.at(-1) + past.seconds.at(-1)],
  ...columns.map((ys) => [...ys, ys.at(-1)]),
];

export function OverTime({ route }) {
  const { past = "12", by = "", from, to } = route.query;
  const hours = RANGES.some(([value]) => value === past) ? Number(past) : 12;
  const zoomed = Number(from) > 0 && Number(to) > Number(from);
  const asked = () =>
    zoomed
      ? { since: from, until: to }
      : { since: Math.max(0, Math.round(clusterNow() - hours * HOUR)) };
  const reply = useAsk(
    (signal) => get("/history" + query(asked()), { signal }),
    zoomed ? `${from} ${to}` : `last ${hours}`,
    { every: zoomed ? 0 : AGAIN_MS },
  );
  const zoom = ([a, b]) =>
    setQuery({ from: Math.round(a), to: Math.max(Math.round(b), Math.round(a) + 60) });
  const whole = (more) => setQuery({ ...more, from: "", to: "" });
  const end = html`${zoomed && html`<button onClick=${() => whole()}>Whole range</button>`}
    <${Choice} label="How far back" value=${zoomed ? "" : String(hours)} options=${RANGES}
      choose=${(value) => whole({ past: value })} />
    <${Choice} label="By" value=${by} options=${BY} choose=${(value) => setQuery({ by: value })} />`;
  return html`<${Panel} title="Over time" end=${end}><${Trouble} error=${reply.error} />
    ${reply.data ? html`<${Drawn} past=${reply.data} by=${by} zoom=${zoom} />` : !reply.error && html`<${Loading} what="Asking what was" />`}<//>`;
}

function Drawn({ past, by, zoom }) {
  const [at, setAt] = useState(null);
  const { kinds, queues, seconds } = past;
  const begin = past.at[0],
    end = past.at.at(-1) + seconds.at(-1);
  const marks = useMemo(() => flags(past), [past]);
  const charts = useMemo(() => panelsOf(past, by), [past, by]);
  const [gpus, out, used] = ["gpus", "out", "used"].map((name) =>
    total(sum(kinds.map((kind) => kind[name])), seconds),
  );
  const started = plus(queues.flatMap((queue) => queue.started)),
    waited = plus(queues.flatMap((queue) => queue.waited_s)),
    failed = plus(queues.flatMap((queue) => queue.failed));
  const figures = [
    [
      percent(gpus ? used / gpus : 0),
      `of ${theDevice()}s in use: ${gpuHours(used)} of ${gpuHours(gpus)}`,
    ],
    [
      number(total(sum(queues.map((queue) => queue.waiting)), seconds) / (end - begin)),
      "jobs waited on average",
    ],
    [
      started ? duration(waited / started) : "–",
      `mean wait of the ${count(started, "job")} that started`,
    ],
    [
      percent(gpus ? out / gpus : 0),
      `out of use: ${gpuHours(out)}${failed ? `; ${count(failed, "attempt")} failed` : ""}`,
    ],
  ];
  const figure = ([value, what], i) =>
    html`<div key=${i}><div class="big">${value}</div><span class="dim small">${what}</span></div>`;
  const chart = ({ title, wide, ...look }) =>
    html`<figure key=${title} class=${wide ? "wide" : ""}><figcaption><h3>${title}</h3></figcaption>
      <${Chart} ...${look} zero=${true} height=${wide ? 220 : 130} zoom=${zoom} marks=${wide ? marks : NO_MARKS}
        pointed=${setAt} /></figure>`;
  const [from, to] = [begin, end].map((when) => clock(when, { seconds: false }));
  return html`<div class="figures over">${figures.map(figure)}</div>
    <div class="small-charts">${charts.map(chart)}</div>
    <${Told} past=${past} i=${at} />
    <${News} marks=${past.marks} />
    <p class="dim small windows"><span class="hint">Drag across a chart to look closer.</span>
      ${` ${count(past.at.length, "window")} of ${duration(past.window_s)}, ${from} to ${to}.`}</p>`;
}

/** The charts of what is known: data, series and words. */
function panelsOf(past, by) {
  const { kinds, use, queues } = past;
  const groups = groupsOf(past, by);
  const of = (rows, column) => grouped(rows, by, groups, column);
  const [gpus, out, used] = ["gpus", "out", "used"].map((name) =>
    sum(kinds.map((kind) => kind[name])),
  );
  const line = (name, word, look) => {
    const place = groups.indexOf(name);
    const colour =
      name === OTHERS || (name && place < 0) ? token("other") : lineColour(Math.max(place, 0));
    return { label: name || word, step: true, ...(look || { colour, fill: colour }) };
  };
  const panels = [];
  const add = (title, rows, { word = title, ...more } = {}) => {
    if (!rows.some(([, ys]) => ys.some((y) => y))) return;
    const data = steps(
      past,
      rows.map(([, ys]) => ys),
    );
    const series = rows.map(([name, , look]) => line(name, word, look));
    panels.push({ title, describe: `${title} over time`, stack: true, data, series, ...more });
  };
  /** A quotient of two sums, as a line a group; a gap where nothing was counted. */
  const ratio = (title, above, below, more) => {
    const counts = new Map(below);
    const rows = above.map(([name, ys]) => [
      name,
      ys.map((y, i) => (counts.get(name)?.[i] ? y / counts.get(name)[i] : null)),
      { ...line(name, title), fill: undefined, span: true },
    ]);
    add(title, rows, { stack: false, ...more });
  };
  const mine = sum(use.map((row) => row.used));
  const theirs = used.map((value, i) => Math.max(value - (mine[i] || 0), 0));
  const idle = gpus.map((all, i) => Math.max(all - out[i] - used[i], 0));
  const gone = gpus.map((all, i) => Math.max(all - used[i] - idle[i], 0));
  const states = [...of(use, "used")];
  if (theirs.some((value) => value > 0.01)) states.push(["other tenants", theirs]);
  states.push(["idle", idle, { colour: token("idle-line"), fill: token("sunk") }]);
  if (gone.some((value) => value > 0.001))
    states.push(["drained or gone", gone, { colour: token("line-strong"), hatch: true }]);
  add(`${theDevice()}s by state`, states, { word: "in use", wide: true, whole: true });
  add("Jobs that wait", of(queues, "waiting"), { whole: true });
  ratio("Wait until the start", of(queues, "waited_s"), of(queues, "started"), {
    format: duration,
    points: true,
  });
  add("Useful samples a second", of(use, "goodput"));
  add("Steps a second", of(use, "steps"));
  const measured = use
    .filter((row) => row.busy.length)
    .map((row) => ({
      ...row,
      known: row.busy.map((part, i) => (part == null ? 0 : row.used[i])),
      computed: row.busy.map((part, i) => (part ?? 0) * row.used[i]),
    }));
  ratio(
    `Time in which ${theDevice()}s of jobs computed`,
    of(measured, "computed"),
    of(measured, "known"),
    { format: percent },
  );
  add("Memory that jobs held, GB", of(use, "memory_gb"));
  add("Power of jobs, W", of(use, "power_w"));
  return panels;
}

const TONES = {
  policy: "accent",
  rules: "accent",
  drained: "waiting",
  aside: "failed",
  down: "failed",
  back: "running",
  joined: "running",
};

/** What is drawn on the charts: lines for what happened, ticks for windows with decisions and failures. */
function flags(past) {
  const failed = sum(past.queues.map((queue) => queue.failed));
  const most = Math.max(...past.moves);
  const ticks = past.at.flatMap((at, i) => [
    ...(past.moves[i] ? [{ at, tone: "dim", size: past.moves[i] / most }] : []),
    ...(failed[i] ? [{ at, tone: "failed", size: 1 }] : []),
  ]);
  const line = past.marks.length <= MOST_LINES;
  return [
    ...ticks,
    ...past.marks.map((mark) => ({
      at: mark.at,
      tone: TONES[mark.what] || "dim",
      size: 1,
      wide: true,
      line,
    })),
  ];
}

/** What happened in the window that is pointed at. */
function Told({ past, i }) {
  if (i == null || i >= past.at.length)
    return html`<p class="dim small told" aria-hidden="true">Grey ticks: decisions that moved jobs.
      Red ticks: attempts that failed. Lines: what is listed below.</p>`;
  const until = past.at[i] + past.window_s;
  const failed = plus(past.queues.map((queue) => queue.failed[i]));
  const texts = [
    past.decisions[i]
      ? `${count(past.decisions[i], "decision")} moved ${count(past.moves[i], "job")}`
      : "no decision",
    failed ? `${count(failed, "attempt")} failed` : "",
    ...past.marks.filter((mark) => mark.at >= past.at[i] && mark.at < until).map(sentence),
  ];
  return html`<p class="small told"><b>${clock(past.at[i])}</b> ${texts.filter(Boolean).join(" · ")}</p>`;
}

const WORDS = {
  drained: "drained",
  aside: "set aside",
  down: "lost",
  back: "put back into service",
  joined: "added",
};

/** A mark as a sentence. */
export function sentence({ what, about, by, why }) {
  const [node, gpus] = about.split(":");
  const which = gpus ? `GPU${/\D/.test(gpus) ? "s" : ""} ${gpus} of ${node}` : node;
  const texts = { policy: `The policy is now ${about}`, rules: "Quotas or reservations changed" };
  const text = texts[what] || `${which} ${/\D/.test(gpus || "") ? "were" : "was"} ${WORDS[what]}`;
  return `${text}${by ? ` by ${by}` : ""}${why ? `: ${why}` : ""}`;
}

const News = ({ marks }) => {
  const [all, showAll] = useState(false);
  const last = [...marks].reverse();
  if (!last.length) return null;
  const row = (mark, i) => {
    const text = sentence(mark);
    const tone = `var(--${TONES[mark.what] || "dim"})`;
    return html`<li key=${i}><span><i class="key" style=${{ background: tone }}></i>
        ${mark.node ? html`<a href=${link("node", [mark.node])}>${text}</a>` : text}</span>
      <span class="dim">${clock(mark.at, { seconds: false })}</span></li>`;
  };
  return html`<ul class="why-list news" aria-label="What happened">${last.slice(0, all ? 200 : NEWS).map(row)}</ul>
    ${!isKiosk() && html`<${More} more=${last.length - NEWS} all=${all} show=${showAll} />`}`;
};
