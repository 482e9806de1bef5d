// Numbers and times as people read them.
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** 4000 as "1 h 7 min". */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "";
  const sign = seconds < 0 ? "−" : "";
  const left = Math.abs(seconds);
  if (left < 1)
    return left < 5e-6
      ? "0 s"
      : `${sign}${left < 0.01 ? (left * 1000).toPrecision(2) : Math.round(left * 1000)} ms`;
  for (let i = 0; i < UNITS.length; i++) {
    const [name, size] = UNITS[i];
    if (left < size) continue;
    const whole = Math.floor(left / size);
    if (i + 1 === UNITS.length) return `${sign}${whole} ${name}`;
    const [small, part] = UNITS[i + 1];
    const rest = Math.floor((left - whole * size) / part);
    return `${sign}${whole} ${name}${rest && whole < 10 ? ` ${rest} ${small}` : ""}`;
  }
  return "";
}

/** "1 h to 6 h", or one of both where they read the same. */
export function range(low, high) {
  const least = low == null ? "never" : duration(low);
  const most = high == null ? "no end in sight" : duration(high);
  return least === most ? least : `${least} to ${most}`;
}

/** A start from now on: "at once", "in 5 min". */
export const startsIn = (seconds) => (seconds < 1 ? "at once" : `in ${duration(seconds)}`);

/** A number with three figures and thousands apart. */
export function number(value, digits = 3) {
  if (value == null || !Number.isFinite(value)) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toPrecision(digits)} G`;
  if (size >= 1e6) return `${(value / 1e6).toPrecision(digits)} M`;
  if (size >= 1e4) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
}

export const percent = (value) =>
  value == null ? "" : `${(100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0)} %`;
/** The unit of time on devices. */
export const hourUnit = () => (device === GPU ? "GPU-h" : "slot-h");
export const gpuHours = (seconds) => `${number(seconds / 3600)} ${hourUnit()}`;
/** What devices of these kinds are called: a machine without GPUs has CPU slots. */
export const deviceWord = (kinds) =>
  kinds.length && kinds.every((kind) => kind === "cpu") ? "CPU slot" : GPU;
const GPU = "GPU";
let device = GPU;
/** What the devices of this cluster are called. */
export const theDevice = () => device;
export const setDevices = (kinds) => {
  device = deviceWord(kinds);
  return device;
};

export const count = (n, word, many = word + "s") => `${number(n)} ${n === 1 ? word : many}`;

/** GPUs 0, 1, 2 and 5 as "0–2, 5". */
export function ranges(numbers) {
  const parts = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && n === last[1] + 1) last[1] = n;
    else parts.push([n, n]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

const dayOf = (at) => new Date(at * 1000).toDateString();

let now = () => Date.now() / 1000;
/** Whose today it is: a simulated cluster is ahead of the wall. */
export const setNow = (clock) => {
  now = clock;
};

function timeOfDay(at, seconds) {
  const date = new Date(at * 1000),
    pad = (n) => String(n).padStart(2, "0");
  return `${pad(date.getHours())}:${pad(date.getMinutes())}${seconds ? ":" + pad(date.getSeconds()) : ""}`;
}

/** A time of day; with the day where that is not today's. */
export function clock(at, { seconds = true } = {}) {
  if (at == null) return "";
  const time = timeOfDay(at, seconds);
  return dayOf(at) === dayOf(now()) ? time : `${DAY.format(at * 1000)} ${time}`;
}

/** Letters that join up from right to left. */
export const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;

/** A name that leaves the order of what stands beside it as it is, also where it is no element. */
export const apart = (name) => (RIGHT_TO_LEFT.test(name) ? `\u2068${name}\u2069` : name);

/** Labels of an axis of times, none twice: the day stands below the first of each day, and nowhere if all is today. */
export function timeMarks(all) {
  const seconds = all.length > 1 && all[1] - all[0] < 60;
  let day = dayOf(now());
  return all.map((at, i) => {
    if (i && Math.floor(at) === Math.floor(all[i - 1])) return "";
    const same = dayOf(at) === day;
    day = dayOf(at);
    return timeOfDay(at, seconds) + (same ? "" : `\n${DAY.format(at * 1000)}`);
  });
}

/** "2 × a100", or the kinds that will do. */
export function asks(job) {
  const { min, max, asked } = job.gpus;
  const count = min === max ? `${asked}` : `${min}–${max}`;
  return job.share < 1 && asked === 1 ? `${number(job.share)}` : count;
}

/** What to multiply hours by, and what they are then, so that the largest is written in few digits. */
export const unitFor = (hours) =>
  hours < 1 / 30 ? [3600, "seconds"] : hours < 2 ? [60, "minutes"] : [1, "hours"];
