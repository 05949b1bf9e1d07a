// How many clients are served how well: the share of clients whose accuracy is at most a, over all
// seeds (docs/methods.md 9.7).

const ecdfFigure = {
  id: "ecdf",
  title: "How clients are served",
  link: "Clients",
  half: true,
  needs: ["methods.runs.accuracies", "references"],
  legend: "references",
  absent(method) {
    if (method.runs.some((run) => run.accuracies.length)) return "";
    const isOver = !method.runs.length || method.runs.some((run) => run.finished);
    return isOver ? "clients not tested" : "no run is finished";
  },
  hint() {
    const references = App.data.references.length
      ? " Grey: references, what could be had without a method."
      : "";
    return (
      "Share of clients (all seeds together) whose own test accuracy is at most this. " +
      `Further right is better.${references}`
    );
  },
  draw(width) {
    const lines = servedLines().filter((line) => line.values.length);
    if (lines.length) return drawServed(lines, width);
    return onlyText(width, "No client has a test set of its own, or no run is finished.");
  },
  csv() {
    const rows = servedLines().flatMap(({ method, values }) => {
      const isReference = App.data.references.includes(method) ? "yes" : "no";
      return values.map((value, i) => [method.label, value, (i + 1) / values.length, isReference]);
    });
    return [["method", "accuracy", "share of clients at most", "reference"], ...rows];
  },
};

/** {method, stroke, dashes, values} of every method and reference; values ascend. */
function servedLines() {
  const line = (method, stroke, dashes) => {
    const values = App.hidden.has(method.label)
      ? []
      : method.runs.flatMap((run) => run.accuracies).sort((one, other) => one - other);
    return { method, stroke, dashes, values };
  };
  const { methods, references } = App.data;
  return [
    ...methods.map((method, i) => line(method, colour(i), dash(i))),
    ...references.map((method, i) => line(method, REFERENCE_COLOUR, referenceDash(i))),
  ];
}

/** The share of ascending values that are at most `limit`. */
function shareAtMost(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low / values.length;
}

function drawServed(lines, width) {
  const height = within(width * 0.5, 220, 360);
  const box = { left: 46, right: width - 14, top: 26, bottom: height - 40 };
  const x = linear(0, 1, box.left, box.right);
  const y = linear(0, 1, box.bottom, box.top);
  const axis = axes(box, x, y, {
    xTicks: ticks(0, 1, 5),
    yTicks: ticks(0, 1, 5),
    xTitle: "accuracy on the client's own test set",
    yTitle: "share of clients",
  });
  const hover = (px) => {
    if (px < box.left - 8 || px > box.right + 8) return null;
    const limit = within(x.back(px), 0, 1);
    const text = ({ method, values }) => {
      return `${method.label}: ${(100 * shareAtMost(values, limit)).toFixed(0)} % of clients`;
    };
    const dot = ({ stroke, values }) => {
      const cy = y(shareAtMost(values, limit));
      return sv("circle", { cx: x(limit), cy, r: 4, style: `fill:${stroke}` });
    };
    return {
      lines: [
        `accuracy at most ${share(limit)}`,
        ...lines.map((line) => [line.stroke, text(line)]),
      ],
      mark: [cursorLine(x(limit), box), ...lines.map(dot)],
    };
  };
  return {
    svg: canvas(width, box.bottom + 44, axis, lines.map((line) => staircase(line, x, y))),
    hover,
    step: [(box.right - box.left) / 50, 0],
    start: [box.left, box.top + 20],
  };
}

function staircase({ stroke, dashes, values }, x, y) {
  const steps = values.map((value, i) => {
    if (values[i + 1] === value) return "";
    return `H${x(value).toFixed(1)}V${y((i + 1) / values.length).toFixed(1)}`;
  });
  const path = `M${x(0)} ${y(0)}${steps.join("")}H${x(1)}`;
  const style = `fill:none;stroke:${stroke};stroke-width:2`;
  return sv("path", { class: "curve", d: path, style, "stroke-dasharray": dashes });
}
