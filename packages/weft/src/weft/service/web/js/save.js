// Files that the page makes of what it shows: text, tables, pictures of charts.
import { token } from "./colours.js";
import { number } from "./format.js";

/** Give the person a file. */
export function save(name, content, type = "text/plain") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const made = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(blob),
    download: name,
  });
  made.click();
  setTimeout(() => URL.revokeObjectURL(made.href), 10_000);
}

/** Rows as CSV. What a spreadsheet would compute is text there. */
export function csvOf(rows) {
  const field = (value) => {
    const text = String(value ?? "");
    const safe = /^[=+@\t]|^-[^\d.]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(field).join(",") + "\r\n").join("");
}

/** Round numbers from `low` to `high`; on a logarithmic scale powers of ten, or ends where there are none. */
export function ticksOf(low, high, log = false) {
  if (log) {
    const powers = [];
    for (let n = Math.ceil(Math.log10(low)); n <= Math.log10(high); n++) powers.push(10 ** n);
    return powers.length > 1 ? powers : [low, high];
  }
  const rough = (high - low || 1) / 6,
    size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * size).find((each) => each >= rough);
  const count = Math.floor(high / step) - Math.ceil(low / step) + 1;
  return Array.from({ length: count }, (_, i) =>
    Number(((Math.ceil(low / step) + i) * step).toPrecision(12)),
  );
}

const WIDE = 960,
  HIGH = 420,
  LEFT = 70,
  TOP = 40,
  LINE = 18; // of the legend
const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** A colour as every program reads it. */
function hexOf(colour) {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  return `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** Lines over common `data` as an SVG, black on white, with axes and a legend. */
export function svgOf(data, series, { title, xLabel, log }) {
  const [xs, ...columns] = data;
  const fits = (value) => value != null && (!log || value > 0);
  const all = columns.flat().filter(fits);
  const low = all.reduce((a, b) => Math.min(a, b), Infinity),
    high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  const scale = log ? Math.log : (value) => value;
  const place = (value, from, to, size) => (to > from ? ((value - from) / (to - from)) * size : 0);
  const x = (value) => LEFT + place(value, xs[0], xs.at(-1), WIDE - LEFT - 20);
  const y = (value) => TOP + HIGH - place(scale(value), scale(low), scale(high), HIGH);
  const text = (at, words, more = "") =>
    `<text x="${at[0].toFixed(1)}" y="${at[1].toFixed(1)}" ${more}>${escaped(words)}</text>`;
  const grid = ticksOf(low, high, log).map(
    (tick) =>
      `<path d="M${LEFT} ${y(tick).toFixed(1)}H${WIDE - 20}" stroke="#ddd"/>` +
      text([LEFT - 8, y(tick) + 4], number(tick), 'text-anchor="end"'),
  );
  const below = ticksOf(xs[0], xs.at(-1)).map((tick) =>
    text([x(tick), TOP + HIGH + 18], number(tick), 'text-anchor="middle"'),
  );
  const lines = columns.map((column, i) => {
    const points = column
      .map((value, at) => fits(value) && `${x(xs[at]).toFixed(1)},${y(value).toFixed(1)}`)
      .filter(Boolean);
    const dash = series[i].dash ? ` stroke-dasharray="${series[i].dash}"` : "";
    const look = `fill="none" stroke="${hexOf(series[i].colour)}" stroke-width="1.8"${dash}`;
    const under = TOP + HIGH + 60 + i * LINE;
    return (
      `<polyline ${look} points="${points.join(" ")}"/>` +
      `<path ${look} d="M${LEFT} ${under - 4}h24"/>${text([LEFT + 32, under], series[i].label)}`
    );
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDE}" height="${TOP + HIGH + 70 + series.length * LINE}"
 font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>
${text([LEFT, 22], title, 'font-size="15" font-weight="bold"')}${text([WIDE - 20, TOP + HIGH + 36], xLabel, 'text-anchor="end"')}
${[...grid, ...below, ...lines].join("\n")}</svg>\n`;
}

/** A chart's canvas with its title and legend as a PNG, in the colours of the page. */
export function pngOf(drawn, series, { title }) {
  const times = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = drawn.width;
  canvas.height = drawn.height + (50 + series.length * LINE) * times;
  const context = canvas.getContext("2d");
  context.fillStyle = token("panel");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(drawn, 0, 34 * times);
  context.scale(times, times);
  context.fillStyle = token("text");
  context.font = "600 15px sans-serif";
  context.fillText(title, 12, 22);
  context.font = "12px sans-serif";
  series.forEach((line, i) => {
    const under = 34 + drawn.height / times + (i + 1) * LINE - 4;
    context.strokeStyle = line.colour;
    context.lineWidth = 2;
    context.setLineDash(line.dash || []);
    context.beginPath();
    context.moveTo(12, under - 4);
    context.lineTo(36, under - 4);
    context.stroke();
    context.fillText(line.label, 44, under);
  });
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
