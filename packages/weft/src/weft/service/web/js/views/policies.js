// What decides, what else could, and the last decisions with their numbers.
import { get, put } from "../api.js";
import { clock, count, duration, number, percent, theDevice } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { link, setQuery } from "../route.js";
import { useStore } from "../store.js";
import { attempt, confirm, Empty, Field, Loading, Panel, ticks, Trouble, useAsk } from "../ui.js";

export function PoliciesView({ route, me }) {
  const store = useStore();
  const { data, error, loading, again } = useAsk(
    (signal) => get("/policies", { signal }),
    `policies ${store.cluster.policy}`,
  );
  const find = (route.query.q || "").toLowerCase();
  const shown = useMemo(
    () =>
      (data?.policies || []).filter((policy) =>
        `${policy.name} ${policy.summary} ${policy.tags.join(" ")} ${Object.values(policy.sections).join(" ")}`
          .toLowerCase()
          .includes(find),
      ),
    [data, find],
  );
  const active = store.cluster.policy;
  const name =
    active.split(/[:|]/).at(-1) === active ? active : active.replace(/^.*\|/, "").split(":")[0];
  return html`<div class="halves">
    <${Panel} title="Policies" level=1 flush=${true} end=${html`<input type="search" aria-label="Find a policy"
    placeholder="Find: fair, sharing …" value=${route.query.q || ""} onInput=${(event) => setQuery({ q: event.target.value })} />`}>
      <${Trouble} error=${error} again=${again} />
      ${me.role === "admin" && html`<${Switch} active=${active} known=${data?.policies || []} />`}
      <div class="policies" tabindex="0" role="region" aria-label="All policies">
      ${loading && !data && html`<${Loading} />`}
      ${
        data &&
        [...shown]
          .sort((a, b) => (b.name === name) - (a.name === name))
          .map(
            (policy) => html`<${Card}
      key=${policy.name} policy=${policy} active=${policy.name === name} admin=${me.role === "admin"} />`,
          )
      }</div>
      ${data && !shown.length && html`<${Empty} title="No policies match">Search for fewer words.<//>`}<//>
    <${Decisions} decisions=${store.cluster.decisions} /></div>`;
}

async function use(policy, detail) {
  if (
    !(await confirm(`Switch to ${policy} now?`, {
      detail: detail || "Running jobs keep their GPUs until the new policy decides otherwise.",
      action: "Switch the policy",
    }))
  )
    return;
  await attempt(
    () => put("/policy", { policy }),
    (reply) => `${reply.policy} decides from now on`,
  );
}

function Switch({ active, known }) {
  const [text, setText] = useState("");
  return html`<form class="policy-card" onSubmit=${(event) => {
    event.preventDefault();
    use(text.trim());
  }}>
    <div class="row"><${Field} label="Active policy"><input readonly value=${active} /><//>
      <${Field} label="Switch to, with parameters"><input list="policy-names" placeholder="las:by=time" value=${text}
      onInput=${(event) => setText(event.target.value)} /><//>
      <datalist id="policy-names">${known.map((policy) => html`<option key=${policy.name} value=${policy.name}></option>`)}</datalist>
      <button disabled=${!text.trim()}>Switch …</button></div></form>`;
}

const SECTIONS = ["Paper", "Needs", "Controls", "Cost", "Deviations"];

function Card({ policy, active, admin }) {
  const { name, refused, sections } = policy;
  const settable = Object.entries(policy.parameters);
  const section = (key) =>
    html`<dt key=${key}>${key.toLowerCase()}</dt><dd>${ticks(sections[key])}</dd>`;
  return html`<article class="policy-card" data-active=${active ? "" : null}>
    <div class="line"><h3><code>${name}</code></h3>${active && html`<span class="badge running">decides now</span>`}
      ${admin && !active && html`<button class="quiet" disabled=${Boolean(refused)} title=${refused} onClick=${() => use(name)}>Use …</button>`}
      ${!active && !refused && html`<a class="small" href=${link("what-if", [], { policy: name })}>Simulate it first</a>`}</div>
    <div>${ticks(policy.summary)}</div>
    ${sections.Objective && html`<div class="small"><span class="dim">optimises</span> ${ticks(sections.Objective)}</div>`}
    ${refused && html`<div class="small dim">Not here: ${refused}</div>`}
    <details class="small"><summary class="dim">Paper, parameters, deviations</summary>
      <dl class="facts">${SECTIONS.filter((key) => sections[key]).map(section)}
        ${settable.length > 0 && html`<dt>parameters</dt><dd>${settable.map(([key, value]) => html`<div key=${key}><code>${key}=${value}</code></div>`)}</dd>`}
      </dl></details></article>`;
}

function Decisions({ decisions }) {
  const { data, error, loading } = useAsk(
    (signal) => get("/decisions?limit=60", { signal }),
    `decisions ${Math.floor(decisions / 3)}`,
  );
  return html`<${Panel} title="Last decisions" flush=${true}>
    <${Trouble} error=${error} />
    ${loading && !data ? html`<${Loading} />` : null}
    ${data && data.part_read < 0.999 && html`<p class="loading" role="status">Reading the log: ${percent(data.part_read)}</p>`}
    ${data && !data.decisions.length && html`<${Empty} title="No decisions yet">Decisions that change something appear here.<//>`}
    ${
      data?.decisions.length > 0 &&
      html`<div class="decisions" tabindex="0" role="region"
    aria-label="Last decisions">${data.decisions.map(
      (decision) => html`<${DecisionCard} key=${decision.number}
      decision=${decision} />`,
    )}</div>`
    }<//>`;
}

const SHOWN = 12; // moves of a decision

function DecisionCard({ decision }) {
  const more = decision.more_moves + Math.max(decision.moves.length - SHOWN, 0);
  const figures = figuresOf(decision.numbers);
  const move = (each) =>
    html`<li key=${each.job}><${Sign} move=${each} /> <a href=${link("job", [each.job])}><bdi>${each.name}</bdi></a> ${
      startsLike(each) ? each.why : tell(each)
    }${!startsLike(each) && each.why && html`<span class="dim"> – ${each.why}</span>`}</li>`;
  return html`<article class="policy-card">
    <div class="line"><h3>Decision ${number(decision.number)}</h3><span class="dim small">${clock(decision.at)}</span>
      ${decision.took_s != null && html`<span class="dim small">took ${duration(decision.took_s)}</span>`}
      ${decision.by && html`<span class="badge failed">decided by ${decision.by} instead</span>`}</div>
    ${figures.length > 0 && html`<details class="small dim"><summary>numbers of the policy</summary>${figures.join("; ")}</details>`}
    <ul class="small">${decision.moves.slice(0, SHOWN).map(move)}</ul>
    ${more > 0 && html`<div class="small dim">and ${number(more)} more</div>`}
    ${decision.rejected > 0 && html`<div class="small">${number(decision.rejected)} rejected</div>`}</article>`;
}

/** More, less or as much as before, at a glance. */
function Sign({ move: { before_gpus: before, after_gpus: after } }) {
  const [look, sign] =
    after > before ? ["running", "▲"] : after < before ? ["waiting", "▼"] : ["moving", "↔"];
  return html`<span class="sign" style=${{ color: `var(--${look})` }} aria-hidden="true">${sign}</span>`;
}

/** What the policy computed, for those who know it. */
function figuresOf(numbers) {
  const prices = Object.entries(numbers).filter(([key]) => key.startsWith("price "));
  const worth = prices.map(([key, value]) => `${number(value)} (${key.slice(6)})`).join(", ");
  return [
    worth && `a ${theDevice()} is worth ${worth}`,
    numbers.gap >= 5e-4 &&
      `it did not rule out a plan that is better by up to ${percent(numbers.gap)} in its own measure`,
  ].filter(Boolean);
}

/** Whether the policy's own words say no less than ours. */
const startsLike = (move) => !move.before_gpus && /^starts (at once )?on /.test(move.why || "");

function tell(move) {
  const [from, to] = [number(move.before_gpus), count(move.after_gpus, theDevice())];
  if (!move.before_gpus) return `starts on ${to}`;
  if (!move.after_gpus) return `gives ${count(move.before_gpus, theDevice())} back`;
  if (move.adjusted) return `stays on ${to}, with other settings`;
  return move.before_gpus === move.after_gpus ? `moves, with ${to}` : `goes from ${from} to ${to}`;
}
