// Numbers to pixels, ticks and axes, and numbers as people read them.

const within = (value, low, high) => Math.max(low, Math.min(high, value));
const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

/** The item with the smallest distance; the first of equals, undefined if there is none. */
function nearestOf(items, distance) {
  let best;
  let least = Infinity;
  for (const item of items) {
    const now = distance(item);
    if (now < least) [best, least] = [item, now];
  }
  return best;
}

function linear(from, to, low, high) {
  const span = to - from || 1;
  const scale = (value) => low + ((value - from) / span) * (high - low);
  scale.back = (pixel) => from + ((pixel - low) / (high - low || 1)) * span;
  scale.ticks = (number, size) => ticks(from / size, to / size, number).map((t) => t * size);
  return scale;
}

/** Equal steps multiply; both ends are above 0. */
function logarithmic(from, to, low, high) {
  const inner = linear(Math.log(from), Math.log(to), low, high);
  const scale = (value) => inner(Math.log(Math.max(value, from)));
  scale.back = (pixel) => Math.exp(inner.back(pixel));
  scale.ticks = (number, size) => {
    const places = [];
    for (let power = Math.floor(Math.log10(from / size)); 10 ** power * size <= to; power++) {
      places.push(...[1, 2, 5].map((factor) => Number((factor * 10 ** power).toPrecision(3))));
    }
    return places.map((place) => place * size).filter((place) => place >= from && place <= to);
  };
  return scale;
}

/** About `number` round numbers between two. */
function ticks(from, to, number) {
  const raw = (to - from) / Math.max(1, number);
  if (!(raw > 0) || !isFinite(raw)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const places = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) {
    places.push(Number((i * step).toPrecision(12)));
  }
  return places;
}

const UNITS = {
  bytes: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  time: [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"]],
  energy: [[3.6e6, "kWh"], [3.6e3, "Wh"], [3.6, "mWh"], [3.6e-3, "µWh"]],
};

/** The unit that fits the largest value: [size, name]. */
function unitFor(kind, largest) {
  if (!UNITS[kind]) return [1, ""];
  return UNITS[kind].find(([size]) => Math.abs(largest) >= size) || UNITS[kind].at(-1);
}

function amount(kind, value) {
  if (!isGiven(value) || Number.isNaN(value)) return "–";
  if (!UNITS[kind]) return plain(value);
  const [size, name] = unitFor(kind, value);
  return `${Number((value / size).toPrecision(3))} ${name}`;
}

function plain(value) {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

const share = (value) => (value === null || Number.isNaN(value) ? "–" : value.toFixed(3));
const count = (number, noun) => `${plain(number)} ${noun}${number === 1 ? "" : "s"}`;
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Axes of a plot: grid lines, tick texts, titles. `box` = {left, right, top, bottom} in pixels. */
function axes(box, x, y, { xTicks, yTicks, xText = plain, yText = plain, xTitle, yTitle }) {
  const { left, right, top, bottom } = box;
  const parts = [];
  for (const tick of yTicks) {
    const at = y(tick);
    parts.push(sv("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
    parts.push(sv("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, yText(tick)));
  }
  for (const tick of xTicks) {
    const at = x(tick);
    parts.push(sv("line", { class: "axis", x1: at, x2: at, y1: bottom, y2: bottom + 4 }));
    parts.push(sv("text", { x: at, y: bottom + 17, "text-anchor": "middle" }, xText(tick)));
  }
  const end = { class: "strong", x: right, y: bottom + 34, "text-anchor": "end" };
  parts.push(sv("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  parts.push(sv("text", end, xTitle));
  parts.push(sv("text", { class: "strong", x: 2, y: top - 10 }, yTitle));
  return sv("g", {}, parts);
}
