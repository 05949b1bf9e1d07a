// Label heat map: a column per client (or band of clients) sorted by cluster, a row per class;
// dark = much of its data.

const labelsFigure = {
  id: "labels",
  title: "Who has which labels",
  half: true,
  needs: ["federation.heat", "federation.classes"],
  hint() {
    const grouping = App.data.federation.grouping || "none";
    return (
      `Columns: clients, sorted by cluster (${grouping}); rows: labels. ` +
      "Stronger colour: a larger share of the client's examples."
    );
  },
  draw: (width) => drawLabels(App.data.federation.heat, App.data.federation.classes, width),
  csv() {
    const { heat, classes } = App.data.federation;
    const row = (shares, band) => [
      bandName(heat, band),
      clusterAt(heat, heat.edges[band]),
      ...shares.map((thousandths) => thousandths / 1000),
    ];
    return [["client", "cluster", ...classes], ...heat.shares.map(row)];
  },
};

const bandAt = (heat, client) => heat.edges.findLastIndex((edge) => edge <= client);

function clusterAt(heat, client) {
  return heat.clusters[heat.cluster_edges.findLastIndex((edge) => edge <= client)];
}

function bandName({ clients, edges }, band) {
  if (clients) return clientName(clients[band]);
  return `${count(edges[band + 1] - edges[band], "client")} (mean)`;
}

function drawLabels(heat, classes, width) {
  const bands = heat.shares.length;
  const total = heat.edges.at(-1);
  const letters = Math.max(...classes.map((name) => Math.min(16, name.length)));
  const cell = within(280 / classes.length, 4, 26);
  const left = Math.min(110, 12 + 6.6 * letters);
  const box = { left, right: width - 8, top: 18, bottom: 18 + cell * classes.length };
  const x = linear(0, total, box.left, box.right);
  const band = (client) => within(bandAt(heat, client), 0, bands - 1);
  const below = { class: "strong", x: box.right, y: box.bottom + 40, "text-anchor": "end" };
  const parts = [
    pictureOnPaper(heatPicture(heat, classes.length, total, band), box),
    classNames(classes, cell, box),
    clusterBars(heat, x, box),
    sv("text", below, `${count(total, "client")}, clusters below`),
  ];
  const hover = (px, py) => {
    const row = Math.floor((py - box.top) / cell);
    const client = Math.floor(x.back(px));
    if (row < 0 || row >= classes.length || client < 0 || client >= total) return null;
    const number = band(client);
    const from = x(heat.edges[number]);
    const size = { width: Math.max(2, x(heat.edges[number + 1]) - from), height: cell };
    const percent = (heat.shares[number][row] / 10).toFixed(1);
    return {
      lines: [
        bandName(heat, number),
        `label ${classes[row]}: ${percent} %`,
        clusterLine(clusterAt(heat, client)),
      ],
      mark: [sv("rect", { class: "frame", x: from, y: box.top + row * cell, ...size })],
    };
  };
  return {
    svg: canvas(width, box.bottom + 46, parts),
    hover,
    step: [(box.right - box.left) / bands, cell],
    start: [box.left + 1, box.top + cell / 2],
  };
}

/** Bands may differ in width: they are drawn client by client, or in 2,000 steps. */
function heatPicture(heat, rows, total, band) {
  const columns = Math.min(total, 2000);
  const client = (column) => Math.floor((column * total) / columns);
  const shares = Array.from({ length: columns }, (_, i) => heat.shares[band(client(i))]);
  return picture(columns, rows, (column, row) => shares[column][row] / 1000);
}

function classNames(classes, cell, box) {
  const every = Math.ceil(12 / cell);
  return classes.map((name, i) => {
    if (i % every) return null;
    const y = box.top + cell * (i + 0.5) + 4;
    return sv("text", { x: box.left - 6, y, "text-anchor": "end" }, shortened(name, 16));
  });
}

function clusterBars({ clusters, cluster_edges: edges }, x, box) {
  return clusters.map((cluster, i) => {
    const from = x(edges[i]);
    const to = x(edges[i + 1]);
    const size = { width: Math.max(0.5, to - from - 1), height: 7 };
    const style = `fill:${colour(cluster)}`;
    const bar = sv("rect", { x: from, y: box.bottom + 3, ...size, style });
    if (to - from <= 16) return [bar];
    const middle = { x: (from + to) / 2, y: box.bottom + 23, "text-anchor": "middle" };
    return [bar, sv("text", middle, cluster < 0 ? "–" : String(cluster))];
  });
}
