// The ledger: bytes by direction and kind, mean over seeds.

function ledgerFigure() {
  const all = () => App.data.methods.map((method, number) => {
    const sums = new Map();
    for (const run of method.runs)
      for (const [direction, kind, bytes, multicast] of run.ledger) {
        const key = `${kind} ${direction}`, cell = sums.get(key) || [0, 0];
        sums.set(key, [cell[0] + bytes / method.runs.length, cell[1] + multicast / method.runs.length]);
      }
    return { method, number, parts: [...sums].map(([key, [bytes, multicast]]) => ({ key, bytes: App.state.cast === "multicast" ? multicast : bytes })) };
  });
  return figure({
    id: "ledger",
    title: "What crossed the network",
    controls: [{ key: "cast", label: "count", kind: "radio", options: () => [["unicast", "every send"], ["multicast", "one send reaches everybody"]] }],
    hint: () => "Bytes of a whole run by kind and direction, mean over seeds.",
    draw: (width) => {
      const rows = all(), kinds = [...new Set(rows.flatMap((row) => row.parts.map((p) => p.key)))];
      const total = (row) => row.parts.reduce((sum, p) => sum + p.bytes, 0);
      const most = Math.max(...rows.map(total), 1), [size, unit] = unitFor("bytes", most);
      const names = Math.min(150, width * 0.3), tall = 30;
      const box = { left: names, right: width - 14, top: 8, bottom: 8 + rows.length * tall };
      const x = linear(0, most, box.left, box.right);
      const parts = [], spots = [];
      rows.forEach((row, i) => {
        const y = box.top + i * tall;
        const short = Math.max(4, Math.floor(names / 7) - 1), label = row.method.label;
        parts.push(sv("text", { class: "strong", x: box.left - 8, y: y + 19, "text-anchor": "end" }, label.length > short ? `${label.slice(0, short - 1)}…` : label));
        let from = 0;
        for (const kind of kinds) {
          const part = row.parts.find((p) => p.key === kind);
          if (!part) continue;
          const wide = Math.max(0.75, x(from + part.bytes) - x(from));
          parts.push(sv("rect", { class: "bar", x: x(from), y: y + 4, width: wide, height: tall - 8, style: `fill:${colour(kinds.indexOf(kind))}` }));
          spots.push([x(from), y + 4, wide, row, part, total(row)]);
          from += part.bytes;
        }
      });
      let kx = 4, ky = box.bottom + 58;
      kinds.forEach((kind, i) => {
        const wide = 26 + kind.length * 7.2;
        if (kx + wide > width && kx > 4) { kx = 4; ky += 20; }
        parts.push(sv("rect", { x: kx, y: ky - 10, width: 12, height: 12, rx: 2, style: `fill:${colour(i)}` }), sv("text", { x: kx + 17, y: ky }, kind));
        kx += wide;
      });
      const axis = axes(box, x, () => 0, { xTicks: ticks(0, most / size, width / 130).map((t) => t * size), yTicks: [], xText: (t) => plain(t / size), xTitle: unit, yTitle: "" });
      const hover = (px, py) => {
        const row = spots.filter((s) => py >= s[1] - 4 && py <= s[1] + tall - 4);
        const spot = row.find((s) => px >= s[0] - 1 && px <= s[0] + s[2] + 1) || (px >= box.left && row.at(-1));
        if (!spot) return null;
        const [sx, sy, wide, own, part, sum] = spot;
        return { lines: [own.method.label, `${part.key}: ${amount("bytes", part.bytes)}`, `all: ${amount("bytes", sum)}`], mark: [sv("rect", { class: "frame", x: sx, y: sy, width: Math.max(2, wide), height: tall - 8 })] };
      };
      return { svg: canvas(width, ky + 12, axis, parts), hover, step: [12, tall], start: [box.left + 2, box.top + tall / 2] };
    },
    csv: () => [["method", "kind and direction", `bytes (${App.state.cast})`], ...all().flatMap(({ method, parts }) => parts.map((p) => [method.label, p.key, p.bytes]))],
  });
}
