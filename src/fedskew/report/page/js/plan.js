// The plan of one round: every chain starts from a model and hands it from client to client; chain ends are merged per model.

function planFigure() {
  const rounds = () => Object.keys(chosenRun("plan").plan).map(Number);
  const round = () => rounds()[App.state["plan-round"] - 1];
  const chains = () => chosenRun("plan").plan[round()] || [];
  const kept = () => rounds().length < (chosenRun("plan").series.round || []).length - 1;
  const own = runControls("plan", () => { App.state["plan-round"] = Math.min(App.state["plan-round"] || 1, Math.max(1, rounds().length)); });
  return figure({
    id: "plan",
    title: "The plan of a round",
    controls: [...own, { key: "plan-round", label: "round", kind: "range", text: (place) => String(rounds()[place - 1] ?? place), options: () => [1, Math.max(1, rounds().length)] }],
    hint: () => {
      const shown = chains().filter(([slot]) => slot >= 0);
      const models = new Set(shown.map(([slot]) => slot)).size, longest = Math.max(0, ...shown.map(([, clients]) => clients.length));
      const form = longest > 1 ? `chains of up to ${longest} clients, one after the other` : "everyone in parallel";
      return round() === undefined ? "No round has been played yet." : `Round ${round()}: ${count(shown.length, "chain")} on ${count(models, "model")}, ${form}.${kept() ? " Not every round is kept in this file." : ""}`;
    },
    draw: (width) => drawPlan(chains(), width, clusterOf(chosenRun("plan").chosen)),
    csv: () => [["round", "chain", "model", "place", "client"], ...chains().flatMap(([slot, clients], i) => (slot < 0 ? [] : clients.map((client, place) => [round(), i, slot, place, client])))],
  });
}

/** client -> its cluster in the raster's order, where that is known. */
function clusterOf(raster) {
  const found = new Map();
  if (raster.clients) raster.clients.forEach((client, band) => found.set(client, raster.clusters[band]));
  return (client) => (found.has(client) ? found.get(client) : -1);
}

function drawPlan(chains, width, cluster) {
  const parallel = chains.every(([slot, clients]) => slot < 0 || clients.length === 1);
  const wide = 46, tall = 40, left = 96, room = Math.max(1, Math.floor((width - left - 10) / wide));
  const parts = [], spots = [];
  let y = 26;
  const node = (x, client) => {
    parts.push(sv("circle", { cx: x, cy: y, r: 15, style: `fill:${colour(cluster(client))};fill-opacity:.25;stroke:${colour(cluster(client))};stroke-width:2` }));
    parts.push(sv("text", { class: "strong", x, y: y + 4, "text-anchor": "middle", style: "font-size:11px" }, String(client)));
    spots.push([x, y, client]);
  };
  const arrow = (x1, x2) => parts.push(sv("path", { class: "axis", d: `M${x1} ${y}H${x2 - 5}m-5 -4l5 4l-5 4`, style: "stroke:var(--soft)" }));
  const model = (slot) => {
    parts.push(sv("rect", { x: 4, y: y - 13, width: 72, height: 26, rx: 5, style: "fill:var(--paper);stroke:var(--line)" }));
    parts.push(sv("text", { class: "strong", x: 40, y: y + 4, "text-anchor": "middle" }, `model ${slot}`));
  };
  // In parallel a row per model holds all its clients; else a row per chain, wrapped where it is too long for the page.
  const rows = parallel ? [...Map.groupBy ? Map.groupBy(chains.filter(([s]) => s >= 0), ([s]) => s) : grouped(chains)].map(([slot, own]) => [slot, own.map(([, clients]) => clients[0])]) : chains;
  for (const [slot, clients] of rows) {
    if (slot < 0) {
      parts.push(sv("text", { x: 4, y: y + 4 }, `and ${clients[0]} more chains`));
      y += tall;
      continue;
    }
    model(slot);
    clients.forEach((client, i) => {
      if (i && i % room === 0) y += tall;
      const x = left + 18 + (i % room) * wide;
      if (!parallel) arrow(i % room ? x - wide + 15 : 76, x - 15);
      else if (i === 0) arrow(76, x - 15);
      node(x, client);
    });
    y += tall + (parallel ? 6 : 0);
  }
  const hover = (px, py) => {
    const near = spots.map((s) => [Math.hypot(s[0] - px, s[1] - py), s]).reduce((a, b) => (b[0] < a[0] ? b : a), [Infinity]);
    if (near[0] > 30) return null;
    const [x, cy, client] = near[1];
    return { lines: [clientName(client), [colour(cluster(client)), cluster(client) < 0 ? "in no cluster" : `cluster ${cluster(client)}`]], mark: [sv("circle", { class: "frame", cx: x, cy, r: 18 })] };
  };
  return { svg: canvas(width, Math.max(60, y), parts), hover, step: [wide, tall], start: [left + 18, 26] };
}

function grouped(chains) {
  const found = new Map();
  for (const chain of chains) if (chain[0] >= 0) found.set(chain[0], [...(found.get(chain[0]) || []), chain]);
  return found;
}
