// What the scheduler promised in the last month, how much of it held, and what went wrong.
import { get, post } from "../api.js";
import { clock, count, duration, number, percent } from "../format.js";
import { html, useState } from "../lib.js";
import { link } from "../route.js";
import { attempt, Empty, Loading, Panel, Trouble, useAsk } from "../ui.js";

const EVERY_MS = 10_000;
const SHOWN = 20;

export function Verdict({ me }) {
  const { data, error, loading, again } = useAsk(
    (signal) => get("/verdict", { signal }),
    "verdict",
    { every: EVERY_MS },
  );
  const check = async () => {
    await attempt(() => post("/verdict"), "the log is being checked");
    again();
  };
  const button = html`<button disabled=${data?.running} onClick=${check}>${data?.running ? "Checking …" : "Check now"}</button>`;
  return html`<${Panel} title="What was promised, and what held" id="verdict" flush=${true}
    end=${html`${data?.made != null ? html`<${Summary} verdict=${data} />` : null}${me.role === "admin" ? button : null}`}>
    <${Trouble} error=${error} />${loading && !data ? html`<${Loading} />` : null}
    ${data?.trouble ? html`<div class="problem" role="alert">The last check did not end: ${data.trouble}</div>` : null}
    ${
      data &&
      data.made == null &&
      html`<${Empty} title="Not checked yet">
    ${data.next != null ? "The log is checked soon." : html`<code>weft serve --verify daily</code> checks the log every day.`}<//>`
    }
    ${data?.events > 0 && html`<${Promises} verdict=${data} /><${Findings} findings=${data.findings} all=${data.wrong + data.doubts} />`}
    ${data?.events > 0 && html`<p class="dim small lonely">${checked(data)}</p>`}<//>`;
}

/** What was checked, when, and when it will be again. */
const checked = ({ events, begin, end, made, took_s, next, whole }) =>
  [
    `${count(events, "event")} from ${clock(begin)} to ${clock(end)}, checked at ${clock(made)} in ${duration(took_s)}`,
    next != null && `next at ${clock(next)}`,
    !whole && "the log has no beginning, and jobs from before are left out",
  ]
    .filter(Boolean)
    .join("; ");

const Summary = ({ verdict }) =>
  html`<span class="badge ${verdict.wrong ? "failed" : "running"}">${verdict.wrong ? `${number(verdict.wrong)} wrong` : "nothing is wrong"}</span>
    ${verdict.doubts ? html`<span class="badge waiting">${number(verdict.doubts)} in doubt</span>` : null}`;

function Promises({ verdict }) {
  const { promises, tenants } = verdict;
  const rows = [
    ...promises.map((row) => [
      row.what,
      row.who,
      number(row.made),
      number(row.kept),
      row.kept / row.made,
    ]),
    ...tenants
      .filter((row) => row.entitled_gpu_seconds > 0)
      .map((row) => [
        "GPU-hours due",
        row.tenant || "no tenant",
        number(row.entitled_gpu_seconds / 3600),
        number(row.met_gpu_seconds / 3600),
        row.met_gpu_seconds / row.entitled_gpu_seconds,
      ]),
  ];
  if (!rows.length)
    return html`<${Empty} title="Nothing was promised">Deadlines, quotas, reservations and predicted starts appear here.<//>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Promises">
    <table><thead><tr><th scope="col">Promise</th><th scope="col">By or to</th>
    <th class="num roomy" scope="col">Made</th><th class="num roomy" scope="col">Kept</th><th class="num" scope="col">Part kept</th></tr></thead>
    <tbody>${rows.map(
      ([what, who, made, kept, part]) => html`<tr key=${`${what} ${who}`}><td>${what}</td>
    <td>${who}</td><td class="num roomy">${made}</td><td class="num roomy">${kept}</td>
    <td class="num">${percent(part)}</td></tr>`,
    )}</tbody></table></div>`;
}

function Findings({ findings, all }) {
  const [shown, setShown] = useState(SHOWN);
  if (!findings.length) return null;
  return html`<ul class="small lonely">${findings.slice(0, shown).map(
    (finding) => html`<li key=${`${finding.line} ${finding.what} ${finding.text}`}>
      <span class="badge ${finding.weight === "wrong" ? "failed" : "waiting"}">${finding.what}</span>
      ${clock(finding.at)} ${finding.jobs.slice(0, 3).map(
        (job) => html`<a key=${job} href=${link("job", [job])}>
      ${job}</a> `,
      )}${finding.text} <span class="dim">line ${number(finding.line)}</span></li>`,
  )}</ul>
  ${
    findings.length > shown
      ? html`<p class="lonely"><button class="quiet"
  onClick=${() => setShown(findings.length)}>Show ${number(findings.length - shown)} more</button></p>`
      : null
  }
  ${all > findings.length ? html`<p class="dim small lonely">${number(all)} in all: <code>weft verify --all</code> shows them.</p>` : null}`;
}
