// Label heat map: a column per client (or band of clients) sorted by cluster, a row per class; dark = much of its data.

/** A picture of numbers 0..1 (row by row) in the theme's colour, as a data address: it stays inside the SVG when that is saved. */
function picture(columns, rows, value) {
  const board = el("canvas", { width: Math.max(1, columns), height: Math.max(1, rows) });
  const pen = board.getContext("2d");
  const pixels = pen.createImageData(board.width, board.height);
  const [red, green, blue] = css("--heat").split(",").map(Number);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++)
      pixels.data.set([red, green, blue, Math.round(255 * value(column, row))], 4 * (row * columns + column));
  pen.putImageData(pixels, 0, 0);
  return board.toDataURL();
}

const image = (address, x, y, width, height) =>
  sv("image", { href: address, x, y, width, height, preserveAspectRatio: "none", style: "image-rendering:pixelated" });

function labelsFigure() {
  const heat = () => App.data.federation.heat;
  const clusterAt = (position) => heat().clusters[heat().cluster_edges.findLastIndex((edge) => edge <= position)];
  const who = (band) => {
    const { edges, clients } = heat();
    return clients ? clientName(clients[band]) : `${count(edges[band + 1] - edges[band], "client")} (mean)`;
  };
  return figure({
    id: "labels",
    title: "Who has which labels",
    hint: () => `Columns: clients, sorted by cluster (${App.data.federation.grouping || "none"}); rows: labels. Stronger colour: a larger share of the client's examples.`,
    draw: (width) => {
      const { classes } = App.data.federation;
      const bands = heat().shares.length, total = heat().edges.at(-1);
      const longest = Math.min(110, 12 + 6.6 * Math.max(...classes.map((name) => Math.min(16, name.length))));
      const cell = Math.max(4, Math.min(26, 280 / classes.length));
      const box = { left: longest, right: width - 8, top: 18, bottom: 18 + cell * classes.length };
      const x = linear(0, total, box.left, box.right);
      // Bands differ in width where they hold different numbers of clients: drawn client by client up to 2,000, else band by band.
      const fine = Math.min(total, 2000);
      const bandAt = (client) => Math.max(0, heat().edges.findLastIndex((edge) => edge <= client));
      const lookup = Array.from({ length: fine }, (_, i) => Math.min(bands - 1, bandAt(Math.floor((i * total) / fine))));
      const parts = [
        sv("rect", { class: "paper", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }),
        image(picture(fine, classes.length, (c, r) => heat().shares[lookup[c]][r] / 1000), box.left, box.top, box.right - box.left, box.bottom - box.top),
      ];
      const every = Math.ceil(12 / cell);
      classes.forEach((name, i) => i % every === 0 && parts.push(sv("text", { x: box.left - 6, y: box.top + cell * (i + 0.5) + 4, "text-anchor": "end" }, name.length > 16 ? `${name.slice(0, 15)}…` : name)));
      heat().clusters.forEach((cluster, i) => {
        const [from, to] = [x(heat().cluster_edges[i]), x(heat().cluster_edges[i + 1])];
        parts.push(sv("rect", { x: from, y: box.bottom + 3, width: Math.max(0.5, to - from - 1), height: 7, style: `fill:${colour(cluster)}` }));
        if (to - from > 16) parts.push(sv("text", { x: (from + to) / 2, y: box.bottom + 23, "text-anchor": "middle" }, cluster < 0 ? "–" : String(cluster)));
      });
      parts.push(sv("text", { class: "strong", x: box.right, y: box.bottom + 40, "text-anchor": "end" }, `${count(total, "client")}, clusters below`));
      const hover = (px, py) => {
        const row = Math.floor((py - box.top) / cell), client = Math.floor(x.back(px));
        if (row < 0 || row >= classes.length || client < 0 || client >= total) return null;
        const band = Math.min(bands - 1, bandAt(client));
        const [from, to] = [x(heat().edges[band]), x(heat().edges[band + 1])];
        const cluster = clusterAt(client);
        return {
          lines: [who(band), `label ${classes[row]}: ${(heat().shares[band][row] / 10).toFixed(1)} %`, [colour(cluster), cluster < 0 ? "in no cluster" : `cluster ${cluster}`]],
          mark: [sv("rect", { class: "frame", x: from, y: box.top + row * cell, width: Math.max(2, to - from), height: cell })],
        };
      };
      return { svg: canvas(width, box.bottom + 46, parts), hover, step: [(box.right - box.left) / bands, cell], start: [box.left + 1, box.top + cell / 2] };
    },
    csv: () => [["client", "cluster", ...App.data.federation.classes], ...heat().shares.map((row, i) => [who(i), clusterAt(heat().edges[i]), ...row.map((v) => v / 1000)])],
  });
}
