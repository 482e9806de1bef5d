// What a job printed, by rank and attempt, as it prints it; always as text.
import { at, get, query, streamText } from "../api.js";
import { count } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { save } from "../save.js";
import { ENDED, useStore } from "../store.js";
import { Field, Panel, Trouble } from "../ui.js";

const MOST = 400_000; // characters that are kept; the whole can be downloaded
const AGAIN_MS = 1500;
// Colours are kept, everything else that moves a terminal's cursor would only confuse.
const TERMINAL =
  /\u001b\[(?![0-9;]*m)[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001a\u001c-\u001f]/g;
const COLOUR = /\u001b\[([0-9;]*)m/;
const MOST_COLOURED = 2000; // pieces; a page with very many more is slow
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export function Logs({ job }) {
  const [rank, setRank] = useState(0);
  const [ranks, setRanks] = useState([]);
  const [attempt, setAttempt] = useState(0);
  const [text, setText] = useState("");
  const [find, setFind] = useState("");
  const [error, setError] = useState(null);
  const [stay, setStay] = useState(true);
  const box = useRef(null);
  const number_ = attempt || job.attempt;
  const ended = ENDED.has(job.state);
  const { lives } = useStore();
  useEffect(() => {
    setText("");
    setError(null);
    if (!number_) return undefined;
    const abort = new AbortController();
    let timer = 0,
      held = "",
      due = 0;
    const show = () => {
      due = 0;
      const more = held;
      held = "";
      setText((was) => (was + more).slice(-MOST));
    };
    const read = async () => {
      try {
        const { ranks: written } = await get(
          at("jobs", job.id, "logs", "ranks") + query({ attempt: number_ }),
          { signal: abort.signal },
        );
        setRanks(written);
        if (!written.includes(rank)) {
          if (!ended) timer = setTimeout(read, AGAIN_MS);
          return;
        }
        held = "";
        setText(""); // the stream begins at the beginning, also where one broke off
        for await (const piece of streamText(
          at("jobs", job.id, "logs") + query({ rank, attempt: number_, follow: true }),
          { signal: abort.signal },
        )) {
          held += piece.replace(/\r(?!\n)/g, "\n").replace(TERMINAL, "");
          if (!due) due = setTimeout(show, 150);
        }
      } catch (problem) {
        if (problem.name === "AbortError") return;
        if (problem.status) setError(problem);
        else timer = setTimeout(read, AGAIN_MS);
      }
    };
    read();
    return () => {
      abort.abort();
      clearTimeout(timer);
      clearTimeout(due);
    };
  }, [job.id, rank, number_, ended, lives]); // a service that is back begins at the beginning
  useEffect(() => {
    if (stay && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, stay]);
  const shown = useMemo(() => coloured(text), [text]);
  const attempts = Array.from({ length: job.attempt }, (_, i) => i + 1);
  const choices = ranks.includes(rank) ? ranks : [rank, ...ranks];
  const address = at("jobs", job.id, "logs") + query({ rank, attempt: number_ || "" });
  const download = async () => {
    let whole = "";
    for await (const piece of streamText(address)) whole += piece;
    save(`${job.id}-rank${rank}-attempt${number_}.log`, whole);
  };
  const hits = useMemo(() => (find ? hitsIn(text, find) : null), [text, find]);
  const option = (value) => html`<option key=${value} value=${value}>${value}</option>`;
  const end = html`<${Field} label="Rank"><select value=${rank} onChange=${(event) => setRank(Number(event.target.value))}>${choices.map(option)}</select><//>
    <${Field} label="Attempt"><select value=${number_} onChange=${(event) => setAttempt(Number(event.target.value))}>
      ${attempts.length ? attempts.map(option) : html`<option value="0">–</option>`}</select><//>`;
  const nothing = !number_
    ? "It has not started yet."
    : ended
      ? "It printed nothing."
      : "Nothing is printed yet.";
  return html`<${Panel} title="Log" end=${end}>
    <div class="row"><input type="search" aria-label="Find in the log" placeholder="Find in the log" value=${find}
      onInput=${(event) => setFind(event.target.value)} />
      <label class="check small"><input type="checkbox" checked=${stay} onChange=${(event) => setStay(event.target.checked)} /> follow</label>
      <span class="dim small" role="status">${hits ? count(hits.length, "line") : ""}${text.length >= MOST ? " of the end; Download has all" : ""}</span>
      <button class="quiet" disabled=${!text} onClick=${download}>Download</button></div>
    <${Trouble} error=${error} />
    <pre class="log" ref=${box} tabindex="0" dir="auto" aria-label="Log">
    ${hits ? html`<${Found} text=${text} hits=${hits} find=${find} />` : shown || nothing}</pre><//>`;
}

const LINES_AROUND = 5,
  MOST_HITS = 1000;

/** Numbers of the lines in which a text stands, in whatever colours. */
function hitsIn(text, find) {
  const word = find.toLowerCase();
  const lines = plain(text).split("\n");
  return [...lines.keys()].filter((i) => lines[i].toLowerCase().includes(word));
}

/** Lines in which something was found; the number of one opens those around it. */
function Found({ text, hits, find }) {
  const [open, setOpen] = useState(-1);
  const lines = useMemo(() => text.split("\n"), [text]);
  const block = (hit) => {
    const [from, to] = open === hit ? [hit - LINES_AROUND, hit + LINES_AROUND + 1] : [hit, hit + 1];
    return html`<span key=${hit} class=${open === hit ? "open" : null}><button class="line" aria-expanded=${String(open === hit)}
      aria-label=${`Lines around line ${hit + 1}`} onClick=${() => setOpen(open === hit ? -1 : hit)}>${hit + 1}</button>
      ${lines.slice(Math.max(0, from), to).map((line, i) => html`<${Marked} key=${i} line=${line} find=${find} />`)}</span>`;
  };
  return hits.slice(-MOST_HITS).map(block);
}

const plain = (text) => text.replaceAll(new RegExp(COLOUR, "g"), "");

/** Pieces of a text with the class of each: colours that programs give to a terminal, and bold. */
export function piecesOf(text) {
  const parts = text.split(COLOUR);
  if (parts.length === 1 || parts.length > 2 * MOST_COLOURED) return [[plain(text), ""]];
  const pieces = [[parts[0], ""]];
  let colour = "",
    bold = "";
  for (let i = 1; i < parts.length; i += 2) {
    const codes = parts[i].split(";").map(Number);
    const many = codes.findIndex((code) => code === 38 || code === 48); // one of 256 and more
    if (many >= 0) codes.length = many;
    for (const code of codes) {
      if (code === 0) colour = bold = "";
      if (code === 1) bold = "bold";
      if (code === 22) bold = "";
      if (code === 39) colour = "";
      const number = code >= 90 ? code - 90 : code - 30;
      if (COLOURS[number]) colour = `t-${COLOURS[number]}`;
    }
    pieces.push([parts[i + 1], [colour, bold].filter(Boolean).join(" ")]);
  }
  return pieces.filter(([piece]) => piece);
}

const coloured = (text) =>
  text &&
  piecesOf(text).map(([piece, name]) => (name ? html`<span class=${name}>${piece}</span>` : piece));

/** A line in its colours, with what was looked for marked. */
function Marked({ line, find }) {
  const word = find.toLowerCase();
  const marked = (piece) => {
    const parts = [],
      low = piece.toLowerCase();
    let from = 0;
    for (let to; (to = low.indexOf(word, from)) >= 0; from = to + word.length) {
      parts.push(piece.slice(from, to), html`<mark>${piece.slice(to, to + word.length)}</mark>`);
    }
    return [...parts, piece.slice(from)];
  };
  return html`<span>${piecesOf(line).map(([piece, name]) => html`<span class=${name || null}>${marked(piece)}</span>`)}${"\n"}</span>`;
}
