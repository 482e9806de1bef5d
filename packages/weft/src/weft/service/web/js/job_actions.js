// What can be done to jobs that have not ended, to one or to many: asked first, then told how it went.
import { at, post, put, remove } from "./api.js";
import { count } from "./format.js";
import { html } from "./lib.js";
import { ENDED } from "./store.js";
import { confirm, toast, UNDO_MS } from "./ui.js";

const PRIORITIES = ["guaranteed", "normal", "spot", "opportunistic"];
const AT_ONCE = 8; // requests under way

const suspended = (job) => Boolean(job.suspended || job.suspended_by);
const open = (job) => !ENDED.has(job.state);

const ACTIONS = {
  suspend: {
    label: "Suspend",
    done: "suspended",
    may: (job) => open(job) && !suspended(job),
    send: (job) => post(at("jobs", job.id, "suspend")),
    undo: (job) => post(at("jobs", job.id, "resume")),
    detail:
      "Running jobs save and leave their GPUs. Each keeps its progress and waits until it is resumed.",
  },
  resume: {
    label: "Resume",
    done: "resumed",
    may: (job) => open(job) && suspended(job),
    send: (job) => post(at("jobs", job.id, "resume")),
    detail: "Each continues from its last checkpoint when there is room.",
  },
  cancel: {
    label: "Cancel",
    done: "cancelled",
    danger: true,
    may: open,
    send: (job) => remove(at("jobs", job.id)),
    detail: "Running jobs get their grace time to save. A cancelled job does not come back.",
  },
};

const prioritise = (priority) => ({
  label: "Change the priority of",
  done: priority,
  may: (job) => open(job) && job.priority !== priority,
  send: (job) => put(at("jobs", job.id, "priority"), { priority }),
  undo: (job) => put(at("jobs", job.id, "priority"), { priority: job.priority }),
  detail: `${priority[0].toUpperCase()}${priority.slice(1)} from the next decision on; its place in the order of submission does not change.`,
});

function nameSome(jobs) {
  return (
    jobs
      .slice(0, 3)
      .map((job) => job.name)
      .join(", ") + (jobs.length > 3 ? ` and ${jobs.length - 3} more` : "")
  );
}

/** Whether a person agrees to what is done to these. */
function agree(some, action) {
  const whom = some.length === 1 ? some[0].name : count(some.length, "job");
  return confirm(`${action.label} ${whom}?`, {
    detail: some.length === 1 ? action.detail : `${nameSome(some)}. ${action.detail}`,
    action: some.length === 1 ? `${action.label} the job` : `${action.label} ${whom}`,
    danger: Boolean(action.danger),
  });
}

/** Send it for each of these; those for which it was done. */
async function sendAll(jobs, send) {
  const refused = [],
    done = [],
    left = [...jobs];
  const work = async () => {
    for (let job; (job = left.shift());)
      await send(job).then(
        () => done.push(job),
        (error) => refused.push(`${job.name}: ${error.message}`),
      );
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (refused.length)
    toast(`${refused[0]}${refused.length > 1 ? `, and ${refused.length - 1} more` : ""}`, true);
  return done;
}

const whomOf = (jobs) => (jobs.length === 1 ? jobs[0].name : count(jobs.length, "job"));

/** True unless someone takes back within some seconds what cannot be undone later. */
function unlessTakenBack(text) {
  return new Promise((answer) => {
    const stay = (event) => event.preventDefault(); // the browser asks before it leaves the page
    const end = (value) => {
      window.removeEventListener("beforeunload", stay);
      answer(value);
    };
    window.addEventListener("beforeunload", stay);
    setTimeout(end, UNDO_MS, true);
    toast(text, false, () => end(false));
  });
}

/** Do it to all that it can be done to and say how it went, with a way back if there are several. */
async function act(some, action, undo) {
  if (undo && !action.undo && action.danger) {
    const text = `${whomOf(some)}: ${action.done} in ${UNDO_MS / 1000} s`;
    if (!(await unlessTakenBack(text))) return;
  }
  const done = await sendAll(some, action.send);
  const back = async () => {
    const undone = await sendAll(done, action.undo);
    if (undone.length) toast(`${whomOf(undone)}: no longer ${action.done}`);
  };
  if (done.length)
    toast(`${whomOf(done)}: ${action.done}`, false, undo && action.undo ? back : null);
}

/** Buttons for what can be done to these jobs, with `undo` a way back; `then` is called once it was agreed to. */
export function JobActions({ jobs, then = () => {}, undo = false }) {
  const run = async (action) => {
    const some = jobs.filter(action.may);
    if (!some.length || !(await agree(some, action))) return;
    then();
    act(some, action, undo);
  };
  const [first] = jobs;
  const shared = jobs.every((job) => job.priority === first?.priority) ? first?.priority : "";
  return html`${
    jobs.some(open) &&
    html`<select aria-label="Priority" value=${shared} onChange=${(event) => {
      const to = event.target.value;
      event.target.value = shared;
      run(prioritise(to));
    }}>
      ${shared === "" && html`<option value="" disabled>priority</option>`}
      ${PRIORITIES.map((priority) => html`<option key=${priority} value=${priority}>${priority}</option>`)}</select>`
  }
    ${Object.values(ACTIONS).map(
      (action) =>
        jobs.some(action.may) &&
        html`<button key=${action.label}
    class=${action.danger ? "danger" : ""} onClick=${() => run(action)}>${action.label} …</button>`,
    )}`;
}
