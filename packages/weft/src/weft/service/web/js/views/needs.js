// What needs a person, each with its next step: above everything else on the first view.
import { get } from "../api.js";
import { count } from "../format.js";
import { html, useState } from "../lib.js";
import { link } from "../route.js";
import { More, ticks, useAsk } from "../ui.js";

const EVERY_MS = 10_000;
const FIRST = 3;
const GRAVE = new Set(["service", "judge", "deadline", "slowdown", "failing", "failed"]);
const STATE = { failed: "failed", quota: "waiting" };

/** What to link to: the view that shows what it is about; none for the service itself. */
function where({ kind, tenant, about, jobs, nodes, ...need }) {
  if (nodes.length) return ["node", [nodes[0]]];
  if (kind === "judge") return ["tenants"];
  if (need.count === 1 && jobs.length) return ["job", [jobs[0].id]];
  return jobs.length && ["jobs", [], { state: STATE[kind] || "active", tenant, q: about }];
}

const Need = ({ need }) => {
  const to = where(need);
  return html`<li><span class="badge ${GRAVE.has(need.kind) ? "failed" : "waiting"}">${need.kind}</span>
    <div>${to ? html`<a href=${link(...to)}>${need.text}</a>` : need.text}<div class="dim small">${ticks(need.step)}</div></div></li>`;
};

export function Needs() {
  const [all, showAll] = useState(false);
  const { data } = useAsk((signal) => get("/needs", { signal }), "needs", { every: EVERY_MS });
  const needs = data?.needs || [];
  return html`<section class="needs" aria-label="What needs you">
    <h2>${needs.length ? "What needs you" : html`<span class="dim">${data ? "Nothing needs you" : "Looking for what needs you …"}</span>`}</h2>
    ${needs.length > 0 && html`<ul>${needs.slice(0, all ? needs.length : FIRST).map((need) => html`<${Need} need=${need} />`)}</ul>`}
    <${More} more=${needs.length - FIRST} all=${all} show=${showAll} />
    ${all && data.more > 0 && html`<span class="dim small">${count(data.more, "entry", "entries")} more of the same kinds</span>`}</section>`;
}
