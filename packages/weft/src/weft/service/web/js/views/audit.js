// Who changed what, and what was refused; for admins. What is looked for is in the address.
import { get, query as fields } from "../api.js";
import { clock, count } from "../format.js";
import { html } from "../lib.js";
import { link, setQuery } from "../route.js";
import { Empty, Field, Loading, Panel, Trouble, useAsk } from "../ui.js";

const SHOWN = 200;
const EVERY_MS = 15_000;
const FILTERS = [
  ["name", "Token or person"],
  ["tenant", "Tenant"],
  ["about", "Part of a path or id"],
];

export function AuditView({ route }) {
  const { query } = route;
  const asked = { ...query, limit: SHOWN };
  const { data, error, loading } = useAsk(
    (signal) => get("/audit" + fields(asked), { signal }),
    JSON.stringify(query),
    { every: EVERY_MS },
  );
  const entries = [...(data?.requests || [])].reverse();
  return html`<${Panel} title="Who did what" level=1 flush=${true}
    end=${html`<span class="dim small" role="status">${count(entries.length, "request")}, the newest first</span>`}>
    <div class="fields lonely audit">${FILTERS.map(
      ([name, label]) =>
        html`<${Field} key=${name} label=${label}><input type="search" value=${query[name] || ""}
          onChange=${(event) => setQuery({ [name]: event.target.value.trim() })} /><//>`,
    )}<label class="check small"><input type="checkbox" checked=${Boolean(query.failed)}
      onChange=${(event) => setQuery({ failed: event.target.checked ? "true" : "" })} /> refused only</label></div>
    <${Trouble} error=${error} />${loading && !data ? html`<${Loading} />` : null}
    ${data && !entries.length && html`<${Empty} title="No requests match">Requests that change something, and those that were refused, are noted.<//>`}
    ${entries.length > 0 && html`<${Table} groups=${alike(entries)} />`}<//>`;
}

// What a request does; `*` stands for what it does it to.
const DEEDS = {
  "POST jobs": "submitted",
  "POST jobs/batch": "submitted jobs",
  "DELETE jobs/*": "cancelled",
  "POST jobs/*/suspend": "suspended",
  "POST jobs/*/resume": "resumed",
  "PUT jobs/*/priority": "changed the priority of",
  "POST jobs/*/again": "submitted again",
  "POST jobs/*/terminal": "opened the terminal of",
  "POST jobs/*/shell": "opened a shell beside",
  "POST jobs/*/ports": "opened a port of",
  "POST nodes/*/drain": "drained",
  "POST nodes/*/undrain": "put back into service",
  "POST nodes/*/check": "checked",
  "PUT policy": "switched the policy",
  "PUT quotas": "changed quotas",
  "POST tokens": "created a token",
  "POST tokens/*/rotate": "renewed token",
  "DELETE tokens/*": "revoked token",
  "POST webhooks": "added a webhook",
  "DELETE webhooks/*": "removed webhook",
  "PUT reservations/*": "made reservation",
  "DELETE reservations/*": "removed reservation",
  "POST what-if": "simulated a what-if",
  "POST verdict": "had the log checked",
  "POST sign-in": "signed in",
  "DELETE sign-in": "signed out",
};
const PLACES = { jobs: "job", nodes: "node" };

/** A request as a deed, what it was done to, and the page of that. */
function readRequest({ method, path, about }) {
  const [, , , kind, id, word] = path.split("/");
  const keys = [[kind, id], [kind, id && "*", word], [kind]];
  const deed = keys
    .map((parts) => DEEDS[`${method} ${parts.filter(Boolean).join("/")}`])
    .find(Boolean);
  const object = about || (id && !DEEDS[`${method} ${kind}/${id}`] ? decodeURIComponent(id) : "");
  return {
    deed: deed || "asked for",
    object,
    place: PLACES[kind] && object && [PLACES[kind], [object]],
  };
}

const roleOf = ({ role, tenant }) =>
  [role, tenant === "*" ? "all tenants" : tenant].filter(Boolean).join(" of ");
const doer = (entry) => entry.name || entry.token || "no token";

/** Entries in a row of one person that did the same with the same outcome, together. */
export function alike(entries) {
  const groups = [];
  let before = "";
  for (const entry of entries) {
    const { deed } = readRequest(entry);
    const key = JSON.stringify([doer(entry), roleOf(entry), entry.address, deed, entry.status]);
    if (key === before) groups.at(-1).push(entry);
    else groups.push([entry]);
    before = key;
  }
  return groups;
}

function What({ entry }) {
  const { deed, object, place } = readRequest(entry);
  const name = html`<bdi>${object}</bdi>`;
  return html`${deed} ${place ? html`<a href=${link(...place)}>${name}</a>` : name}${" "}
    <code class="dim small">${entry.method} ${entry.path.replace("/api/v1", "")}</code>`;
}

function Table({ groups }) {
  const row = (entries) => {
    const [entry] = entries;
    const many = html`<details><summary>${readRequest(entry).deed} ${count(entries.length, "time")}, from ${clock(entries.at(-1).at)} on</summary>
      <ul>${entries.map((each, i) => html`<li key=${i}><span class="dim small">${clock(each.at)}</span> <${What} entry=${each} /></li>`)}</ul></details>`;
    return html`<tr key=${`${entries.at(-1).at} ${entry.path}`}><td class="nowrap">${clock(entry.at)}</td>
      <td class="wrap"><bdi>${doer(entry)}</bdi> <span class="dim small">${roleOf(entry)}</span></td>
      <td class="wrap">${entries.length > 1 ? many : html`<${What} entry=${entry} />`}</td>
      <td class="roomy">${entry.address}</td>
      <td><span class="badge ${entry.status < 400 ? "ended" : "failed"}">${entry.status < 400 ? "done" : "refused"} ${entry.status}</span></td></tr>`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Requests"><table>
    <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">What</th>
    <th class="roomy" scope="col">From</th><th scope="col">Outcome</th></tr></thead>
    <tbody>${groups.map(row)}</tbody></table></div>`;
}
