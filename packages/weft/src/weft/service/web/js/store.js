// What the page knows of the cluster: a fold of what the service tells those who watch.
import { follow } from "./api.js";
import { useEffect, useState } from "./lib.js";

// Views are drawn again this often at most; with thousands of jobs once a second is enough.
const coalesceMs = () => (store.jobs.size > 1000 ? 1000 : 250);

export const store = {
  ready: false,
  link: "connecting",
  lives: 0,
  cluster: null,
  heardAt: 0,
  jobs: new Map(),
  nodes: new Map(),
  reasons: new Map(),
  version: 0,
  jobsVersion: 0,
  nodesVersion: 0,
};

const listeners = new Set();
let timer = 0,
  end = null;

function changed(soon = false) {
  if (timer && !soon) return;
  clearTimeout(timer);
  timer = setTimeout(
    () => {
      timer = 0;
      store.version += 1;
      for (const listener of [...listeners]) listener();
    },
    soon ? 0 : coalesceMs(),
  );
}

function heard(kind, update) {
  if (kind !== "snapshot" && kind !== "update") return;
  if (kind === "snapshot") {
    store.jobs = new Map();
    store.nodes = new Map();
    store.reasons = new Map();
  }
  store.cluster = update.cluster;
  store.heardAt = performance.now();
  for (const node of update.nodes) store.nodes.set(node.id, node);
  for (const [number, text] of Object.entries(update.reasons))
    store.reasons.set(Number(number), text);
  for (const job of update.jobs) store.jobs.set(job.id, job);
  if (update.jobs.length || kind === "snapshot") store.jobsVersion += 1;
  if (update.nodes.length || kind === "snapshot") store.nodesVersion += 1;
  const first = !store.ready;
  store.ready = true;
  changed(first);
}

/** Begin to watch; once. */
export function watch() {
  if (end) return;
  end = follow("/watch", heard, (word) => {
    store.link = word;
    if (word === "live") store.lives += 1;
    changed(true);
  });
}

/** Stop, and forget everything: someone else may sign in. */
export function unwatch() {
  end?.();
  end = null;
  Object.assign(store, {
    ready: false,
    link: "connecting",
    cluster: null,
    jobs: new Map(),
    nodes: new Map(),
    reasons: new Map(),
  });
}

/** Draw the component again when something changed, at most four times a second. */
export function useStore() {
  const [, again] = useState(0);
  const drawn = store.version;
  useEffect(() => {
    const listener = () => again((n) => n + 1);
    listeners.add(listener);
    if (store.version !== drawn) listener(); // a slow browser paints first: someone may have spoken meanwhile
    return () => listeners.delete(listener);
  }, []);
  return store;
}

/** Cluster time now, in seconds since the epoch: ahead of the wall where the engine is faster. */
export function clusterNow() {
  if (!store.cluster) return Date.now() / 1000;
  return store.cluster.now + ((performance.now() - store.heardAt) / 1000) * store.cluster.speed;
}

/** Why a job waits, in words. */
export const reasonOf = (job) => job.reason ?? (store.reasons.get(job.why) || "");

/** Take in jobs of the past, which nobody watches any more. */
export function remember(jobs) {
  for (const job of jobs) {
    if (store.jobs.has(job.id)) continue;
    store.jobs.set(job.id, {
      ...job,
      why: 0,
      pace: null,
      share: 1,
      arguments: job.parameters,
      on: (job.allocation || []).map((part) => ({ node: part.node, gpus: part.gpus })),
    });
  }
  store.jobsVersion += 1;
  changed(true);
}

export const ENDED = new Set(["succeeded", "failed", "cancelled"]);
export const WAITING = new Set(["pending", "preempted"]);

/** GPUs that a job holds. */
export const held = (job) => job.on.reduce((sum, part) => sum + part.gpus.length, 0);
