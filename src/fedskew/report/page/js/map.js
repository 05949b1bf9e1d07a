// Map of the clients: near means alike (principal components of the square roots of the label shares).

function mapFigure() {
  const found = () => App.data.federation.map;
  return figure({
    id: "map",
    title: "Map of the clients",
    hint: () => `Near means alike; colour and number: cluster. The axes show ${Math.round(100 * (found().explained[0] + found().explained[1]))} % of the differences.`,
    draw: (width) => {
      const dots = found().dots;
      const height = Math.min(420, Math.max(260, width * 0.8));
      const range = (k) => [Math.min(...dots.map((d) => d[k])), Math.max(...dots.map((d) => d[k]))];
      const [[x0, x1], [y0, y1]] = [range(0), range(1)];
      const zoom = Math.min((width - 60) / (x1 - x0 || 1), (height - 60) / (y1 - y0 || 1));
      const place = (d) => [width / 2 + (d[0] - (x0 + x1) / 2) * zoom, height / 2 - (d[1] - (y0 + y1) / 2) * zoom];
      const largest = Math.max(...dots.map((d) => d[3]));
      const radius = (d) => (found().clients > 1500 ? 2 + 3 * Math.sqrt(d[3] / largest) : Math.min(18, 6 * Math.sqrt(d[3])));
      const parts = dots.map((d) => {
        const [cx, cy] = place(d);
        return sv("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: radius(d).toFixed(1), style: `fill:${colour(d[2])};fill-opacity:.75;stroke:var(--card);stroke-width:${found().clients > 1500 ? 0 : 1}` });
      });
      const hover = (px, py) => {
        const near = dots.map((d) => [Math.hypot(place(d)[0] - px, place(d)[1] - py), d]).reduce((a, b) => (b[0] < a[0] ? b : a));
        if (near[0] > 60) return null;
        const d = near[1], [cx, cy] = place(d);
        return {
          lines: [d[3] > 1 ? `${count(d[3], "client")}, among them ${clientName(d[4])}` : clientName(d[4]), [colour(d[2]), d[2] < 0 ? "in no cluster" : `cluster ${d[2]}`]],
          mark: [sv("circle", { class: "frame", cx, cy, r: radius(d) + 3 })],
        };
      };
      return { svg: canvas(width, height, parts, clusterNumbers(dots, place)), hover, step: [20, 20], start: [width / 2, height / 2] };
    },
    csv: () => [["x", "y", "cluster", "clients", "one of them"], ...found().dots],
  });
}

/** The number of every cluster at its most central dot; the 18 largest clusters. */
function clusterNumbers(dots, place) {
  const groups = new Map();
  for (const d of dots) groups.set(d[2], [...(groups.get(d[2]) || []), d]);
  const sizes = [...groups].filter(([cluster]) => cluster >= 0).map(([cluster, own]) => [cluster, own, own.reduce((sum, d) => sum + d[3], 0)]);
  const taken = [];
  return sizes.sort((a, b) => b[2] - a[2]).slice(0, 18).map(([cluster, own]) => {
    const middle = [0, 1].map((k) => own.reduce((sum, d) => sum + d[k], 0) / own.length);
    const best = own.reduce((a, b) => (Math.hypot(b[0] - middle[0], b[1] - middle[1]) < Math.hypot(a[0] - middle[0], a[1] - middle[1]) ? b : a));
    const [x, y] = place(best);
    if (taken.some(([tx, ty]) => Math.abs(tx - x) < 14 && Math.abs(ty - y) < 12)) return null;
    taken.push([x, y]);
    return sv("text", { class: "strong", x: x + 7, y: y - 6, "font-weight": 700, style: "paint-order:stroke;stroke:var(--card);stroke-width:3px" }, String(cluster));
  });
}
