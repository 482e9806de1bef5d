// A job has one colour everywhere, on every page: it follows from its id.
const HUES = 24;

function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  value ^= value >>> 15;
  return Math.imul(value, 0x2c1b3c6d) >>> 0;
}

const known = new Map();

/** The colour of a job or a tenant, light enough for dark text and apart from idle on both grounds. */
export function colourOf(name) {
  let colour = known.get(name);
  if (!colour) {
    const value = hash(name);
    const hue = (value % HUES) * (360 / HUES),
      light = [66, 74, 58][(value >>> 8) % 3];
    colour = `oklch(${light}% 0.115 ${hue})`;
    if (known.size > 50_000) known.clear();
    known.set(name, colour);
  }
  return colour;
}

/** What a named token is now, light or dark: for canvases, which know no style sheet. */
export function token(name) {
  let value = tokens.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    tokens.set(name, value);
  }
  return value;
}
const tokens = new Map();

/** Slanted lines, for what is not there. */
export function hatched(context) {
  const tile = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const pen = tile.getContext("2d");
  pen.fillStyle = token("panel");
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = token("line-strong");
  pen.lineWidth = 2;
  for (const at of [-8, 0, 8]) {
    pen.moveTo(at, 8);
    pen.lineTo(at + 8, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

const PLAIN = "plain",
  KEY = "weft-theme";

/** The theme: what the person chose, else what the system says. A choice is no secret. */
export function theme() {
  const chosen = localStorage.getItem(KEY) || PLAIN;
  if (chosen !== PLAIN) return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

const watching = new Set();
let changes = 0;

/** How often the theme has changed. */
export const themeNumber = () => changes;

export function onTheme(then) {
  watching.add(then);
  return () => watching.delete(then);
}

export function applyTheme(chosen) {
  if (chosen) localStorage.setItem(KEY, chosen);
  document.documentElement.dataset.theme = theme();
  tokens.clear();
  changes += 1;
  for (const then of [...watching]) then();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme());
