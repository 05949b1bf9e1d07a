// How many clients are served how well: the share of clients whose accuracy is at most a, over all seeds (METHODS 9.7).

function ecdfFigure() {
  const pooled = (method) => method.runs.flatMap((run) => run.accuracies).sort((a, b) => a - b);
  const line = (method, stroke, dashes) => ({ method, stroke, dashes, values: App.hidden.has(method.label) ? [] : pooled(method) });
  const all = () => [
    ...App.data.methods.map((method, number) => line(method, colour(number), dash(number))),
    ...App.data.references.map((method, number) => line(method, REFERENCE_COLOUR, referenceDash(number))),
  ];
  const below = (values, a) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      values[middle] <= a ? (low = middle + 1) : (high = middle);
    }
    return low / values.length;
  };
  return figure({
    id: "ecdf",
    title: "How clients are served",
    legend: "references",
    hint: () => "Share of clients (all seeds together) whose own test accuracy is at most this. Further right is better." + (App.data.references.length ? " Grey: references, what could be had without a method." : ""),
    draw: (width) => {
      const lines = all().filter((line) => line.values.length);
      if (!lines.length) return { svg: canvas(width, 40, sv("text", { x: 4, y: 24 }, "No client has a test set of its own, or no run is finished.")) };
      const box = { left: 46, right: width - 14, top: 26, bottom: Math.max(220, Math.min(360, width * 0.5)) - 40 };
      const x = linear(0, 1, box.left, box.right), y = linear(0, 1, box.bottom, box.top);
      const drawn = lines.map(({ stroke, dashes, values }) => {
        let path = `M${x(0)} ${y(0)}`;
        values.forEach((value, i) => { if (values[i + 1] !== value) path += `H${x(value).toFixed(1)}V${y((i + 1) / values.length).toFixed(1)}`; });
        return sv("path", { class: "curve", d: `${path}H${x(1)}`, style: `fill:none;stroke:${stroke};stroke-width:2`, "stroke-dasharray": dashes });
      });
      const svg = canvas(width, box.bottom + 44, axes(box, x, y, { xTicks: ticks(0, 1, 5), yTicks: ticks(0, 1, 5), xTitle: "accuracy on the client's own test set", yTitle: "share of clients" }), drawn);
      const hover = (px) => {
        const at = Math.max(0, Math.min(1, x.back(px)));
        if (px < box.left - 8 || px > box.right + 8) return null;
        return {
          lines: [`accuracy at most ${share(at)}`, ...lines.map((l) => [l.stroke, `${l.method.label}: ${(100 * below(l.values, at)).toFixed(0)} % of clients`])],
          mark: [sv("line", { class: "cursor", x1: x(at), x2: x(at), y1: box.top, y2: box.bottom }), ...lines.map((l) => sv("circle", { cx: x(at), cy: y(below(l.values, at)), r: 4, style: `fill:${l.stroke}` }))],
        };
      };
      return { svg, hover, step: [(box.right - box.left) / 50, 0], start: [box.left, box.top + 20] };
    },
    csv: () => [["method", "accuracy", "share of clients at most", "reference"], ...all().flatMap(({ method, values }) => values.map((v, i) => [method.label, v, (i + 1) / values.length, App.data.references.includes(method) ? "yes" : "no"]))],
  });
}
