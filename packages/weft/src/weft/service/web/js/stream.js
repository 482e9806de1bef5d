// The stream of the cluster: what every GPU did, now and at any hour of the log.
import { get, query } from "./api.js";
import { clock, count, duration, gpuHours, percent, theDevice } from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { go, setQuery } from "./route.js";
import { clusterNow, useStore } from "./store.js";
import { AXIS, barAt, draw, lay, rowsOf } from "./stream_canvas.js";
import { useTheme } from "./theme.js";
import { Choice, Panel, Trouble } from "./ui.js";
import { useWidth } from "./width.js";

const SPANS = [
  ["600", "10 min"],
  ["3600", "1 h"],
  ["21600", "6 h"],
  ["86400", "24 h"],
  ["604800", "7 d"],
];
const AGAIN_MS = 3000;
const TALLEST = 460;

/** Spans of the window, the news of it as they come. */
function useSpans(since, until, live) {
  const { lives } = useStore();
  const held = useRef(new Map());
  const [timeline, setTimeline] = useState({ spans: [], part: 0, begun: null });
  const [error, setError] = useState(null);
  const key = live ? `live ${Math.round(until - since)}` : `${since} ${until}`;
  useEffect(() => {
    const abort = new AbortController();
    const from = since;
    let timer = 0,
      after = 0;
    held.current = new Map();
    const ask = async () => {
      try {
        if (!document.hidden) {
          const window_ = live
            ? { since: Math.max(0, clusterNow() - (until - since)), until: "" }
            : { since: from, until };
          const reply = await get("/timeline" + query({ ...window_, after: after || "" }), {
            signal: abort.signal,
          });
          for (const span of reply.spans)
            held.current.set(
              `${span.job}|${span.attempt}|${span.start}|${span.on[0]?.node}:${span.on[0]?.gpus[0]}`,
              span,
            );
          if (live)
            for (const [name, span] of held.current)
              if (span.end !== null && span.end < window_.since) held.current.delete(name);
          if (reply.part_read > 0.999) after = reply.seq;
          if (reply.spans.length || !after)
            setTimeline({
              spans: [...held.current.values()],
              part: reply.part_read,
              begun: reply.begun,
              left: reply.left_out,
            });
          setError(null);
        }
      } catch (problem) {
        if (problem.name === "AbortError") return;
        setError(problem);
      }
      if (live || !after) timer = setTimeout(ask, AGAIN_MS);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, lives]);
  return { ...timeline, error };
}

export function Stream({ route }) {
  const store = useStore();
  const asked = SPANS.some(([span]) => span === route.query.span)
    ? route.query.span
    : store.cluster.speed > 30
      ? "3600"
      : "600";
  const width = Number(asked);
  const fixed = route.query.at ? Number(route.query.at) : null;
  const live = fixed === null;
  const until = live ? clusterNow() : fixed;
  const { spans, part, begun, error, left } = useSpans(until - width, until, live);
  // A young log fills the width; nothing was there before it.
  const since =
    live && begun !== null ? Math.max(until - width, Math.min(begun, until - 60)) : until - width;
  const shift = (by) =>
    setQuery({
      at: Math.round(until + by * width) >= clusterNow() ? "" : Math.round(until + by * width),
    });
  return html`<${Panel} title="Stream" end=${html`
      <div class="group" role="group" aria-label="Move through time">
        <button onClick=${() => shift(-1)} disabled=${begun !== null && since <= begun} aria-label="Earlier">◀</button>
        <button onClick=${() => shift(1)} disabled=${live} aria-label="Later">▶</button>
        <button onClick=${() => setQuery({ at: "" })} aria-pressed=${String(live)}>Now</button></div>
      <input type="datetime-local" aria-label="Show the time that ends here" value=${live ? "" : localTime(fixed)} onChange=${(
        event,
      ) => {
        const at = Date.parse(event.target.value) / 1000;
        setQuery({ at: Number.isFinite(at) && at < clusterNow() ? Math.round(at) : "" });
      }} />
      <${Choice} label="How long" value=${asked} options=${SPANS} choose=${(span) => setQuery({ span })} />`}>
    <${Trouble} error=${error} />
    ${part < 0.999 && html`<p class="dim" role="status">Reading the log: ${percent(part)}</p>`}
    <${StreamCanvas} nodes=${store.nodes} nodesVersion=${store.nodesVersion} spans=${spans} since=${since} until=${until} now=${clusterNow()} />
    <div class="legend"><span>one row per ${theDevice()}, one colour per job, empty where idle</span>
      <span>dark edge: goes on after a restart</span><span>red end: failed</span>
      ${left ? html`<span>${count(left, "short span")} left out</span>` : null}</div><//>`;
}

function localTime(at) {
  const date = new Date(at * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The canvas with its scrolling, its tip and its keys; also for simulated results. */
export function StreamCanvas({
  nodes,
  nodesVersion = 0,
  layout,
  spans,
  since,
  until,
  now,
  zero,
  tallest = TALLEST,
  open = true,
}) {
  const [box, width] = useWidth();
  const canvas = useRef(null);
  const [top, setTop] = useState(0);
  const [over, setOver] = useState(null);
  const themed = useTheme();
  const { rows, index } = useMemo(() => layout || rowsOf(nodes), [layout, nodesVersion]);
  const byRow = useMemo(() => lay(spans, index), [spans, index]);
  const rowHeight = rows.length <= 24 ? 16 : rows.length <= 64 ? 9 : rows.length <= 256 ? 5 : 3;
  const height = Math.min(AXIS + rows.length * rowHeight, tallest);
  const frame = { width, height, top, rowHeight, rows, byRow, since, until, now, zero };
  useEffect(() => {
    if (width && canvas.current) draw(canvas.current, { ...frame, chosen: over?.span?.job || "" });
  }, [width, height, top, byRow, since, until, over?.span?.job, themed]);
  const point = (event) => {
    const area = canvas.current.getBoundingClientRect();
    const bar = barAt(frame, event.clientX - area.left, event.clientY - area.top);
    setOver(bar && { ...bar, x: event.clientX - area.left, y: event.clientY - area.top });
  };
  const busy = useMemo(
    () =>
      [...byRow.values()].filter((bars) =>
        bars.some(({ span }) => span.end === null || span.end >= until - 1),
      ).length,
    [byRow],
  );
  const time = (at) => (zero === undefined ? clock(at) : duration(at - zero));
  const words = `Stream of ${rows.length} ${theDevice()}s from ${time(since)} to ${time(until)}; ${busy} in use at its end.`;
  return html`<div class="stream" ref=${box}>
    <div class="view" style=${{ height: `${height}px` }} tabindex="0" role="region" aria-label=${words}
      onScroll=${(event) => {
        setTop(event.target.scrollTop);
        setOver(null);
      }}>
      <canvas ref=${canvas} onMouseMove=${point} onMouseLeave=${() => setOver(null)}
        onClick=${() => open && over?.span?.job && go("job", [over.span.job])}></canvas>
      <div aria-hidden="true" style=${{ height: `${Math.max(0, rows.length * rowHeight - height + AXIS)}px` }}></div>
    </div>
    ${AXIS + rows.length * rowHeight > height && html`<p class="dim small hint">Scroll for more nodes.</p>`}
    ${
      over &&
      html`<div class="tip" style=${{ left: `${Math.max(0, Math.min(over.x + 12, width - 290))}px`, top: `${over.y + 14}px` }}>
      <div class="dim">${over.row.node} · ${theDevice()} ${over.row.gpu} · ${time(over.at)}</div>
      <${SpanFacts} span=${over.span} now=${now} /></div>`
    }</div>`;
}

function SpanFacts({ span, now }) {
  if (!span) return html`<div>idle</div>`;
  if (span.out) return html`<div>${span.out}</div>`;
  const facts = [
    `${duration((span.end ?? now) - span.start)} ${span.end === null ? "so far" : span.how}`,
    span.share < 1 && `${percent(span.share)} of the ${theDevice()}`,
    span.attempt > 1 && `attempt ${span.attempt}`,
  ].filter(Boolean);
  return html`<b>${span.name || "another tenant's job"}</b> ${span.tenant}<div>${facts.join(", ")}</div>
    ${span.lost_gpu_s ? html`<div>${gpuHours(span.lost_gpu_s)} of work lost</div>` : null}`;
}
