// Map of the clients: near means alike (principal components of the square roots of the label
// shares).

const mapFigure = {
  id: "map",
  title: "Map of the clients",
  half: true,
  needs: ["federation.map"],
  hint() {
    const [first, second] = App.data.federation.map.explained;
    const percent = Math.round(100 * (first + second));
    return (
      "Near means alike; colour and number: cluster. " +
      `The axes show ${percent} % of the differences.`
    );
  },
  draw: (width) => drawMap(App.data.federation.map, width),
  csv: () => [["x", "y", "cluster", "clients", "one of them"], ...App.data.federation.map.dots],
};

function drawMap(map, width) {
  const dots = map.dots.map(([x, y, cluster, size, client]) => ({ x, y, cluster, size, client }));
  const isCrowded = map.clients > 1500;
  const height = within(width * 0.8, 260, 420);
  const place = placing(dots, width, height);
  const largest = Math.max(...dots.map((dot) => dot.size));
  const radius = ({ size }) => {
    return isCrowded ? 2 + 3 * Math.sqrt(size / largest) : Math.min(18, 6 * Math.sqrt(size));
  };
  const circle = (dot) => {
    const [cx, cy] = place(dot).map((pixel) => pixel.toFixed(1));
    const edge = `stroke:var(--card);stroke-width:${isCrowded ? 0 : 1}`;
    const style = `fill:${colour(dot.cluster)};fill-opacity:.75;${edge}`;
    return sv("circle", { cx, cy, r: radius(dot).toFixed(1), style });
  };
  const hover = (px, py) => {
    const away = (dot) => Math.hypot(place(dot)[0] - px, place(dot)[1] - py);
    const dot = nearestOf(dots, away);
    if (away(dot) > 60) return null;
    const [cx, cy] = place(dot);
    const name = clientName(dot.client);
    const who = dot.size > 1 ? `${count(dot.size, "client")}, among them ${name}` : name;
    return {
      lines: [who, clusterLine(dot.cluster)],
      mark: [sv("circle", { class: "frame", cx, cy, r: radius(dot) + 3 })],
    };
  };
  return {
    svg: canvas(width, height, dots.map(circle), clusterNumbers(dots, place)),
    hover,
    step: [20, 20],
    start: [width / 2, height / 2],
  };
}

/** Both axes to one scale, the dots in the middle. */
function placing(dots, width, height) {
  const ends = (key) => {
    const values = dots.map((dot) => dot[key]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [x0, x1] = ends("x");
  const [y0, y1] = ends("y");
  const zoom = Math.min((width - 60) / (x1 - x0 || 1), (height - 60) / (y1 - y0 || 1));
  return ({ x, y }) => [
    width / 2 + (x - (x0 + x1) / 2) * zoom,
    height / 2 - (y - (y0 + y1) / 2) * zoom,
  ];
}

/** The number of every cluster at its most central dot; the 18 largest clusters. */
function clusterNumbers(dots, place) {
  const clusters = [...new Set(dots.map((dot) => dot.cluster))].filter((cluster) => cluster >= 0);
  const groups = clusters.map((cluster) => dots.filter((dot) => dot.cluster === cluster));
  const clients = (group) => sumOf(group.map((dot) => dot.size));
  const largest = groups.sort((one, other) => clients(other) - clients(one)).slice(0, 18);
  const taken = [];
  return largest.map((group) => {
    const [x, y] = place(mostCentral(group));
    if (taken.some(([tx, ty]) => Math.abs(tx - x) < 14 && Math.abs(ty - y) < 12)) return null;
    taken.push([x, y]);
    const looks = { class: "strong", x: x + 7, y: y - 6, "font-weight": 700, style: HALO };
    return sv("text", looks, String(group[0].cluster));
  });
}

function mostCentral(dots) {
  const x = sumOf(dots.map((dot) => dot.x)) / dots.length;
  const y = sumOf(dots.map((dot) => dot.y)) / dots.length;
  return nearestOf(dots, (dot) => Math.hypot(dot.x - x, dot.y - y));
}
