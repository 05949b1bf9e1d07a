// Who was chosen: clients x rounds, sorted by cluster; beside it how often each client was chosen
// in all.

const chosenFigure = {
  id: "chosen",
  title: "Who was chosen",
  link: "Chosen",
  needs: ["methods.runs.chosen"],
  controls: runControls("chosen"),
  hint() {
    const { how, fewest, most, never } = chosenRun("chosen").chosen;
    const times = `${fewest} to ${most} times; ${count(never, "client")} never`;
    return `Rows: ${how}; columns: rounds. Bars: how often in all (${times}).`;
  },
  draw: (width) => drawRaster(chosenRun("chosen").chosen, width),
  csv() {
    const raster = chosenRun("chosen").chosen;
    const columns = [...Array(raster.columns).keys()];
    const bands = [...Array(raster.bands).keys()];
    const row = (band) => [
      rowName(raster, band),
      raster.clusters[band],
      raster.times[band],
      ...columns.map((column) => Number(shareChosen(raster, band, column).toFixed(3))),
    ];
    const head = columns.map((column) => roundName(raster, column));
    return [["clients", "cluster", "times chosen", ...head], ...bands.map(row)];
  },
};

function decoded(raster) {
  if (!raster.bytes) raster.bytes = Uint8Array.from(atob(raster.data), (c) => c.charCodeAt(0));
  return raster.bytes;
}

/** The share of a band's clients that were chosen in the rounds of a column. */
function shareChosen(raster, band, column) {
  return decoded(raster)[band * raster.columns + column] / 255;
}

function rowName({ clients, edges }, band) {
  if (clients) return clientName(clients[band]);
  const [from, to] = [edges[band], edges[band + 1]];
  return `${count(to - from, "client")}, places ${from + 1} to ${to}`;
}

function roundName({ spans }, column) {
  if (!spans) return `round ${column + 1}`;
  const [from, to] = [spans[column], spans[column + 1]];
  return to - from > 1 ? `rounds ${from + 1} to ${to}` : `round ${from + 1}`;
}

function drawRaster(raster, width) {
  if (!raster.columns) return onlyText(width, "No round has been played yet.");
  const { bands, columns } = raster;
  const height = within(bands * within(460 / bands, 4, 14), 120, 460);
  const barRoom = Math.min(120, width * 0.16);
  const box = { left: 18, right: width - barRoom - 16, top: 8, bottom: 8 + height };
  const x = linear(0, columns, box.left, box.right);
  const y = linear(0, bands, box.top, box.bottom);
  const bytes = decoded(raster);
  const isYesOrNo = raster.clients && !raster.spans; // every cell is one client in one round
  const strongest = isYesOrNo ? 255 : bytes.reduce((most, byte) => Math.max(most, byte), 1);
  const strength = (column, band) => bytes[band * columns + column] / strongest;
  const parts = [
    pictureOnPaper(picture(columns, bands, strength), box),
    timesBars(raster, width, box, y),
    clusterStripes(raster, width, box, y),
    roundAxis(raster, width, box),
  ];
  return {
    svg: canvas(width, box.bottom + 40, parts),
    hover: (px, py) => rasterHover(raster, width, box, x, y, px, py),
    step: [x(1) - x(0), y(1) - y(0)],
    start: [box.left + 0.5, box.top + 0.5],
  };
}

/** How often each band was chosen in all. */
function timesBars({ bands, times }, width, box, y) {
  const most = Math.max(...times, 1e-9);
  const x = linear(0, most, box.right + 6, width - 10);
  const bar = (number, band) => {
    return `M${box.right + 6} ${y(band + 0.5).toFixed(2)}H${x(number).toFixed(1)}`;
  };
  const thick = Math.max(0.6, ((box.bottom - box.top) / bands) * 0.75).toFixed(2);
  const style = `stroke:var(--accent);stroke-width:${thick};fill:none`;
  return sv("path", { d: times.map(bar).join(""), style });
}

/** A stripe for each run of bands of one cluster, and a line where it ends. */
function clusterStripes({ bands, clusters }, width, box, y) {
  const parts = [];
  let from = 0;
  for (let band = 0; band < bands; band++) {
    const isLast = band + 1 === bands;
    if (!isLast && clusters[band + 1] === clusters[band]) continue;
    const end = y(band + 1);
    const size = { width: 7, height: Math.max(0.5, end - y(from) - 1) };
    const style = `fill:${colour(clusters[band])}`;
    parts.push(sv("rect", { x: 6, y: y(from), ...size, style }));
    if (!isLast && bands <= 400) {
      parts.push(sv("line", { class: "grid", x1: box.left, x2: width - 10, y1: end, y2: end }));
    }
    from = band + 1;
  }
  return parts;
}

function roundAxis({ spans, columns }, width, box) {
  const last = spans ? spans.at(-1) : columns;
  const number = (tick) => {
    const x = box.left + ((box.right - box.left) * tick) / last;
    return sv("text", { x, y: box.bottom + 16, "text-anchor": "middle" }, plain(tick));
  };
  const title = (text, x, y) => sv("text", { class: "strong", x, y, "text-anchor": "end" }, text);
  return [
    ticks(0, last, width / 110).map(number),
    title("round", box.right, box.bottom + 33),
    title("times", width - 10, box.bottom + 16),
  ];
}

function rasterHover(raster, width, box, x, y, px, py) {
  const band = Math.floor(y.back(py));
  const column = Math.floor(x.back(px));
  if (band < 0 || band >= raster.bands || px < box.left) return null;
  const times = `chosen ${plain(raster.times[band])} times${raster.clients ? "" : " on average"}`;
  const lines = [rowName(raster, band), clusterLine(raster.clusters[band]), times];
  const high = (box.bottom - box.top) / raster.bands;
  if (column >= raster.columns) {
    const size = { width: width - box.right - 16, height: high };
    return { lines, mark: [sv("rect", { class: "frame", x: box.right + 6, y: y(band), ...size })] };
  }
  const part = shareChosen(raster, band, column);
  const percent = `${(100 * part).toFixed(1)} % chosen`;
  const how = part === 0 ? "not chosen" : part === 1 ? "chosen" : percent;
  const size = { width: Math.max(2, x(1) - x(0)), height: Math.max(2, high) };
  return {
    lines: [...lines, `${roundName(raster, column)}: ${how}`],
    mark: [sv("rect", { class: "frame", x: x(column), y: y(band), ...size })],
  };
}
