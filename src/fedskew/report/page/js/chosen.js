// Who was chosen: clients x rounds, sorted by cluster; beside it how often each client was chosen in all.

function decoded(raster) {
  if (!raster.bytes) raster.bytes = Uint8Array.from(atob(raster.data), (c) => c.charCodeAt(0));
  return raster.bytes;
}

function chosenFigure() {
  const raster = () => chosenRun("chosen").chosen;
  const who = (band) => {
    const r = raster();
    return r.clients ? clientName(r.clients[band]) : `${count(r.edges[band + 1] - r.edges[band], "client")}, places ${r.edges[band] + 1} to ${r.edges[band + 1]}`;
  };
  const rounds = (column) => {
    const { spans } = raster();
    return spans && spans[column + 1] - spans[column] > 1 ? `rounds ${spans[column] + 1} to ${spans[column + 1]}` : `round ${spans ? spans[column] + 1 : column + 1}`;
  };
  return figure({
    id: "chosen",
    title: "Who was chosen",
    controls: runControls("chosen"),
    hint: () => {
      const r = raster();
      return `Rows: ${r.how}; columns: rounds. Bars: how often in all (${r.fewest} to ${r.most} times; ${count(r.never, "client")} never).`;
    },
    draw: (width) => drawRaster(raster(), width, who, rounds),
    csv: () => {
      const r = raster(), bytes = decoded(r);
      const head = Array.from({ length: r.columns }, (_, i) => rounds(i));
      return [["clients", "cluster", "times chosen", ...head], ...Array.from({ length: r.bands }, (_, b) => [who(b), r.clusters[b], r.times[b], ...Array.from({ length: r.columns }, (_, c) => Number((bytes[b * r.columns + c] / 255).toFixed(3)))])];
    },
  });
}

function drawRaster(r, width, who, rounds) {
  if (!r.columns) return { svg: canvas(width, 40, sv("text", { x: 4, y: 24 }, "No round has been played yet.")) };
  const bytes = decoded(r), strongest = r.clients && !r.spans ? 255 : Math.max(1, bytes.reduce((a, b) => Math.max(a, b)));
  const bars = Math.min(120, width * 0.16);
  const height = Math.max(120, Math.min(460, r.bands * Math.max(4, Math.min(14, 460 / r.bands))));
  const box = { left: 18, right: width - bars - 16, top: 8, bottom: 8 + height };
  const y = linear(0, r.bands, box.top, box.bottom), x = linear(0, r.columns, box.left, box.right);
  const most = Math.max(...r.times, 1e-9), length = linear(0, most, box.right + 6, width - 10);
  const parts = [
    sv("rect", { class: "paper", x: box.left, y: box.top, width: box.right - box.left, height }),
    image(picture(r.columns, r.bands, (c, b) => bytes[b * r.columns + c] / strongest), box.left, box.top, box.right - box.left, height),
  ];
  const bar = r.times.map((times, b) => `M${box.right + 6} ${y(b + 0.5).toFixed(2)}H${length(times).toFixed(1)}`).join("");
  parts.push(sv("path", { d: bar, style: `stroke:var(--accent);stroke-width:${Math.max(0.6, (height / r.bands) * 0.75).toFixed(2)};fill:none` }));
  for (let b = 0, from = 0; b < r.bands; b++) {
    if (b + 1 < r.bands && r.clusters[b + 1] === r.clusters[b]) continue;
    parts.push(sv("rect", { x: 6, y: y(from), width: 7, height: Math.max(0.5, y(b + 1) - y(from) - 1), style: `fill:${colour(r.clusters[b])}` }));
    if (b + 1 < r.bands && r.bands <= 400) parts.push(sv("line", { class: "grid", x1: box.left, x2: width - 10, y1: y(b + 1), y2: y(b + 1) }));
    from = b + 1;
  }
  const last = r.spans ? r.spans.at(-1) : r.columns;
  for (const tick of ticks(0, last, width / 110)) parts.push(sv("text", { x: box.left + ((box.right - box.left) * tick) / last, y: box.bottom + 16, "text-anchor": "middle" }, plain(tick)));
  parts.push(sv("text", { class: "strong", x: box.right, y: box.bottom + 33, "text-anchor": "end" }, "round"));
  parts.push(sv("text", { class: "strong", x: width - 10, y: box.bottom + 16, "text-anchor": "end" }, "times"));
  const hover = (px, py) => {
    const band = Math.floor(y.back(py)), column = Math.floor(x.back(px));
    if (band < 0 || band >= r.bands || px < box.left) return null;
    const lines = [who(band), [colour(r.clusters[band]), r.clusters[band] < 0 ? "in no cluster" : `cluster ${r.clusters[band]}`], `chosen ${plain(r.times[band])} times${r.clients ? "" : " on average"}`];
    if (column >= r.columns) return { lines, mark: [sv("rect", { class: "frame", x: box.right + 6, y: y(band), width: width - box.right - 16, height: height / r.bands })] };
    const part = bytes[band * r.columns + column] / 255;
    lines.push(`${rounds(column)}: ${part === 0 ? "not chosen" : part === 1 ? "chosen" : `${(100 * part).toFixed(1)} % chosen`}`);
    return { lines, mark: [sv("rect", { class: "frame", x: x(column), y: y(band), width: Math.max(2, x(1) - x(0)), height: Math.max(2, height / r.bands) })] };
  };
  return { svg: canvas(width, box.bottom + 40, parts), hover, step: [x(1) - x(0), y(1) - y(0)], start: [box.left + 0.5, box.top + 0.5] };
}
