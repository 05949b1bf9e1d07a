// Accuracy against cost: a point per method with its 95 % intervals, and the line of those that
// nobody beats in both.

const costChoices = () => X_CHOICES.filter(([key]) => key !== "round");

const costFigure = {
  id: "cost",
  title: "Accuracy against cost",
  link: "Cost",
  needs: ["costs.methods"],
  legend: true,
  absent: (method) => {
    const found = costOf(method.label);
    if (!found) return "no run is finished";
    if (!found[App.state["cost-y"]]) return reasonWithout(App.state["cost-y"], method);
    return found[App.state["cost-x"]] ? "" : `no account of ${App.state["cost-x"]}`;
  },
  hint() {
    const isWide = isLogarithmic(costPoints());
    return (
      "Up and to the left is better. Bars: 95 % intervals over seeds. Line: methods that no " +
      `other beats in both.${isWide ? " Every step to the right multiplies the cost." : ""}`
    );
  },
  controls: [
    {
      key: "cost-x",
      label: "against",
      kind: "radio",
      options: () => costChoices().map(([key, text]) => [key, text, !anyMethodHas(key)]),
    },
    {
      key: "cost-y",
      label: "show",
      kind: "select",
      options() {
        const { titles, judged } = App.data.costs;
        const known = Object.entries(titles).filter(([key]) => anyMethodHas(key));
        return known.sort(([one], [other]) => (other === judged) - (one === judged));
      },
    },
  ],
  draw(width) {
    const points = costPoints();
    if (!points.length) return onlyText(width, "No method that is shown has both figures.");
    return drawCosts(points, referenceLevels(), width);
  },
  csv: () => [
    ["method", App.state["cost-x"], "low", "high", App.state["cost-y"], "low", "high", "on line"],
    ...markEfficient(costPoints()).map((p) => {
      return [p.method.label, ...p.x, ...p.y, p.isEfficient ? "yes" : "no"];
    }),
  ],
};

const costOf = (label) => App.data.costs.methods.find((one) => one.label === label);
const anyMethodHas = (key) => App.data.costs.methods.some((one) => one[key]);

/** {method, number, x, y} of every method shown that has both; x and y are [mean, low, high]. */
function costPoints() {
  return App.data.methods.flatMap((method, number) => {
    if (App.hidden.has(method.label) || costFigure.absent(method)) return [];
    const found = costOf(method.label);
    return [{ method, number, x: found[App.state["cost-x"]], y: found[App.state["cost-y"]] }];
  });
}

/** What references reach, where the picture is of clients: their cost was not accounted for. */
function referenceLevels() {
  const key = App.state["cost-y"];
  const known = App.data.costs.references.filter((row) => row[key]);
  return known.map((row) => ({ label: row.label, level: row[key][0] }));
}

/** Marks the points that no other one beats in both, cheapest first. */
function markEfficient(points) {
  let best = -Infinity;
  const ordered = [...points].sort((one, other) => one.x[0] - other.x[0] || other.y[0] - one.y[0]);
  return ordered.map((p) => {
    const isTwin = p.y[0] === best && ordered.some((o) => o !== p && o.x[0] === p.x[0]);
    const isEfficient = p.y[0] > best || isTwin;
    best = Math.max(best, p.y[0]);
    return { ...p, isEfficient };
  });
}

/** Where the dearest costs more than twenty times as much, equal steps multiply. */
function isLogarithmic(points) {
  const costs = points.map((p) => p.x[0]);
  return Math.min(...costs) > 0 && Math.max(...costs) > 20 * Math.min(...costs);
}

function costScales(points, levels, box) {
  const ends = (p, axis) => p[axis].filter((value) => isGiven(value));
  const heights = [...points.flatMap((p) => ends(p, "y")), ...levels.map(({ level }) => level)];
  const low = Math.max(0, Math.min(...heights) - 0.03);
  const high = Math.min(1, Math.max(...heights) + 0.03);
  const least = Math.min(...points.map((p) => p.x[0]));
  const most = Math.max(...points.flatMap((p) => ends(p, "x")), 0) || 1;
  const x = isLogarithmic(points)
    ? logarithmic(least / 1.6, most * 1.3, box.left, box.right)
    : linear(0, most * 1.08, box.left, box.right);
  return { x, y: linear(low, high, box.bottom, box.top), low, high, most };
}

function drawCosts(points, levels, width) {
  const height = within(width * 0.42, 260, 380);
  const box = { left: 46, right: width - 14, top: 26, bottom: height - 40 };
  const { x, y, low, high, most } = costScales(points, levels, box);
  const [size, unit] = unitFor(App.state["cost-x"], most);
  const axis = axes(box, x, y, {
    xTicks: x.ticks(width / 110, size),
    yTicks: ticks(low, high, 6),
    xText: (tick) => plain(tick / size),
    xTitle: `${X_TITLES[App.state["cost-x"]]} (${unit})`,
    yTitle: App.data.costs.titles[App.state["cost-y"]],
  });
  const placed = markEfficient(points).map((p) => ({ ...p, cx: x(p.x[0]), cy: y(p.y[0]) }));
  const taken = placed.map((p) => ({ x: p.cx - 7, y: p.cy - 7, width: 14, height: 14 }));
  const drawn = [
    levels.map((one, i) => referenceLevel(one, i, box, y, taken)),
    efficientLine(placed.filter((p) => p.isEfficient), box),
    placed.map((p) => intervalBars(p, x, y, box)),
    placed.map((p) => methodDot(p)),
    pointNames(placed, box, taken),
  ];
  return {
    svg: canvas(width, box.bottom + 44, axis, drawn),
    hover: (px, py) => costHover(placed, px, py),
    stops: placed.map((p) => [p.cx, p.cy]),
  };
}

function methodDot({ number, cx, cy }) {
  const style = `fill:${colour(number)};stroke:var(--card);stroke-width:1.5`;
  return sv("circle", { class: "point", cx, cy, r: 6, style });
}

/** A step line: what can be had for a cost is what the best cheaper method reaches. */
function efficientLine(points, box) {
  if (!points.length) return null;
  const steps = points.slice(1).map((p) => `H${p.cx.toFixed(1)}V${p.cy.toFixed(1)}`);
  const start = `M${points[0].cx.toFixed(1)} ${points[0].cy.toFixed(1)}`;
  return sv("path", { class: "efficient", d: `${start}${steps.join("")}H${box.right}` });
}

function intervalBars({ number, x: cost, y: reached, cx, cy }, x, y, box) {
  const style = `stroke:${colour(number)};stroke-width:1.5;stroke-opacity:.55;fill:none`;
  const upright = isGiven(reached[1]) ? `M${cx} ${y(reached[1])}V${y(reached[2])}` : "";
  const left = isGiven(cost[1]) ? Math.max(box.left, x(Math.max(cost[1], cost[0] / 100))) : 0;
  const level = isGiven(cost[1]) ? `M${left} ${cy}H${x(cost[2])}` : "";
  return upright + level ? sv("path", { d: upright + level, style }) : null;
}

/** A line across, its name at the right end, further left where others stand. */
function referenceLevel({ label, level }, i, box, y, taken) {
  const at = y(level);
  const text = `${label} (reference)`;
  const size = { y: at - 15, width: text.length * 6.2, height: 13 };
  const ends = Array.from({ length: 5 }, (_, step) => box.right - step * 60);
  const spots = ends.map((end) => ({ x: end - size.width, ...size }));
  const spot = spots.find((one) => !taken.some((other) => overlap(one, other))) || spots[0];
  taken.push(spot);
  const line = { x1: box.left, x2: box.right, y1: at, y2: at };
  const style = `stroke:${REFERENCE_COLOUR};stroke-opacity:.7`;
  const name = { x: spot.x + size.width, y: at - 4, "text-anchor": "end", style: HALO };
  return [
    sv("line", { ...line, style, "stroke-dasharray": referenceDash(i) }),
    sv("text", name, text),
  ];
}

/** Names beside their points, on the first side with room; points in one place share a name. */
function pointNames(points, box, taken) {
  const groups = [];
  for (const p of points) {
    const near = groups.find(([o]) => Math.hypot(o.cx - p.cx, o.cy - p.cy) < 4);
    if (near) near.push(p);
    else groups.push([p]);
  }
  return groups.map((group) => {
    const inOrder = group.sort((one, other) => one.number - other.number);
    const text = shortened(inOrder.map((p) => p.method.label).join(", "), 34);
    const spot = freeSpot(group[0], text.length * 6.8, taken, box);
    taken.push(spot);
    const at = { x: spot.x + 1, y: spot.y + 11 };
    return sv("text", { class: "strong name", ...at, style: HALO }, text);
  });
}

function freeSpot({ cx, cy, isEfficient }, width, taken, box) {
  const size = { width, height: 14 };
  const right = { x: cx + 10, y: cy - 7 };
  const left = { x: cx - 10 - width, y: cy - 7 };
  const spots = [
    ...(isEfficient ? [left, right] : [right, left]), // the line runs to the right
    { x: cx - width / 2, y: cy - 24 },
    { x: cx - width / 2, y: cy + 10 },
    { x: cx + 8, y: cy - 22 },
    { x: cx + 8, y: cy + 9 },
  ].map((spot) => ({ ...spot, ...size }));
  const isInside = (s) => s.x >= box.left && s.x + s.width <= box.right + 8 && s.y >= 0;
  const isFree = (s) => !taken.some((other) => overlap(s, other));
  return spots.find((s) => isInside(s) && isFree(s)) || spots.find(isInside) || spots[1];
}

function overlap(one, other) {
  const apart = (from, length) => {
    return one[from] + one[length] <= other[from] || other[from] + other[length] <= one[from];
  };
  return !apart("x", "width") && !apart("y", "height");
}

function costHover(points, px, py) {
  const near = nearestOf(points, (p) => Math.hypot(p.cx - px, p.cy - py));
  if (!near) return null;
  const { method, number, x, y, cx, cy, isEfficient } = near;
  const key = App.state["cost-x"];
  const spread = (values, text) => {
    return isGiven(values[1]) ? ` (${text(values[1])} to ${text(values[2])})` : "";
  };
  const cost = (value) => amount(key, value);
  const lines = [
    [colour(number), method.label],
    `${App.data.costs.titles[App.state["cost-y"]]}: ${share(y[0])}${spread(y, share)}`,
    `${key}: ${cost(x[0])}${spread(x, cost)}`,
    isEfficient ? "no other is both cheaper and better" : "another is cheaper and not worse",
  ];
  return { lines, mark: [sv("circle", { class: "frame", cx, cy, r: 9 })] };
}
