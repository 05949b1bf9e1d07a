// Numbers to pixels, ticks, and numbers as people read them.

function linear(from, to, low, high) {
  const span = to - from || 1;
  const scale = (value) => low + ((value - from) / span) * (high - low);
  scale.back = (pixel) => from + ((pixel - low) / (high - low || 1)) * span;
  return scale;
}

/** About `count` round numbers between two. */
function ticks(from, to, count) {
  const raw = (to - from) / Math.max(1, count);
  if (!(raw > 0) || !isFinite(raw)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
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
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!UNITS[kind]) return plain(value);
  const [size, name] = unitFor(kind, value);
  return `${Number((value / size).toPrecision(3))} ${name}`;
}

const plain = (value) => (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4))));
const share = (value) => (value === null || Number.isNaN(value) ? "–" : value.toFixed(3));
const count = (number, noun) => `${plain(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Axes of a plot: grid lines, tick texts, titles. `box` = {left, right, top, bottom} in pixels. */
function axes(box, x, y, options) {
  const parts = [];
  for (const tick of options.yTicks) {
    parts.push(sv("line", { class: "grid", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }));
    parts.push(sv("text", { x: box.left - 6, y: y(tick) + 4, "text-anchor": "end" }, (options.yText || plain)(tick)));
  }
  for (const tick of options.xTicks) {
    parts.push(sv("line", { class: "axis", x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 4 }));
    parts.push(sv("text", { x: x(tick), y: box.bottom + 17, "text-anchor": "middle" }, (options.xText || plain)(tick)));
  }
  parts.push(sv("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  parts.push(sv("text", { class: "strong", x: box.right, y: box.bottom + 34, "text-anchor": "end" }, options.xTitle));
  parts.push(sv("text", { class: "strong", x: 2, y: box.top - 10 }, options.yTitle));
  return sv("g", {}, parts);
}
