// Jobs of a list: which are wanted, in which groups, how equal names are told apart, when they start.
import { apart, duration, number, range } from "./format.js";
import { held, reasonOf, WAITING } from "./store.js";

/** States in the order in which a list has them. */
export const ORDER = [
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
const ENDED_FROM = ORDER.indexOf("failed");

/** Why it waits, or the nodes that it is on. */
export const whyOrWhere = (job) =>
  job.members
    ? stateCounts(job.members)
    : reasonOf(job) || (job.on.length ? `on ${job.on.map((part) => part.node).join(", ")}` : "");

function ofState(job, state) {
  if (state === "active") return ORDER.indexOf(job.state) < ENDED_FROM;
  if (state === "waiting") return WAITING.has(job.state);
  return state === "recent" || state === "all" || job.state === state;
}

const ofKind = (job, kind) =>
  job.kinds.includes(kind) ||
  (!job.kinds.length && !job.on.length) ||
  job.on.some((part) => part.kind === kind);

/** Whether a job passes the filters of the address. */
export function wanted(job, query) {
  const { q = "", state = "recent", kind = "" } = query;
  if (!ofState(job, state) || (kind && !ofKind(job, kind))) return false;
  if (EXACT.some((field) => query[field] && job[field] !== query[field])) return false;
  if (!q) return true;
  const text =
    `${job.name}\n${job.id}\n${job.user}\n${job.tenant}\n${job.app}\n${reasonOf(job)}`.toLowerCase();
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
const EXACT = ["tenant", "user", "name"];

/** What jobs can be grouped by: the field that those of a group share. */
export const GROUPS = { sweep: "app", tenant: "tenant", user: "user", name: "name" };

function groupOf(jobs, field) {
  const groups = new Map();
  for (const job of jobs) {
    const members = groups.get(job[field]);
    if (members) members.push(job);
    else groups.set(job[field], [job]);
  }
  return groups;
}

/** One row for each group of several jobs, with its `members`; the other jobs as they are. */
export function fold(jobs, group) {
  if (!Object.hasOwn(GROUPS, group)) return jobs;
  const rows = [];
  for (const [key, members] of groupOf(jobs, GROUPS[group])) {
    if (!key || members.length < 2) {
      rows.push(...members);
      continue;
    }
    const first = members.reduce((a, b) =>
      ORDER.indexOf(b.state) < ORDER.indexOf(a.state) ? b : a,
    );
    rows.push({
      ...first,
      id: `${group} ${key}`,
      name: key,
      group,
      members,
      ...shared(members, ["tenant", "user", "priority"]),
      on: members.flatMap((job) => job.on),
      gpu_seconds: members.reduce((sum, job) => sum + job.gpu_seconds, 0),
      progress: null,
      goodput: null,
      restarts: 0,
      submitted: Math.min(...members.map((job) => job.submitted)),
    });
  }
  return rows;
}

/** Fields that all have in common; empty where they differ. */
const shared = (members, fields) =>
  Object.fromEntries(
    fields.map((field) => {
      const value = members[0][field];
      return [field, members.every((job) => job[field] === value) ? value : ""];
    }),
  );

function stateCounts(members) {
  const counts = groupOf(members, "state");
  return ORDER.filter((state) => counts.has(state))
    .map((state) => `${number(counts.get(state).length)} ${state}`)
    .join(", ");
}

/** GPUs that a row of the list holds, by what it has of each. */
export const heldNow = (job) =>
  job.members
    ? job.members.reduce((sum, member) => sum + heldNow(member), 0)
    : held(job) * job.share;

/** By id, what tells a job from others of its name: the first argument that differs, its user, its id. */
export function tellApart(jobs) {
  const words = new Map();
  for (const same of groupOf(jobs, "name").values()) {
    if (same.length < 2) continue;
    const differs = (of) => same.some((job) => of(job) !== of(same[0]));
    const names = new Set(same.flatMap((job) => Object.keys(job.arguments)));
    const name = [...names].find((each) => differs((job) => job.arguments[each]));
    const users = differs((job) => job.user);
    for (const job of same) {
      const value = name && Object.hasOwn(job.arguments, name) ? job.arguments[name] : null;
      const argument = value == null ? "" : value ? `${name}=${value}` : name;
      words.set(
        job.id,
        [argument, users && apart(job.user), job.id.slice(-8)].filter(Boolean).join(" · "),
      );
    }
  }
  return words;
}

/** What the last simulation said of a job; of a group, of its job that starts first. */
export function entryOf(job, line) {
  if (!job.members) return line.entries?.get(job.id);
  const entries = job.members.map((member) => line.entries?.get(member.id)).filter(Boolean);
  return entries.length
    ? entries.reduce((a, b) => ((b.p50 ?? Infinity) < (a.p50 ?? Infinity) ? b : a))
    : undefined;
}

/** When a waiting job starts, in a word or two, and what that rests on. */
export function startText(job, line) {
  const waits = (job.members || [job]).some((each) => WAITING.has(each.state));
  if (!waits) return { text: "", title: "" };
  if (!line.entries) return { text: "…", title: "The service simulates what is ahead." };
  const entry = entryOf(job, line);
  if (entry?.p50 != null)
    return {
      text: duration(entry.p50),
      place: entry.place,
      title: `8 in 10 simulations: ${range(entry.p10, entry.p90)}`,
    };
  if (line.unknown) return { text: "unknown", title: line.unknown };
  if (!entry) return { text: "…", title: "It came after the last simulation." };
  return { text: "not in sight", title: "No simulation of what is ahead came to its start." };
}
