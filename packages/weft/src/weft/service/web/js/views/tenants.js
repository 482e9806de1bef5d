// Who got what, against what was due to him: over time, as a table, and as CSV.
import { get } from "../api.js";
import { Chart, lineColour } from "../charts.js";
import { duration, gpuHours, number, percent, theDevice } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { link, setQuery } from "../route.js";
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
  return html`
    <${Panel} title="Share received and entitlement" level=1
    end=${
      tenants.length > 1
        ? html`<${Choice} label="Tenant" value=${chosen ? chosen.tenant : ""}
      options=${[["", "all"], ...tenants.slice(0, 12).map((row) => [row.tenant, row.tenant])]} choose=${(tenant) => setQuery({ tenant })} />`
        : null
    }>
      <${Trouble} error=${shares.error} />
      ${shares.loading && !shares.data ? html`<${Loading} />` : null}
      ${
        tenants.length
          ? html`<${Shares} shares=${shares.data} chosen=${chosen} />`
          : shares.data
            ? html`<${Empty}
      title="No tenant has used any GPU time yet">The chart begins with the first job.<//>`
            : null
      }<//>
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

function Table({ accounts, quotas, edit }) {
  const { data, error, loading } = accounts;
  return html`<${Panel} title="Accounting" flush=${true} end=${html`${
    data?.jain != null
      ? html`<span
    class="dim small" title="1: all received the same part of what was due to them">Jain's index ${data.jain.toFixed(2)}</span>`
      : null
  }<${Csv} />`}>
    <${Trouble} error=${error} />${loading && !data ? html`<${Loading} />` : null}
    ${data && !data.tenants.length && html`<${Empty} title="No tenant has used any GPU time">The accounts begin with the first job.<//>`}
    ${
      data?.tenants.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="Accounting by tenant">
        <table><thead><tr><th scope="col">Tenant</th><th class="num roomy" scope="col">Jobs</th>
        <th class="num" scope="col">Used</th><th class="num" scope="col">Entitled to</th>
        <th class="num" scope="col">Received</th><th class="num roomy" scope="col">Weight</th>
      ${
        quotas &&
        html`<th class="num roomy" scope="col">Holds now</th><th class="num roomy" scope="col">Limit</th>
      <th class="num roomy" scope="col">Own</th><th class="num roomy" scope="col">Guaranteed</th>
      <th class="roomy" scope="col"><span class="visually-hidden">Quota</span></th>`
      }</tr></thead>
      <tbody>${data.tenants.map(
        (
          row,
        ) => html`<tr key=${row.tenant}><td><a href=${link("jobs", [], { tenant: row.tenant, state: "all" })}>
          ${row.tenant}</a></td><td class="num roomy">${number(row.jobs)}</td>
          <td class="num nowrap">${gpuHours(row.gpu_seconds)}</td><td class="num nowrap">${gpuHours(row.entitled_gpu_seconds)}</td>
        <td class="num">${row.received == null ? "–" : percent(row.received)}</td><td class="num roomy">${number(row.weight)}</td>
        ${
          quotas &&
          html`<td class="num roomy">${number(quotas.held[row.tenant] ?? 0)}</td>
        <td class="num roomy">${number(quotas.limits[row.tenant]) || "none"}</td>
        <td class="num roomy">${number(quotas.own[row.tenant]) || "–"}</td>
        <td class="num roomy">${number(quotas.guaranteed[row.tenant]) || "–"}</td>
        <td class="roomy"><button class="quiet" aria-label=${`Change the quota of ${row.tenant}`}
        onClick=${() => edit(row.tenant)}>Change</button></td>`
        }</tr>`,
      )}</tbody></table></div>`
    }<//>`;
}

/** A link cannot send the header that a session needs, so the page asks and saves. */
function Csv() {
  const save = async () => {
    const answer = await fetch("/api/v1/accounting?format=csv", {
      headers: { "x-weft-page": "1" },
      credentials: "same-origin",
    });
    const made = Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(await answer.blob()),
      download: "accounting.csv",
    });
    made.click();
    setTimeout(() => URL.revokeObjectURL(made.href), 10_000);
  };
  return html`<button onClick=${save}>Jobs as CSV</button>`;
}
