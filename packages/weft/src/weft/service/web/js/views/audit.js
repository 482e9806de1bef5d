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
    ${entries.length > 0 && html`<${Table} entries=${entries} />`}<//>`;
}

const PLACES = { jobs: "job", nodes: "node" };

/** Where a request led to, if that has a page: `/api/v1/jobs/ID/suspend` to the job. */
function placeOf({ path, about }) {
  const [, , , kind, id] = path.split("/");
  const view = PLACES[kind];
  return view && (about || id) && [view, [about || decodeURIComponent(id)]];
}

const roleOf = ({ role, tenant }) =>
  [role, tenant === "*" ? "all tenants" : tenant].filter(Boolean).join(" of ");

function Table({ entries }) {
  const row = (entry, i) => {
    const place = placeOf(entry);
    const who = entry.name || entry.token || "no token";
    const what = html`<code>${entry.method} ${entry.path.replace("/api/v1", "")}</code>`;
    return html`<tr key=${`${entry.at} ${i}`}><td class="nowrap">${clock(entry.at)}</td>
      <td class="wrap"><bdi>${who}</bdi><div class="dim small">${roleOf(entry)}</div></td>
      <td class="wrap">${place ? html`<a href=${link(...place)}>${what}</a>` : what}
      ${entry.about && !entry.path.includes(entry.about) && html`<div class="dim small">${entry.about}</div>`}</td>
      <td class="roomy">${entry.address}</td>
      <td><span class="badge ${entry.status < 400 ? "ended" : "failed"}">${entry.status < 400 ? "done" : "refused"} ${entry.status}</span></td></tr>`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Requests"><table>
    <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">What</th>
    <th class="roomy" scope="col">From</th><th scope="col">Outcome</th></tr></thead>
    <tbody>${entries.map(row)}</tbody></table></div>`;
}
