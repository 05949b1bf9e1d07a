// The ledger: bytes by direction and kind, mean over seeds.

const BAR = 30; // height of a method's row in pixels

const ledgerFigure = {
  id: "ledger",
  title: "What crossed the network",
  link: "Bytes",
  half: true,
  needs: ["methods.runs.ledger"],
  controls: [
    {
      key: "cast",
      label: "count",
      kind: "radio",
      options: () => [
        ["unicast", "every send"],
        ["multicast", "one send reaches everybody"],
      ],
    },
  ],
  hint: () => "Bytes of a whole run by kind and direction, mean over seeds.",
  draw: (width) => drawLedger(App.data.methods.map(sentBytes), width),
  csv() {
    const rows = App.data.methods.map(sentBytes).flatMap(({ label, parts }) => {
      return parts.map((part) => [label, part.kind, part.bytes]);
    });
    return [["method", "kind and direction", `bytes (${App.state.cast})`], ...rows];
  },
};

/** {label, parts: [{kind, bytes}], total} of a method, mean over its runs. */
function sentBytes({ label, runs }) {
  const sums = new Map();
  for (const [direction, kind, unicast, multicast] of runs.flatMap((run) => run.ledger)) {
    const name = `${kind} ${direction}`;
    const bytes = App.state.cast === "multicast" ? multicast : unicast;
    sums.set(name, (sums.get(name) || 0) + bytes / runs.length);
  }
  const parts = [...sums].map(([kind, bytes]) => ({ kind, bytes }));
  return { label, parts, total: sumOf(parts.map((part) => part.bytes)) };
}

function drawLedger(rows, width) {
  const kinds = [...new Set(rows.flatMap((row) => row.parts.map((part) => part.kind)))];
  const most = Math.max(...rows.map((row) => row.total), 1);
  const [size, unit] = unitFor("bytes", most);
  const left = Math.min(150, width * 0.3);
  const box = { left, right: width - 14, top: 8, bottom: 8 + rows.length * BAR };
  const x = linear(0, most, box.left, box.right);
  const bars = rows.map((row, i) => rowBars(row, kinds, x, box.top + i * BAR));
  const named = kinds.map((text, i) => ({ text, stroke: colour(i), thick: 12 }));
  const [keys, bottom] = drawnKeys(named, width, box.bottom + 58);
  const axis = axes(box, x, () => 0, {
    xTicks: ticks(0, most / size, width / 130).map((tick) => tick * size),
    yTicks: [],
    xText: (tick) => plain(tick / size),
    xTitle: unit,
    yTitle: "",
  });
  const drawn = rows.map((row, i) => [rowLabel(row, i, box), bars[i].map(drawnBar)]);
  return {
    svg: canvas(width, bottom + 12, axis, drawn, keys),
    hover: (px, py) => ledgerHover(bars.flat(), box, px, py),
    step: [12, BAR],
    start: [box.left + 2, box.top + BAR / 2],
  };
}

function rowLabel({ label }, i, box) {
  const letters = Math.max(4, Math.floor(box.left / 7) - 1);
  const y = box.top + i * BAR + 19;
  const looks = { class: "strong", x: box.left - 8, y, "text-anchor": "end" };
  return sv("text", looks, shortened(label, letters));
}

/** The bars of one method, one behind the other: {row, part, x, y, width, fill}. */
function rowBars(row, kinds, x, top) {
  let from = 0;
  return kinds.flatMap((kind, number) => {
    const part = row.parts.find((other) => other.kind === kind);
    if (!part) return [];
    const left = x(from);
    const width = Math.max(0.75, x(from + part.bytes) - left);
    from += part.bytes;
    return [{ row, part, x: left, y: top + 4, width, fill: colour(number) }];
  });
}

function drawnBar({ x, y, width, fill }) {
  return sv("rect", { class: "bar", x, y, width, height: BAR - 8, style: `fill:${fill}` });
}

function ledgerHover(bars, box, px, py) {
  const inRow = bars.filter((bar) => py >= bar.y - 4 && py <= bar.y + BAR - 4);
  const under = inRow.find((bar) => px >= bar.x - 1 && px <= bar.x + bar.width + 1);
  const bar = under || (px >= box.left && inRow.at(-1)); // beside a row: its last bar
  if (!bar) return null;
  const { row, part, x, y } = bar;
  const size = { width: Math.max(2, bar.width), height: BAR - 8 };
  return {
    lines: [
      row.label,
      `${part.kind}: ${amount("bytes", part.bytes)}`,
      `all: ${amount("bytes", row.total)}`,
    ],
    mark: [sv("rect", { class: "frame", x, y, ...size })],
  };
}
