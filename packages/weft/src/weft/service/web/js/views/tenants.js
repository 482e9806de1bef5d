// Who got what, against what was due to him: over time, as a table, and as CSV.
import { get } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { duration, hourUnit, number, percent, theDevice } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { link, setQuery } from "../route.js";
import { save } from "../save.js";
import { Empty, Loading, Panel, Trouble, useAsk } from "../ui.js";
import { Quotas } from "./quotas.js";
import { Verdict } from "./verdict.js";

const EVERY_MS = 10_000;
const DRAWN = 12; // tenants; more would be too many to look at

export function TenantsView({ route, me }) {
  const shares = useAsk((signal) => get("/accounting/shares", { signal }), "shares", {
    every: EVERY_MS,
  });
  const accounts = useAsk((signal) => get("/accounting?limit=0", { signal }), "accounts", {
    every: EVERY_MS,
  });
  const quotas = useAsk(
    (signal) => (me.role === "admin" ? get("/quotas", { signal }) : Promise.resolve(null)),
    "quotas",
    { every: EVERY_MS },
  );
  const [edited, setEdited] = useState("");
  const tenants = shares.data?.tenants || [];
  const chosen = tenants.find((row) => row.tenant === route.query.tenant) || null;
  const choice =
    tenants.length > 1 &&
    html`<select aria-label="Tenant" value=${chosen ? chosen.tenant : ""}
      onChange=${(event) => setQuery({ tenant: event.target.value })}><option value="">all tenants</option>
      ${tenants.map(({ tenant }) => html`<option key=${tenant} value=${tenant}>${tenant}</option>`)}</select>`;
  return html`
    <${Panel} title="Share received and entitlement" level=1 end=${choice}>
      <${Trouble} error=${shares.error} />
      ${shares.loading && !shares.data ? html`<${Loading} />` : null}
      ${tenants.length > 0 && html`<${Shares} shares=${shares.data} chosen=${chosen} />`}
      ${shares.data && !tenants.length && html`<${Empty} title="No tenant has used any GPU time yet">The chart begins with the first job.<//>`}<//>
    <${Table} accounts=${accounts} quotas=${quotas.data} edit=${(tenant) => {
      setEdited(tenant);
      document.getElementById("quota")?.scrollIntoView({ block: "nearest" });
    }} />
    ${
      me.role === "admin" &&
      quotas.data &&
      html`<${Quotas} quotas=${quotas.data}
    tenants=${tenants.map((row) => row.tenant)} chosen=${edited} saved=${quotas.again} />`
    }
    ${me.everywhere && html`<${Verdict} me=${me} />`}`;
}

const PAIR = [
  { label: "received", step: true, colour: lineColour(0), fill: "oklch(58% 0.15 262 / 14%)" },
  { label: "due", step: true, dash: [5, 4], colour: lineColour(1) },
];

/** What a tenant received, and what was due to it. */
function Share({ at, row, ...look }) {
  const data = useMemo(() => [at, row.used_gpus, row.entitled_gpus], [at, row]);
  const describe = `${theDevice()}s of ${row.tenant} over time, received and due`;
  return html`<${Chart} data=${data} series=${PAIR} describe=${describe} ...${look} />`;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** One tenant large; of all those that used most, each on the same scale. */
function Shares({ shares, chosen }) {
  const few = [...shares.tenants]
    .sort((a, b) => sum(b.used_gpus) - sum(a.used_gpus))
    .slice(0, DRAWN)
    .sort((a, b) => (a.tenant < b.tenant ? -1 : 1)); // the same places tomorrow
  const most = Math.max(1, ...few.flatMap((row) => [...row.used_gpus, ...row.entitled_gpus]));
  const small = (row) =>
    html`<figure key=${row.tenant}>
      <figcaption><h3><a href=${link("tenants", [], { tenant: row.tenant })}><bdi>${row.tenant}</bdi></a></h3></figcaption>
      <${Share} at=${shares.at} row=${row} height=${130} range=${[0, 1.05 * most]} /></figure>`;
  const left = shares.tenants.length - few.length;
  return html`${
    chosen
      ? html`<${Share} key=${chosen.tenant} at=${shares.at} row=${chosen} height=${260} zero=${true}
          yLabel=${`${theDevice()}s, average`} />`
      : html`<div class="small-charts">${few.map(small)}</div>`
  }
    <p class="dim small">${theDevice()}s on average in windows of ${duration(shares.window_s)}.
      Due: a tenant's part of the cluster by weight, no more than its jobs asked for.
      ${!chosen && left > 0 && `The ${few.length} that used most are drawn; ${left} more can be chosen.`}</p>`;
}

/** Columns of quotas: heading, rule, and what stands where a tenant has none. */
const RULES = [
  ["Holds now", "held", "0"],
  ["Limit", "limits", "none"],
  ["Own", "own", "–"],
  ["Guaranteed", "guaranteed", "–"],
];

/** A tenant's quota in a line, where there is no room for columns. */
function inLine(quotas, tenant) {
  const given = RULES.filter(([, rule]) => rule !== "held" && quotas[rule][tenant]);
  const rules = given.map(
    ([label, rule]) => `${label.toLowerCase()} ${number(quotas[rule][tenant])}`,
  );
  return [
    `holds ${number(quotas.held[tenant] ?? 0)}`,
    ...(rules.length ? rules : ["no limit"]),
  ].join(", ");
}

const hours = (seconds) => number(seconds / 3600);

function Table({ accounts, quotas, edit }) {
  const { data, error, loading } = accounts;
  const jain =
    data?.jain != null &&
    html`<p class="dim small lonely">Jain's index ${data.jain.toFixed(2)}: at 1 all received the same part of what was due to them.</p>`;
  const button = (tenant) =>
    html`<button class="quiet" aria-label=${`Change the quota of ${tenant}`} onClick=${() => edit(tenant)}>Change</button>`;
  const row = ({ tenant, ...used }) =>
    html`<tr key=${tenant}><td><div><a href=${link("jobs", [], { tenant, state: "all" })}>${tenant}</a></div>
        ${quotas && html`<div class="phone small dim">${inLine(quotas, tenant)} ${button(tenant)}</div>`}</td>
      <td class="num roomy">${number(used.jobs)}</td><td class="num nowrap">${hours(used.gpu_seconds)}</td>
      <td class="num nowrap">${hours(used.entitled_gpu_seconds)}</td>
      <td class="num">${used.received == null ? "–" : percent(used.received)}</td><td class="num roomy">${number(used.weight)}</td>
      ${quotas && RULES.map(([label, rule, none]) => html`<td key=${label} class="num roomy">${number(quotas[rule][tenant]) || none}</td>`)}
      ${quotas && html`<td class="roomy">${button(tenant)}</td>`}</tr>`;
  return html`<${Panel} title="Accounting" flush=${true} end=${html`${quotas && html`<a class="button" href=${link("audit")}>Who did what</a>`}<${Csv} />`}>
    <${Trouble} error=${error} />${loading && !data ? html`<${Loading} />` : null}
    ${data && !data.tenants.length && html`<${Empty} title="No tenant has used any GPU time">The accounts begin with the first job.<//>`}
    ${
      data?.tenants.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="Accounting by tenant"><table>
        <thead><tr><th scope="col">Tenant</th><th class="num roomy" scope="col">Jobs</th><th class="num" scope="col">Used, ${hourUnit()}</th>
          <th class="num" scope="col">Due</th><th class="num" scope="col">Received</th><th class="num roomy" scope="col">Weight</th>
          ${quotas && RULES.map(([label]) => html`<th key=${label} class="num roomy" scope="col">${label}</th>`)}
          ${quotas && html`<th class="roomy" scope="col"><span class="visually-hidden">Quota</span></th>`}</tr></thead>
        <tbody>${data.tenants.map(row)}</tbody></table></div>${jain}`
    }<//>`;
}

/** A link cannot send the header that a session needs, so the page asks and saves. */
function Csv() {
  const download = async () => {
    const answer = await fetch("/api/v1/accounting?format=csv", {
      headers: { "x-weft-page": "1" },
      credentials: "same-origin",
    });
    save("accounting.csv", await answer.blob());
  };
  return html`<button onClick=${download}>Jobs as CSV</button>`;
}
