// Talking to the service: the public API, and nothing else.
const BASE = "/api/v1";
// A session's cookie counts only together with this header, which no page of another site can add.
const HEADERS = { "x-weft-page": "1" };

/** What the service refused, in its own words. */
export class Problem extends Error {
  constructor(status, refusal) {
    super(refusal.error || `the service answered ${status}`);
    this.status = status;
    this.hint = refusal.hint || "";
    this.field = refusal.field || "";
  }
}

let signedOut = () => {};

/** Call `then` whenever the service says that nobody is signed in. */
export function onSignedOut(then) {
  signedOut = then;
}

async function refuse(answer) {
  let refusal = {};
  try {
    refusal = await answer.json();
  } catch {
    refusal = {};
  }
  const problem = new Problem(answer.status, refusal);
  if (answer.status === 401) signedOut(problem);
  return problem;
}

async function send(method, path, { body, headers, signal } = {}) {
  let answer;
  try {
    answer = await fetch(BASE + path, {
      method,
      signal,
      credentials: "same-origin",
      headers: {
        ...HEADERS,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, {
      error: "the service does not answer",
      hint: "it may be restarting; the page retries by itself",
    });
  }
  if (!answer.ok) throw await refuse(answer);
  return answer;
}

export const get = async (path, options) => (await send("GET", path, options)).json();
export const post = async (path, body = {}, options = {}) =>
  (await send("POST", path, { ...options, body })).json();
export const put = async (path, body = {}) => (await send("PUT", path, { body })).json();
export const remove = async (path) => (await send("DELETE", path)).json();

/** A path from parts that people named. */
export const at = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

/** A query from fields; those that are empty are left out. */
export function query(fields) {
  const given = Object.entries(fields).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  return given.length ? "?" + new URLSearchParams(given) : "";
}

/** The pieces of a text that the service streams, until it ends or `signal` aborts it. */
export async function* streamText(path, { signal } = {}) {
  const answer = await send("GET", path, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** Lines of JSON that the service streams in answer to a question. */
export async function* streamLines(path, body, { signal } = {}) {
  const answer = await send("POST", path, { body, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (held + value).split("\n");
    held = lines.pop();
    for (const line of lines) if (line.trim()) yield JSON.parse(line);
  }
}

const SILENT_MS = 45_000; // the service says something every 15 s
const SLOWEST_MS = 10_000;

/**
 * Follow server-sent events forever, from where the connection broke.
 * `heard(kind, data)` gets each message, `state(word)` "connecting", "live" or "lost".
 * Returns what ends it.
 */
export function follow(path, heard, state) {
  let last = "",
    pause = 500,
    over = false,
    abort = new AbortController();
  const run = async () => {
    while (!over) {
      abort = new AbortController();
      let silence = setTimeout(() => abort.abort(), SILENT_MS);
      try {
        const answer = await send("GET", path, {
          signal: abort.signal,
          headers: last ? { "last-event-id": last } : {},
        });
        state("live");
        pause = 500;
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let parts = [];
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          clearTimeout(silence);
          silence = setTimeout(() => abort.abort(), SILENT_MS);
          parts.push(value);
          // A long message comes in many pieces: put together once its end is there.
          if (!value.includes("\n")) continue;
          const messages = parts.join("").split("\n\n");
          parts = [messages.pop()];
          for (const text of messages) {
            const message = readMessage(text);
            if (message.id) last = message.id;
            if (message.data) heard(message.event, JSON.parse(message.data));
          }
        }
      } catch (error) {
        if (error instanceof Problem && error.status === 401) {
          over = true;
          return;
        }
        if (error instanceof Problem && error.status === 429) pause = SLOWEST_MS;
      } finally {
        clearTimeout(silence);
      }
      if (over) return;
      state("lost");
      await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
      pause = Math.min(pause * 1.7, SLOWEST_MS);
      if (!over) state("connecting");
    }
  };
  state("connecting");
  run();
  return () => {
    over = true;
    abort.abort();
  };
}

function readMessage(text) {
  const message = { event: "message", data: "", id: "" };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) message[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  return message;
}
