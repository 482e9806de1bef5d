// What an admin lets a tenant hold: rules of one tenant at a time, those of the others stay.
import { get, put } from "../api.js";
import { theDevice } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { attempt, confirm, Field, Panel } from "../ui.js";

const RULES = [
  ["limits", `${theDevice()}s at most`, "no limit"],
  ["weights", "Weight", "1"],
  ["own", `${theDevice()}s it owns`, "none"],
  ["guaranteed", `${theDevice()}s for guaranteed jobs`, "none"],
];
const KEPT = ["limits", "weights", "guaranteed", "own", "parents", "half_life_s", "min_run_s"];

const valuesOf = (quotas, tenant) =>
  Object.fromEntries(RULES.map(([rule]) => [rule, quotas[rule][tenant] ?? ""]));

/** The form for one tenant; `chosen` is whose row was opened. */
export function Quotas({ quotas, tenants, chosen, saved }) {
  const [tenant, setTenant] = useState(chosen);
  const [typed, setTyped] = useState(valuesOf(quotas, chosen));
  useEffect(() => {
    setTenant(chosen);
    setTyped(valuesOf(quotas, chosen));
  }, [chosen]);
  const name = tenant.trim();
  const changes = RULES.filter(
    ([rule]) => String(typed[rule]) !== String(quotas[rule][name] ?? ""),
  );
  const save = async (event) => {
    event.preventDefault();
    const summary = changes
      .map(
        ([rule, label, none]) =>
          `${label}: ${quotas[rule][name] ?? none} → ${typed[rule] === "" ? none : typed[rule]}`,
      )
      .join("; ");
    if (
      !(await confirm(`Change the quota of ${name}?`, {
        detail: `${summary}. Limits do not stop running jobs; owners take back their own GPUs.`,
        action: "Change the quota",
      }))
    )
      return;
    const done = await attempt(async () => {
      const now = await get("/quotas"); // others may have changed theirs meanwhile
      const body = Object.fromEntries(KEPT.map((rule) => [rule, now[rule]]));
      for (const [rule] of changes) {
        body[rule] = { ...body[rule] };
        if (typed[rule] === "") delete body[rule][name];
        else body[rule][name] = Number(typed[rule]);
      }
      return put("/quotas", body);
    }, `the quota of ${name} is changed`);
    if (done) saved();
  };
  return html`<${Panel} title="Quota" id="quota"><form class="form" onSubmit=${save}>
    <div class="fields"><${Field} label="Of tenant"><input required maxlength="64" list="tenant-names" value=${tenant} onInput=${(
      event,
    ) => {
      setTenant(event.target.value);
      setTyped(valuesOf(quotas, event.target.value.trim()));
    }} /><//>
      <datalist id="tenant-names">${tenants.map((tenant) => html`<option key=${tenant} value=${tenant}></option>`)}</datalist>
      ${RULES.map(
        ([rule, label, none]) => html`<${Field} key=${rule} label=${label}>
      <input type="number" min="0" step="any" placeholder=${none} value=${typed[rule]}
      onInput=${(event) => setTyped((was) => ({ ...was, [rule]: event.target.value }))} /><//>`,
      )}</div>
    <div class="row"><button class="main" disabled=${!name || !changes.length}>Change …</button>
      <span class="dim small">An empty field means no rule.
        For limits per kind of GPU, groups and lending, use <code>weft quota</code>.</span></div></form><//>`;
}
