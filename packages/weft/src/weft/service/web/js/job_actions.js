// What can be done to jobs that have not ended, to one or to many: asked first, then told how it went.
import { at, post, put, remove } from "./api.js";
import { count } from "./format.js";
import { html } from "./lib.js";
import { ENDED } from "./store.js";
import { confirm, toast } from "./ui.js";

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

/** Ask, do it to all that it can be done to, and say how it went; whether it was agreed to. */
async function act(jobs, action) {
  const some = jobs.filter(action.may);
  if (!some.length) return false;
  const whom = some.length === 1 ? some[0].name : count(some.length, "job");
  const detail = some.length === 1 ? action.detail : `${nameSome(some)}. ${action.detail}`;
  if (
    !(await confirm(`${action.label} ${whom}?`, {
      detail,
      action: some.length === 1 ? `${action.label} the job` : `${action.label} ${whom}`,
      danger: Boolean(action.danger),
    }))
  )
    return false;
  const refused = [],
    left = [...some];
  const work = async () => {
    for (let job; (job = left.shift());)
      await action.send(job).catch((error) => refused.push(`${job.name}: ${error.message}`));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (refused.length)
    toast(`${refused[0]}${refused.length > 1 ? `, and ${refused.length - 1} more` : ""}`, true);
  if (refused.length < some.length)
    toast(
      `${some.length === 1 ? whom : count(some.length - refused.length, "job")}: ${action.done}`,
    );
  return true;
}

/** Buttons for what can be done to these jobs; `then` is called once something was. */
export function JobActions({ jobs, then = () => {} }) {
  const run = async (action) => {
    if (await act(jobs, action)) then();
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
      ${shared === "" && html`<option value="" disabled>priority</option>`}${PRIORITIES.map((priority) => html`<option key=${priority} value=${priority}>${priority}</option>`)}</select>`
  }
    ${Object.values(ACTIONS).map((action) => jobs.some(action.may) && html`<button key=${action.label} class=${action.danger ? "danger" : ""} onClick=${() => run(action)}>${action.label} …</button>`)}`;
}
