// Learning curves: mean over seeds with the 95 % interval of the mean, against rounds, bytes, simulated time or energy.

const X_TITLES = { round: "round", bytes: "bytes sent, all directions", time: "simulated time", energy: "energy of the clients" };
const Y_TITLES = { accuracy: "accuracy of the global model", client_accuracy: "accuracy of the clients' own models", loss: "test loss" };

/** Points of one method: at every evaluation all its runs have, the means of x and y over seeds and half an interval. */
function curve(method, xKey, yKey) {
  const runs = method.runs.filter((run) => run.series[yKey] && run.series[xKey]);
  const byRound = new Map();
  for (const run of runs) {
    run.series.round.forEach((round, i) => {
      const x = run.series[xKey][i], y = run.series[yKey][i];
      if (x === null || y === null) return;
      if (!byRound.has(round)) byRound.set(round, []);
      byRound.get(round).push([x, y]);
    });
  }
  // Where a seed is missing (a run still going) the mean would jump: only the rounds all runs have are drawn.
  const most = Math.max(0, ...[...byRound.values()].map((pairs) => pairs.length));
  return [...byRound].filter(([, pairs]) => pairs.length === most).sort((a, b) => a[0] - b[0]).map(([round, pairs]) => {
    const n = pairs.length;
    const mean = (k) => pairs.reduce((sum, pair) => sum + pair[k], 0) / n;
    const y = mean(1);
    const spread = n > 1 && pairs.some((pair) => pair[1] !== pairs[0][1]) ? Math.sqrt(pairs.reduce((sum, pair) => sum + (pair[1] - y) ** 2, 0) / (n - 1)) : 0;
    return { round, x: mean(0), y, half: n > 1 ? (App.data.t95[n] * spread) / Math.sqrt(n) : 0, n };
  });
}

function curvesFigure() {
  const has = (key) => App.data.methods.some((m) => m.runs.some((r) => r.series[key]));
  const all = () => App.data.methods.map((method, number) => ({ method, number, points: App.hidden.has(method.label) ? [] : curve(method, App.state.x, App.state.y) }));
  return figure({
    id: "curves",
    title: "Learning curves",
    legend: true,
    hint: () => "Line: mean over seeds. Band: 95 % interval of the mean.",
    controls: [
      { key: "x", label: "against", kind: "radio", options: () => [["round", "rounds"], ["bytes", "bytes"], ["time", "time"], ["energy", "energy"]].map(([k, text]) => [k, text, !has(k)]) },
      { key: "y", label: "show", kind: "select", options: () => Object.entries(Y_TITLES).filter(([key]) => has(key)) },
    ],
    draw: (width) => drawCurves(all(), width),
    csv: () => [["method", "round", App.state.x, App.state.y, "half interval", "seeds"], ...all().flatMap(({ method, points }) => points.map((p) => [method.label, p.round, p.x, p.y, p.half, p.n]))],
  });
}

function drawCurves(lines, width) {
  const box = { left: 46, right: width - 14, top: 26, bottom: Math.max(240, Math.min(400, width * 0.5)) - 40 };
  const points = lines.flatMap((line) => line.points);
  const xMax = Math.max(...points.map((p) => p.x), 0) || 1;
  const [size, unit] = unitFor(App.state.x, xMax);
  const isShare = App.state.y !== "loss";
  const top = isShare ? Math.min(1, Math.max(...points.map((p) => p.y + p.half), 0.1) * 1.04) : Math.max(...points.map((p) => p.y), 0.1) * 1.05;
  const low = isShare ? Math.max(0, Math.min(...points.map((p) => p.y - p.half), 1) - 0.03) : 0;
  const x = linear(0, xMax, box.left, box.right), y = linear(low, top, box.bottom, box.top);
  const clamp = (value) => Math.max(low, Math.min(top, value));
  const drawn = lines.map(({ number, points: own }) => {
    const line = own.map((p) => `${x(p.x).toFixed(1)},${y(clamp(p.y)).toFixed(1)}`).join(" ");
    const upper = own.map((p) => `${x(p.x).toFixed(1)},${y(clamp(p.y + p.half)).toFixed(1)}`);
    const lower = own.map((p) => `${x(p.x).toFixed(1)},${y(clamp(p.y - p.half)).toFixed(1)}`).reverse();
    return [
      sv("polygon", { points: [...upper, ...lower].join(" "), style: `fill:${colour(number)};fill-opacity:.15;stroke:none` }),
      sv("polyline", { class: "curve", points: line, style: `fill:none;stroke:${colour(number)};stroke-width:2`, "stroke-dasharray": dash(number) }),
    ];
  });
  const scaled = (tick) => plain(tick / size);
  const xTicks = ticks(0, xMax / size, width / 110).map((t) => t * size);
  const svg = canvas(width, box.bottom + 44,
    axes(box, x, y, { xTicks, yTicks: ticks(low, top, 6), xText: scaled, xTitle: X_TITLES[App.state.x] + (unit ? ` (${unit})` : ""), yTitle: Y_TITLES[App.state.y] || "" }),
    drawn);
  const hover = (px) => {
    const at = x.back(px);
    const found = lines.filter((l) => l.points.length).map((l) => ({ ...l, p: l.points.reduce((a, b) => (Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a)) }));
    if (!found.length || px < box.left - 8 || px > box.right + 8) return null;
    const nearest = found.reduce((a, b) => (Math.abs(b.p.x - at) < Math.abs(a.p.x - at) ? b : a)).p.x;
    found.sort((a, b) => b.p.y - a.p.y);
    const head = App.state.x === "round" ? `round ${plain(nearest)}` : `near ${amount(App.state.x, nearest)}`;
    return {
      lines: [head, ...found.map((f) => [colour(f.number), `${f.method.label}: ${share(f.p.y)}${f.p.half ? ` ±${share(f.p.half)}` : ""}${App.state.x === "round" ? "" : ` (round ${f.p.round})`}`])],
      mark: [sv("line", { class: "cursor", x1: x(nearest), x2: x(nearest), y1: box.top, y2: box.bottom }),
        ...found.map((f) => sv("circle", { cx: x(f.p.x), cy: y(clamp(f.p.y)), r: 4, style: `fill:${colour(f.number)}` }))],
    };
  };
  const longest = Math.max(2, ...lines.map((l) => l.points.length));
  return { svg, hover, step: [(box.right - box.left) / (longest - 1), 0], start: [box.left, (box.top + box.bottom) / 2] };
}
