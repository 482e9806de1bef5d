"use strict";

let figures = {};
const drawn = new Set();

// Python's base 85 with a comma for "<", then deflated: a third of the size of the plain text.
const DIGITS =
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

async function unpack(packed) {
  const [count, text] = packed.split(".");
  const value = new Map([...DIGITS].map((digit, i) => [digit.charCodeAt(0), i]));
  const bytes = new DataView(new ArrayBuffer((text.length / 5) * 4));
  for (let i = 0; i < text.length; i += 5) {
    let number = 0;
    for (let j = 0; j < 5; j++) number = number * 85 + value.get(text.charCodeAt(i + j));
    bytes.setUint32((i / 5) * 4, number);
  }
  const raw = new Blob([bytes.buffer.slice(0, Number(count))]);
  return new Response(raw.stream().pipeThrough(new DecompressionStream("deflate"))).text();
}
const config = {
  displaylogo: false,
  responsive: true,
  modeBarButtons: [["toImage", "resetScale2d"]],
};

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The figures say what is shown; light or dark is the reader's choice and set here.
function themed(layout) {
  const [page, ink, quiet, line] = ["--page", "--ink", "--quiet", "--line"].map(token);
  const whole = {
    margin: { l: innerWidth < 600 ? 44 : 76, r: 12, t: 32, b: 44 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    ...structuredClone(layout),
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: page, bordercolor: line, font: { color: ink }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: ink },
  };
  for (const [key, axis] of Object.entries(whole)) {
    if (!/^[xy]axis/.test(key)) continue;
    Object.assign(axis, { gridcolor: line, zerolinecolor: line, linecolor: line });
    Object.assign(axis, { tickfont: { color: quiet }, automargin: true });
    if (axis.title) Object.assign(axis.title, { font: { size: 12, color: quiet }, standoff: 10 });
  }
  for (const shape of whole.shapes ?? []) shape.line.color = shape.layer ? line : quiet;
  return whole;
}

// Dots stand side by side; where a label is wider than the room of its dot, the hover alone tells it.
const LABEL_PX = 64;
const MARGINS_PX = 100;

const isLabelled = (trace) => trace.mode === "markers+text";

function roomy({ data }, width) {
  const dots = Math.max(...data.map((trace) => trace.x.length)) * data.length;
  return (width - MARGINS_PX) / dots >= LABEL_PX;
}

function traces(id) {
  const { data } = figures[id];
  if (!data.some(isLabelled) || roomy(figures[id], document.getElementById(id).clientWidth))
    return data;
  return data.map((trace) => ({ ...trace, mode: "markers" }));
}

function draw(id) {
  drawn.add(id);
  Plotly.react(id, traces(id), themed(figures[id].layout), config);
}

function fitLabels() {
  for (const id of drawn) if (figures[id].data.some(isLabelled)) draw(id);
}

function show(button) {
  for (const other of button.parentElement.children) {
    const chosen = other === button;
    other.setAttribute("aria-pressed", String(chosen));
    document.getElementById(other.dataset.plot).hidden = !chosen;
  }
  draw(button.dataset.plot);
}

async function begin() {
  const library = document.createElement("script");
  library.textContent = await unpack(document.getElementById("plotly").textContent);
  document.head.append(library);
  const plain = document.getElementById("figures");
  const packed = document.getElementById("packed-figures");
  figures = JSON.parse(plain ? plain.textContent : await unpack(packed.textContent));
  for (const button of document.querySelectorAll(".tabs button")) {
    button.addEventListener("click", () => show(button));
  }
  for (const id of Object.keys(figures)) {
    if (!document.getElementById(id).hidden) draw(id);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
  window.addEventListener("resize", fitLabels);
}

begin();
