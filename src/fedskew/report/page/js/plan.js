// The plan of one round: every chain starts from a model and hands it from client to client; chain
// ends are merged per model.

const PLACE = { width: 46, height: 40, left: 96 }; // of a client in a chain, in pixels

const planFigure = {
  id: "plan",
  title: "The plan of a round",
  link: "Plan",
  needs: ["methods.runs.plan"],
  controls: [
    ...runControls("plan", () => {
      const last = Math.max(1, plannedRounds().length);
      App.state["plan-round"] = Math.min(App.state["plan-round"] || 1, last);
    }),
    {
      key: "plan-round",
      label: "round",
      kind: "range",
      text: (place) => String(plannedRounds()[place - 1] ?? place),
      options: () => [1, Math.max(1, plannedRounds().length)],
    },
  ],
  hint: planHint,
  draw: (width) => drawPlan(plannedChains(), width, clusterOf(chosenRun("plan").chosen)),
  csv() {
    const rows = plannedChains().flatMap(([slot, clients], chain) => {
      if (slot < 0) return [];
      return clients.map((client, place) => [plannedRound(), chain, slot, place, client]);
    });
    return [["round", "chain", "model", "place", "client"], ...rows];
  },
};

const plannedRounds = () => Object.keys(chosenRun("plan").plan).map(Number);
const plannedRound = () => plannedRounds()[App.state["plan-round"] - 1];

/** [slot, clients] of every chain; slot -1: how many chains are not kept in this file. */
const plannedChains = () => chosenRun("plan").plan[plannedRound()] || [];

function planHint() {
  if (plannedRound() === undefined) return "No round has been played yet.";
  const shown = plannedChains().filter(([slot]) => slot >= 0);
  const models = new Set(shown.map(([slot]) => slot)).size;
  const longest = Math.max(0, ...shown.map(([, clients]) => clients.length));
  const form =
    longest > 1
      ? `chains of up to ${longest} clients, one after the other`
      : "everyone in parallel";
  const played = (chosenRun("plan").series.round || []).length - 1;
  const isThinned = plannedRounds().length < played;
  return (
    `Round ${plannedRound()}: ${count(shown.length, "chain")} on ${count(models, "model")}, ` +
    `${form}.${isThinned ? " Not every round is kept in this file." : ""}`
  );
}

/** client -> its cluster in the raster's order, where that is known. */
function clusterOf({ clients, clusters }) {
  const known = new Map((clients || []).map((client, band) => [client, clusters[band]]));
  return (client) => (known.has(client) ? known.get(client) : -1);
}

function drawPlan(chains, width, cluster) {
  const isParallel = chains.every(([slot, clients]) => slot < 0 || clients.length === 1);
  const room = Math.max(1, Math.floor((width - PLACE.left - 10) / PLACE.width));
  const parts = [];
  const places = []; // of clients: {x, y, client}
  let y = 26;
  for (const [slot, clients] of isParallel ? byModel(chains) : chains) {
    if (slot < 0) {
      parts.push(sv("text", { x: 4, y: y + 4 }, `and ${clients[0]} more chains`));
      y += PLACE.height;
      continue;
    }
    parts.push(modelBox(slot, y));
    clients.forEach((client, i) => {
      const column = i % room;
      if (i && column === 0) y += PLACE.height; // too long for the page: a new row
      const x = PLACE.left + 18 + column * PLACE.width;
      if (!isParallel) parts.push(arrow(column ? x - PLACE.width + 15 : 76, x - 15, y));
      else if (i === 0) parts.push(arrow(76, x - 15, y));
      parts.push(clientCircle(x, y, client, colour(cluster(client))));
      places.push({ x, y, client });
    });
    y += PLACE.height + (isParallel ? 6 : 0);
  }
  const hover = (px, py) => {
    const away = (place) => Math.hypot(place.x - px, place.y - py);
    const near = nearestOf(places, away);
    if (!near || away(near) > 30) return null;
    return {
      lines: [clientName(near.client), clusterLine(cluster(near.client))],
      mark: [sv("circle", { class: "frame", cx: near.x, cy: near.y, r: 18 })],
    };
  };
  return {
    svg: canvas(width, Math.max(60, y), parts),
    hover,
    step: [PLACE.width, PLACE.height],
    start: [PLACE.left + 18, 26],
  };
}

/** In parallel a row per model holds all its clients: [slot, clients]. */
function byModel(chains) {
  const rows = new Map();
  for (const [slot, clients] of chains) {
    if (slot >= 0) rows.set(slot, [...(rows.get(slot) || []), clients[0]]);
  }
  return rows;
}

function modelBox(slot, y) {
  const size = { width: 72, height: 26, rx: 5 };
  const style = "fill:var(--paper);stroke:var(--line)";
  const text = { class: "strong", x: 40, y: y + 4, "text-anchor": "middle" };
  return [
    sv("rect", { x: 4, y: y - 13, ...size, style }),
    sv("text", text, `model ${slot}`),
  ];
}

function arrow(x1, x2, y) {
  const line = `M${x1} ${y}H${x2 - 5}m-5 -4l5 4l-5 4`;
  return sv("path", { class: "axis", d: line, style: "stroke:var(--soft)" });
}

function clientCircle(x, y, client, ink) {
  const style = `fill:${ink};fill-opacity:.25;stroke:${ink};stroke-width:2`;
  const text = { class: "strong", x, y: y + 4, "text-anchor": "middle", style: "font-size:11px" };
  return [sv("circle", { cx: x, cy: y, r: 15, style }), sv("text", text, String(client))];
}
