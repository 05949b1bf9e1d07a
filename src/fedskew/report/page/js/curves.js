// Learning curves: mean over seeds with the 95 % interval of the mean,
// against rounds, bytes, simulated time or energy.

const X_CHOICES = [
  ["round", "rounds"],
  ["bytes", "bytes"],
  ["time", "time"],
  ["energy", "energy"],
];
const X_TITLES = {
  round: "round",
  bytes: "bytes sent, all directions",
  time: "simulated time",
  energy: "energy of the clients",
};
const Y_TITLES = {
  accuracy: "accuracy of the global model",
  client_accuracy: "accuracy of the clients' own models",
  loss: "test loss",
};

const curvesFigure = {
  id: "curves",
  title: "Learning curves",
  link: "Curves",
  needs: ["methods.runs.series", "t95"],
  legend: true,
  absent(method) {
    if (curvePoints(method, App.state.x, App.state.y).length) return "";
    if (!method.runs.some((run) => run.series[App.state.y])) {
      return reasonWithout(App.state.y, method);
    }
    return `no account of ${App.state.x}`;
  },
  hint() {
    const target = shownTarget() ? ` Dashed: the target, ${shownTarget()}.` : "";
    return `Line: mean over seeds. Band: 95 % interval of the mean.${target}`;
  },
  controls: [
    {
      key: "x",
      label: "against",
      kind: "radio",
      options: () => X_CHOICES.map(([key, text]) => [key, text, !anyRunHas(key)]),
    },
    {
      key: "y",
      label: "show",
      kind: "select",
      options: () => Object.entries(Y_TITLES).filter(([key]) => anyRunHas(key)),
    },
  ],
  draw: (width) => drawCurves(shownCurves(), width),
  csv: () => [
    ["method", "round", App.state.x, App.state.y, "half interval", "seeds"],
    ...shownCurves().flatMap(({ method, points }) => {
      return points.map((p) => [method.label, p.round, p.x, p.y, p.half, p.n]);
    }),
  ],
};

function anyRunHas(key) {
  return App.data.methods.some((method) => method.runs.some((run) => run.series[key]));
}

/** Why a method has no values of a kind. */
function reasonWithout(key, method) {
  const has = (other) => method.runs.some((run) => run.series[other]);
  if (["accuracy", "final", "loss"].includes(key) && has("client_accuracy")) {
    return "several models, no global one";
  }
  if (key === "client_accuracy" && has("accuracy")) return "one global model";
  return ["client_accuracy", "worst10"].includes(key) ? "clients not tested" : "not evaluated yet";
}

/** The target where the curves are those it was held against, else null. */
function shownTarget() {
  const { y } = App.state;
  const isJudged = y === "accuracy" || (y === "client_accuracy" && !anyRunHas("accuracy"));
  return isJudged ? App.data.target : null;
}

function shownCurves() {
  return App.data.methods.map((method, number) => {
    const isHidden = App.hidden.has(method.label);
    const points = isHidden ? [] : curvePoints(method, App.state.x, App.state.y);
    return { method, number, points };
  });
}

/** At every evaluation all runs of a method have: means of x and y over seeds, half an interval. */
function curvePoints(method, xKey, yKey) {
  const byRound = new Map();
  for (const { series } of method.runs) {
    if (!series[xKey] || !series[yKey]) continue;
    series.round.forEach((round, i) => {
      const pair = [series[xKey][i], series[yKey][i]];
      if (pair.includes(null)) return;
      byRound.set(round, [...(byRound.get(round) || []), pair]);
    });
  }
  // Where a seed is missing (a run still going) the mean would jump: only the rounds all runs
  // have are drawn.
  const most = Math.max(0, ...[...byRound.values()].map((pairs) => pairs.length));
  const whole = [...byRound].filter(([, pairs]) => pairs.length === most);
  whole.sort((one, other) => one[0] - other[0]);
  return whole.map(([round, pairs]) => meanPoint(round, pairs));
}

function meanPoint(round, pairs) {
  const n = pairs.length;
  const x = sumOf(pairs.map((pair) => pair[0])) / n;
  const y = sumOf(pairs.map((pair) => pair[1])) / n;
  const differ = pairs.some((pair) => pair[1] !== pairs[0][1]);
  const squares = sumOf(pairs.map((pair) => (pair[1] - y) ** 2));
  const spread = differ ? Math.sqrt(squares / (n - 1)) : 0;
  const half = n > 1 ? (App.data.t95[n] * spread) / Math.sqrt(n) : 0;
  return { round, x, y, half, n };
}

/** Where values end on the vertical axis: shares close around the curves, losses from 0. */
function valueRange(points) {
  if (App.state.y === "loss") return [0, Math.max(...points.map((p) => p.y), 0.1) * 1.05];
  const target = shownTarget() ? [shownTarget()] : [];
  const high = Math.max(...points.map((p) => p.y + p.half), ...target, 0.1) * 1.04;
  const low = Math.min(...points.map((p) => p.y - p.half), ...target, 1) - 0.03;
  return [Math.max(0, low), Math.min(1, high)];
}

function drawCurves(lines, width) {
  const height = within(width * 0.5, 240, 400);
  const box = { left: 46, right: width - 14, top: 26, bottom: height - 40 };
  const points = lines.flatMap((line) => line.points);
  const xMax = Math.max(...points.map((p) => p.x), 0) || 1;
  const [size, unit] = unitFor(App.state.x, xMax);
  const [low, high] = valueRange(points);
  const x = linear(0, xMax, box.left, box.right);
  const value = linear(low, high, box.bottom, box.top);
  const y = (number) => value(within(number, low, high));
  const axis = axes(box, x, value, {
    xTicks: ticks(0, xMax / size, width / 110).map((tick) => tick * size),
    yTicks: ticks(low, high, 6),
    xText: (tick) => plain(tick / size),
    xTitle: X_TITLES[App.state.x] + (unit ? ` (${unit})` : ""),
    yTitle: Y_TITLES[App.state.y] || "",
  });
  const longest = Math.max(2, ...lines.map((line) => line.points.length));
  return {
    svg: canvas(
      width,
      box.bottom + 44,
      axis,
      lines.map((line) => bandAndLine(line, x, y)),
      targetLine(box, y),
    ),
    hover: (px) => curvesHover(lines, box, x, y, px),
    step: [(box.right - box.left) / (longest - 1), 0],
    start: [box.left, (box.top + box.bottom) / 2],
  };
}

function targetLine(box, y) {
  const target = shownTarget();
  if (!target) return null;
  const at = y(target);
  return [
    sv("line", { class: "target", x1: box.left, x2: box.right, y1: at, y2: at }),
    sv("text", { class: "strong", x: box.left + 4, y: at - 5, style: HALO }, `target ${target}`),
  ];
}

function bandAndLine({ number, points }, x, y) {
  const at = (p, number) => `${x(p.x).toFixed(1)},${y(number).toFixed(1)}`;
  const upper = points.map((p) => at(p, p.y + p.half));
  const lower = points.map((p) => at(p, p.y - p.half)).reverse();
  const middle = points.map((p) => at(p, p.y));
  const band = `fill:${colour(number)};fill-opacity:.15;stroke:none`;
  const line = `fill:none;stroke:${colour(number)};stroke-width:2`;
  const curve = { class: "curve", points: middle.join(" "), style: line };
  return [
    sv("polygon", { points: [...upper, ...lower].join(" "), style: band }),
    sv("polyline", { ...curve, "stroke-dasharray": dash(number) }),
  ];
}

function curvesHover(lines, box, x, y, px) {
  if (px < box.left - 8 || px > box.right + 8) return null;
  const wanted = x.back(px);
  const away = (p) => Math.abs(p.x - wanted);
  const drawn = lines.filter((line) => line.points.length);
  const all = drawn.map((line) => ({ ...line, p: nearestOf(line.points, away) }));
  if (!all.length) return null;
  // a curve that has ended, or never began, has no value here
  const widest = Math.max(...drawn.map((line) => widestGap(line.points)));
  const closest = Math.min(...all.map(({ p }) => away(p)));
  const near = all.filter(({ p }) => away(p) <= Math.max(widest, closest));
  const nearest = nearestOf(near, ({ p }) => away(p)).p.x;
  near.sort((one, other) => other.p.y - one.p.y);
  const byRound = App.state.x === "round";
  const head = byRound ? `round ${plain(nearest)}` : `near ${amount(App.state.x, nearest)}`;
  const text = ({ method, p }) => {
    const spread = p.half ? ` ±${share(p.half)}` : "";
    return `${method.label}: ${share(p.y)}${spread}${byRound ? "" : ` (round ${p.round})`}`;
  };
  const dot = ({ number, p }) => {
    return sv("circle", { cx: x(p.x), cy: y(p.y), r: 4, style: `fill:${colour(number)}` });
  };
  return {
    lines: [head, ...near.map((line) => [colour(line.number), text(line)])],
    mark: [cursorLine(x(nearest), box), ...near.map(dot)],
  };
}

function widestGap(points) {
  return Math.max(0, ...points.slice(1).map((p, i) => p.x - points[i].x));
}

function cursorLine(x, box) {
  return sv("line", { class: "cursor", x1: x, x2: x, y1: box.top, y2: box.bottom });
}
