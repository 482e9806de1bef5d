// Submitting a job: a command or a job file, with the plan's answer before it is sent.
import { post } from "../api.js";
import { count, range, ranges, startsIn, theDevice } from "../format.js";
import { html, useEffect, useMemo, useState } from "../lib.js";
import { go, link } from "../route.js";
import { useStore } from "../store.js";
import { attempt, Choice, Field, Loading, Panel, Trouble } from "../ui.js";

const PAUSE_MS = 500;
const EXAMPLE = `name: resnet18
command: [python, train.py]
gpus: {min: 1, max: 8}
batch: {init: 128, max: 4096}
`;

/** Words of a line as a shell would read them: quotes keep blanks together. */
export function words(line) {
  const result = [];
  let word = null,
    quote = "";
  for (let i = 0; i < line.length; i++) {
    const sign = line[i];
    if (quote) {
      if (sign === quote) quote = "";
      else if (sign === "\\" && quote === '"' && i + 1 < line.length) word += line[++i];
      else word += sign;
    } else if (sign === "'" || sign === '"') {
      quote = sign;
      word ??= "";
    } else if (/\s/.test(sign)) {
      if (word !== null) result.push(word);
      word = null;
    } else word = (word ?? "") + (sign === "\\" && i + 1 < line.length ? line[++i] : sign);
  }
  if (word !== null) result.push(word);
  return result;
}

/** A problem as the form has it: where a job file needs other words, here a box is ticked. */
export function inWordsOf(way, error) {
  const advice = "write the line as a script: `run: |`";
  if (way !== "form" || !error?.message.includes(advice)) return error;
  return {
    ...error,
    message: error.message.replace(advice, "tick “it is a script” below the field"),
  };
}

export function bodyOf(form) {
  const body = {};
  if (form.name.trim()) body.name = form.name.trim();
  if (form.script) body.run = form.command;
  else body.command = words(form.command);
  const [min, max] = [Number(form.min), Number(form.max || form.min)];
  body.gpus = max > min ? { min, max } : min;
  if (form.kinds.length) body.kinds = form.kinds;
  if (form.share !== "allowed") body.share = form.share === "never" ? "never" : Number(form.share);
  if (form.priority !== "normal") body.priority = form.priority;
  if (form.workdir.trim()) body.workdir = form.workdir.trim();
  if (form.tenant.trim()) body.tenant = form.tenant.trim();
  if (form.batch)
    body.batch = { init: Number(form.batch), max: Number(form.batchMax || form.batch) };
  if (form.duration) body.hints = { duration_s: Number(form.duration) * 60 };
  const env = Object.fromEntries(
    form.env
      .split("\n")
      .map((line) => line.split(/=(.*)/s))
      .filter(([key]) => key.trim())
      .map(([key, value = ""]) => [key.trim(), value]),
  );
  if (Object.keys(env).length) body.env = env;
  return body;
}

const FRESH = {
  name: "",
  command: "python train.py",
  script: false,
  min: "1",
  max: "",
  kinds: [],
  share: "allowed",
  priority: "normal",
  workdir: "",
  tenant: "",
  batch: "",
  batchMax: "",
  duration: "",
  env: "",
};

export function SubmitView({ route, me }) {
  const way = route.query.way === "file" ? "file" : "form";
  const [form, setForm] = useState(FRESH);
  const [text, setText] = useState(EXAMPLE);
  const [file, setFile] = useState({ body: null, error: null });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const store = useStore();
  const kinds = useMemo(
    () => [...new Set([...store.nodes.values()].map((node) => node.kind))].sort(),
    [store.nodesVersion],
  );
  const body = way === "form" ? (form.command.trim() ? bodyOf(form) : null) : file.body;
  useEffect(() => {
    if (way !== "file") return undefined;
    const timer = setTimeout(
      () =>
        post("/job-file", { text }).then(
          (parsed) => setFile({ body: parsed.job, error: null }),
          (problem) => setFile({ body: null, error: problem }),
        ),
      PAUSE_MS,
    );
    return () => clearTimeout(timer);
  }, [way, text]);
  if (me.role === "viewer")
    return html`<${Trouble} error=${{ message: "viewers cannot submit jobs", hint: "sign in with a token of role user to submit jobs" }} />`;
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await post("/jobs", body);
      await attempt(async () => made, `submitted as ${made.id}`);
      if (made.jobs.length) go("jobs", [], { q: made.id, state: "all" });
      else go("job", [made.id]);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const set = (key, value) => setForm((was) => ({ ...was, [key]: value }));
  const upload = async (event) => {
    const [picked] = event.target.files;
    if (picked) setText(await picked.text());
  };
  return html`<div class="columns"><${Panel} title="Submit a job" level=1 end=${html`<${Choice} label="How" value=${way} options=${[
    ["form", "Command"],
    ["file", "Job file"],
  ]} choose=${(to) => go("submit", [], to === "file" ? { way: to } : {})} />`}>
      <form class="form" onSubmit=${send}>
        ${
          way === "form"
            ? html`<${Form} form=${form} set=${set} kinds=${kinds} me=${me} />`
            : html`
          <${Field} label="A job file, YAML or JSON"><textarea rows="16" spellcheck="false" value=${text}
          onInput=${(event) => setText(event.target.value)}></textarea><//>
          <${Field} label="Or a file on this machine"><input type="file" accept=".yaml,.yml,.json" onChange=${upload} /><//>
          <${Trouble} error=${file.error} />`
        }
        <${Trouble} error=${inWordsOf(way, error)} />
        <div class="row"><button class="main" type="submit" disabled=${busy || !body}>${busy ? "Submitting …" : "Submit"}</button>
          <span class="dim small">The same with the command line: <code>weft submit job.yaml</code></span></div>
      </form><//>
    <aside><${Plan} body=${body} way=${way} /></aside></div>`;
}

function Form({ form, set, kinds, me }) {
  const input = (key, more = {}) =>
    html`<input value=${form[key]} onInput=${(event) => set(key, event.target.value)} ...${more} />`;
  return html`
    <${Field} label="Name">${input("name", { placeholder: "resnet18", maxlength: 128 })}<//>
    <${Field} label=${form.script ? "Script, run by bash" : "Command, not run by a shell"}>
    <textarea rows="3" spellcheck="false" required value=${form.command} onInput=${(event) => set("command", event.target.value)}></textarea><//>
    <label class="check small"><input type="checkbox" checked=${form.script}
    onChange=${(event) => set("script", event.target.checked)} /> it is a script, with pipes, variables or several lines</label>
    <div class="fields">
      <${Field} label=${`${theDevice()}s`}>${input("min", { type: "number", min: 0, required: true })}<//>
      <${Field} label="and up to (elastic)">${input("max", { type: "number", min: form.min, placeholder: form.min })}<//>
      <${Field} label=${`Share of a ${theDevice()}`}><select value=${form.share}
      onChange=${(event) => set("share", event.target.value)}><option value="allowed">may share one</option>
        <option value="never">a whole one</option><option value="0.5">half of one</option><option value="0.25">a quarter of one</option></select><//>
      <${Field} label="Priority"><select value=${form.priority}
      onChange=${(event) => set("priority", event.target.value)}>
        ${["normal", "guaranteed", "spot", "opportunistic"].map(
          (priority) => html`<option key=${priority}
        value=${priority}>${priority}</option>`,
        )}</select><//>
    </div>
    ${
      kinds.length > 1 &&
      html`<fieldset class="row kinds-choice">
    <legend class="small dim">Kinds of GPU; none chosen: any</legend>
    ${kinds.map(
      (kind) => html`<label class="check" key=${kind}>
    <input type="checkbox" checked=${form.kinds.includes(kind)}
    onChange=${(event) => set("kinds", event.target.checked ? [...form.kinds, kind] : form.kinds.filter((other) => other !== kind))} />${kind}</label>`,
    )}</fieldset>`
    }
    <div class="fields">
      <${Field} label="Initial batch (adaptive)">${input("batch", { type: "number", min: 1, placeholder: "fixed" })}<//>
      <${Field} label="Largest batch">${input("batchMax", { type: "number", min: form.batch || 1, disabled: !form.batch })}<//>
      <${Field} label="Expected minutes">${input("duration", { type: "number", min: 0, step: "any", placeholder: "not known" })}<//>
      <${Field} label="Working directory">${input("workdir", { placeholder: "." })}<//>
      ${me.everywhere && html`<${Field} label="Tenant">${input("tenant", { placeholder: "default" })}<//>`}
    </div>
    <${Field} label="Variables, one NAME=value per line"><textarea rows="2" spellcheck="false" value=${form.env}
    onInput=${(event) => set("env", event.target.value)}></textarea><//>`;
}

/** What would happen to the job now; asked when it has not changed for a moment. */
function Plan({ body, way }) {
  const [plan, setPlan] = useState({ data: null, error: null, busy: false });
  const asked = body ? JSON.stringify(body) : "";
  useEffect(() => {
    if (!asked) {
      setPlan({ data: null, error: null, busy: false });
      return undefined;
    }
    const abort = new AbortController();
    setPlan((was) => ({ ...was, busy: true }));
    const timer = setTimeout(
      () =>
        post("/plan", JSON.parse(asked), { signal: abort.signal }).then(
          (data) => setPlan({ data, error: null, busy: false }),
          (error) => {
            if (error.name !== "AbortError") setPlan({ data: null, error, busy: false });
          },
        ),
      PAUSE_MS,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [asked]);
  const { data, error, busy } = plan;
  return html`<${Panel} title="What would happen" end=${busy ? html`<span class="dim small" role="status">asking …</span>` : null}>
    ${!asked && html`<p class="dim">Fill in the form: the answer appears here before anything is sent.</p>`}
    ${asked && busy && !data && !error && html`<${Loading} />`}
    <${Trouble} error=${inWordsOf(way, error)} />
    ${
      data &&
      html`<div class=${data.starts_now ? "good" : "note"} role="status">
        <b>${data.starts_now ? "Would start now" : "Would wait"}</b><small>${data.reason}</small></div>
      ${
        data.allocation &&
        html`<dl class="facts"><dt>on</dt>
      <dd>${data.allocation.map(
        (part, i) => html`<div key=${i}>${part.node}: ${theDevice()} ${ranges(part.gpus)}
      ${part.kind === "cpu" ? "" : ` (${part.kind})`}</div>`,
      )}</dd></dl>`
      }
      ${!data.starts_now && data.start?.unknown ? html`<div>When it starts is unknown: ${data.start.unknown}.</div>` : null}
      ${
        !data.starts_now &&
        data.start &&
        !data.start.unknown &&
        html`<div>
      <span class="when">${startsIn(data.start.p50)}</span><div
      class="dim small">expected start · 8 in 10 simulations: ${range(data.start.p10, data.start.p90)}</div></div>`
      }
      ${
        data.displaces.length > 0 &&
        html`<div><h3>Would be stopped for it</h3>
      <ul class="why-list">${data.displaces.map(
        (job, i) => html`<li key=${i}>
      ${job.id ? html`<a href=${link("job", [job.id])}>${job.name}</a>` : job.name}
      <span class="dim">${count(job.gpus, theDevice())}</span></li>`,
      )}</ul></div>`
      }
      ${
        data.moves.length > 0 &&
        html`<div><h3>Would move</h3>
      <ul class="why-list">${data.moves.map((move, i) => html`<li key=${i}>${move.name}: ${move.text}</li>`)}</ul></div>`
      }`
    }<//>`;
}
