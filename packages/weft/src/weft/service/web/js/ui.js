// Small parts that every view is made of.
import { Problem } from "./api.js";
import { RIGHT_TO_LEFT } from "./format.js";
import { html, useEffect, useRef, useState } from "./lib.js";

const LOOKS = {
  running: "running",
  pending: "waiting",
  preempted: "waiting",
  suspended: "waiting",
  starting: "moving",
  checkpointing: "moving",
  failed: "failed",
  succeeded: "ended",
  cancelled: "ended",
};
const MARKS = {
  running: "▶",
  pending: "…",
  preempted: "↩",
  suspended: "‖",
  starting: "↑",
  checkpointing: "↓",
  failed: "✕",
  succeeded: "✓",
  cancelled: "–",
};

/** A state in a word; the mark tells it without colour. */
export const State = ({ state }) =>
  html`<span class="badge ${LOOKS[state] || ""}"><span aria-hidden="true">${MARKS[state]}</span>${state}</span>`;

/** What is between backticks as code. */
export const ticks = (text) =>
  String(text ?? "")
    .split("`")
    .map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));

const TAIL = 8; // of a name: what tells it from its neighbours is often at the end

/** A name that is cut in its middle where there is too little room; where it is joined up, at its end. */
export function Name({ text }) {
  const signs = [...text];
  if (signs.length <= 2 * TAIL || RIGHT_TO_LEFT.test(text)) return html`<bdi>${text}</bdi>`;
  const [head, tail] = [signs.slice(0, -TAIL), signs.slice(-TAIL)].map((part) => part.join(""));
  return html`<span class="cut"><span>${head}</span><span>${tail}</span></span>`;
}

const RUN = new RegExp(`(${RIGHT_TO_LEFT.source}+(?:[\\s\\d.,_-]+${RIGHT_TO_LEFT.source}+)*)`);

/** A sentence in which names that run from right to left stay where they are. */
export const Words = ({ text }) =>
  RIGHT_TO_LEFT.test(text)
    ? text.split(RUN).map((part, i) => (i % 2 ? html`<bdi>${part}</bdi>` : part))
    : text;

export const Bar = ({ part, label }) => html`<div class="bar" role="img" aria-label=${label}>
  <i style=${{ width: `${Math.max(0, Math.min(1, part || 0)) * 100}%` }}></i></div>`;

export const Panel = ({
  title,
  end,
  flush,
  children,
  level = 2,
  id,
}) => html`<section class="panel" aria-label=${title} id=${id}>
  ${title || end ? html`<header>${level === 2 ? html`<h2>${title}</h2>` : html`<h1>${title}</h1>`}<div class="end">${end}</div></header>` : null}
  <div class="body ${flush ? "flush" : ""}">${children}</div></section>`;

/** Names and what they come to. */
export const FactList = ({ facts }) =>
  html`<dl class="facts">${facts.map(([key, value]) => html`<dt key=${key}>${key}</dt><dd>${value}</dd>`)}</dl>`;

/** Shows what is left out of a list, and hides it again. */
export const More = ({ more, all, show }) =>
  more > 0 &&
  html`<button class="quiet" aria-expanded=${String(all)} onClick=${() => show(!all)}>
    ${all ? "Show fewer" : `Show ${more} more`}</button>`;

export const Empty = ({ title, children }) =>
  html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;
export const Loading = ({ what = "Loading" }) =>
  html`<p class="loading" role="status">${what} …</p>`;

/** What went wrong, with what mends it. */
export function Trouble({ error, again }) {
  if (!error) return null;
  return html`<div class="problem" role="alert">${error.message}${error.field ? ` (${error.field})` : ""}
    ${error.hint ? html`<small>${error.hint}</small>` : null}
    ${again ? html`<div><button onClick=${again}>Try again</button></div>` : null}</div>`;
}

export const Field = ({ label, children }) =>
  html`<label class="field">${label}${children}</label>`;

/** Some choices of which one holds. */
export const Choice = ({
  label,
  value,
  options,
  choose,
}) => html`<div class="group" role="group" aria-label=${label}>
  ${options.map(
    ([key, text]) => html`<button type="button" key=${key} aria-pressed=${String(key === value)}
  onClick=${() => choose(key)}>${text}</button>`,
  )}</div>`;

/** What a question to the service came to: `{data, error, loading, again}`; asked again when `key` changes. */
export function useAsk(ask, key, { every = 0 } = {}) {
  const [reply, setReply] = useState({ loading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0,
      over = false;
    const run = async () => {
      try {
        const data = await ask(abort.signal);
        if (!over) setReply({ data, loading: false, key });
      } catch (error) {
        if (!over && error.name !== "AbortError")
          setReply((was) => ({ ...was, error, loading: false }));
      }
      if (every && !over) timer = setTimeout(run, every);
    };
    setReply((was) => ({ data: was.key === key ? was.data : undefined, loading: true, key }));
    run();
    return () => {
      over = true;
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, round]);
  return { ...reply, again: () => setRound((n) => n + 1) };
}

// ---- questions and news

let setAsked = () => {},
  setToasts = () => {};

/**
 * Ask the person; `true` if it is to be done. `detail` is said below the question. With names in
 * `values` each is asked for, and the answer is what was typed, by name: secrets, unless they are `shown`.
 */
export function confirm(
  question,
  { detail = "", action = "Yes", danger = false, values = [], shown = false } = {},
) {
  return new Promise((answer) =>
    setAsked({ question, detail, action, danger, values, shown, answer }),
  );
}

/** Say something for a while; with `undo` beside a button that takes it back. */
export function toast(text, bad = false, undo = null) {
  const notice = { text, bad, id: Math.random() };
  const end = () => setToasts((all) => all.filter((other) => other.id !== notice.id));
  if (undo)
    notice.undo = () => {
      end();
      undo();
    };
  setToasts((all) => [...all.slice(-3), notice]);
  setTimeout(end, bad || undo ? UNDO_MS : 5000);
}
export const UNDO_MS = 9000;

/** Do something that the person asked for and say how it went; false if it failed. */
export async function attempt(work, done) {
  try {
    const answer = await work();
    toast(typeof done === "function" ? done(answer) : done || answer?.done || "done");
    return answer ?? true;
  } catch (error) {
    toast(
      error instanceof Problem
        ? `${error.message}${error.hint ? " – " + error.hint : ""}`
        : String(error),
      true,
    );
    return false;
  }
}

/** Where questions and news are shown; once, at the end of the page. */
export function Notices() {
  const [asked, ask] = useState(null);
  const [toasts, put] = useState([]);
  const box = useRef(null);
  setAsked = ask;
  setToasts = put;
  useEffect(() => {
    if (asked && box.current && !box.current.open) box.current.showModal();
  }, [asked]);
  const answer = (value) => {
    asked.answer(value);
    ask(null);
  };
  return html`
    ${
      asked &&
      html`<dialog ref=${box} aria-labelledby="question" onCancel=${() => answer(false)}>
      <form method="dialog" onSubmit=${(event) => {
        event.preventDefault();
        answer(asked.values.length ? Object.fromEntries(new FormData(event.target)) : true);
      }}>
        <h2 id="question">${asked.question}</h2>
        ${asked.detail && html`<p class="dim">${asked.detail}</p>`}
        ${asked.values.map(
          (name) => html`<${Field} key=${name} label=${name}>
            <input type=${asked.shown ? "text" : "password"} name=${name} autocomplete="off" /><//>`,
        )}
        <div class="actions"><button type="button" onClick=${() => answer(false)}>Go back</button>
        <button class=${asked.danger ? "danger" : "main"} type="submit" autofocus>${asked.action}</button></div>
      </form></dialog>`
    }
    <div class="toasts" role="status" aria-live="polite">${toasts.map(
      (notice) => html`<div key=${notice.id}
    class="toast ${notice.bad ? "bad" : ""}">${notice.text}${notice.undo && html` <button onClick=${notice.undo}>Undo</button>`}</div>`,
    )}</div>`;
}
