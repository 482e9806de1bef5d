// Who got what, against what was due to him: over time, as a table, and as CSV.
import { get } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { duration, gpuHours, number, percent, theDevice } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { link, setQuery } from "../route.js";
import { save } from "../save.js";
import { Choice, Empty, Loading, Panel, Trouble, useAsk } from "../ui.js";
import { Quotas } from "./quotas.js";
import { Verdict } from "./verdict.js";

const EVERY_MS = 10_000;

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
  const options = [["", "all"], ...tenants.slice(0, 12).map((row) => [row.tenant, row.tenant])];
  const choice =
    tenants.length > 1 &&
    html`<${Choice} label="Tenant" value=${chosen ? chosen.tenant : ""} options=${options} choose=${(tenant) => setQuery({ tenant })} />`;
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

/** One tenant: received and entitled. All: what each received, stacked by lines. */
function Shares({ shares, chosen }) {
  const few = chosen
    ? [chosen]
    : [...shares.tenants]
        .sort((a, b) => sum(b.used_gpus) - sum(a.used_gpus))
        .slice(0, 8)
        .sort((a, b) => (a.tenant < b.tenant ? -1 : 1)); // the same colours tomorrow
  const data = useMemo(
    () => [shares.at, ...few.flatMap((row) => [row.used_gpus, row.entitled_gpus])],
    [shares, chosen?.tenant],
  );
  const series = few.flatMap((row, i) =>
    chosen
      ? [
          {
            label: `${row.tenant} received`,
            step: true,
            colour: lineColour(0),
            fill: "oklch(58% 0.15 262 / 14%)",
          },
          { label: "entitled to", step: true, dash: [5, 4], colour: lineColour(1) },
        ]
      : [
          { label: row.tenant, step: true, colour: lineColour(i) },
          { label: `${row.tenant}, due`, step: true, dash: [4, 4 + 4 * i], colour: lineColour(i) },
        ],
  );
  return html`<${Chart} key=${chosen?.tenant || "all"} data=${data} series=${series} height=${260} zero=${true}
    yLabel=${`${theDevice()}s, average`} describe=${`${theDevice()}s of ${few.map((row) => row.tenant).join(", ")} over time`} />
    <p class="dim small">${theDevice()}s on average in windows of ${duration(shares.window_s)}
    ${chosen || few.length ? "; dashed, due: its part of the cluster by weight, no more than its jobs asked for" : ""}</p>`;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

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

function Table({ accounts, quotas, edit }) {
  const { data, error, loading } = accounts;
  const jain =
    data?.jain != null &&
    html`<span class="dim small" title="1: all received the same part of what was due to them">Jain's index ${data.jain.toFixed(2)}</span>`;
  const button = (tenant) =>
    html`<button class="quiet" aria-label=${`Change the quota of ${tenant}`} onClick=${() => edit(tenant)}>Change</button>`;
  const row = ({ tenant, ...used }) =>
    html`<tr key=${tenant}><td><div><a href=${link("jobs", [], { tenant, state: "all" })}>${tenant}</a></div>
        ${quotas && html`<div class="phone small dim">${inLine(quotas, tenant)} ${button(tenant)}</div>`}</td>
      <td class="num roomy">${number(used.jobs)}</td><td class="num nowrap">${gpuHours(used.gpu_seconds)}</td>
      <td class="num nowrap">${gpuHours(used.entitled_gpu_seconds)}</td>
      <td class="num">${used.received == null ? "–" : percent(used.received)}</td><td class="num roomy">${number(used.weight)}</td>
      ${quotas && RULES.map(([label, rule, none]) => html`<td key=${label} class="num roomy">${number(quotas[rule][tenant]) || none}</td>`)}
      ${quotas && html`<td class="roomy">${button(tenant)}</td>`}</tr>`;
  return html`<${Panel} title="Accounting" flush=${true} end=${html`${jain}
    ${quotas && html`<a class="button" href=${link("audit")}>Who did what</a>`}<${Csv} />`}>
    <${Trouble} error=${error} />${loading && !data ? html`<${Loading} />` : null}
    ${data && !data.tenants.length && html`<${Empty} title="No tenant has used any GPU time">The accounts begin with the first job.<//>`}
    ${
      data?.tenants.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="Accounting by tenant"><table>
        <thead><tr><th scope="col">Tenant</th><th class="num roomy" scope="col">Jobs</th><th class="num" scope="col">Used</th>
          <th class="num" scope="col">Entitled to</th><th class="num" scope="col">Received</th><th class="num roomy" scope="col">Weight</th>
          ${quotas && RULES.map(([label]) => html`<th key=${label} class="num roomy" scope="col">${label}</th>`)}
          ${quotas && html`<th class="roomy" scope="col"><span class="visually-hidden">Quota</span></th>`}</tr></thead>
        <tbody>${data.tenants.map(row)}</tbody></table></div>`
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
