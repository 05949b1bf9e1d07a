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
      ? `${count(shown.length, "chain")} on ${count(models, "model")}, ` +
        `chains of up to ${longest} clients, one after the other`
      : `${count(shown.length, "client")} in parallel on ${count(models, "model")}, ` +
        "each from the server and back to it";
  const played = (chosenRun("plan").series.round || []).length - 1;
  const isThinned = plannedRounds().length < played;
  return (
    `Round ${plannedRound()}: ${form}.` +
    `${isThinned ? " Not every round is kept in this file." : ""}`
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
  const rows = isParallel ? byModel(chains) : chains;
  const parts = [];
  const places = []; // of clients: {x, y, client}
  let y = 26;
  for (const [slot, clients] of rows) {
    if (slot < 0) {
      parts.push(sv("text", { x: 4, y: y + 4 }, `and ${clients[0]} more chains`));
      y += PLACE.height;
      continue;
    }
    const drawn = isParallel ? sideBySide(clients, room, y) : oneByOne(clients, room, y);
    parts.push(drawn.ways, modelBox(slot, y));
    for (const { x, y: at, client } of drawn.places) {
      parts.push(clientCircle(x, at, client, colour(cluster(client))));
    }
    places.push(...drawn.places);
    y = drawn.bottom;
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
    hover: places.length ? hover : null,
    stops: places.map(({ x, y: at }) => [x, at]),
  };
}

/** A chain: each client hands the model on to the next one. {places, ways, bottom}. */
function oneByOne(clients, room, top) {
  const places = clients.map((client, i) => ({
    client,
    x: PLACE.left + 18 + (i % room) * PLACE.width,
    y: top + Math.floor(i / room) * PLACE.height,
  }));
  const ways = places.map(({ x, y }, i) => {
    return arrow(i % room ? x - PLACE.width + 15 : 76, x - 15, y);
  });
  return { places, ways, bottom: places.at(-1).y + PLACE.height };
}

/** In parallel: one line leads from the model past all its clients, and each gets it from there. */
function sideBySide(clients, room, top) {
  const high = PLACE.height + 22; // of a row: the line stands above the circles
  const places = clients.map((client, i) => ({
    client,
    x: PLACE.left + 18 + (i % room) * PLACE.width,
    y: top + 30 + Math.floor(i / room) * high,
  }));
  const rows = Math.ceil(clients.length / room);
  const stem = `M76 ${top}H${PLACE.left - 8}V${top + (rows - 1) * high}`;
  const lines = Array.from({ length: rows }, (_, row) => {
    const last = places[Math.min(clients.length, (row + 1) * room) - 1];
    return `M${PLACE.left - 8} ${top + row * high}H${last.x}`;
  });
  const drops = places.map(({ x, y }) => `M${x} ${y - 30}V${y - 17}m-4 -5l4 5l4 -5`);
  const line = { class: "axis", d: [stem, ...lines, ...drops].join(""), style: WAY };
  return { places, ways: sv("path", line), bottom: places.at(-1).y + 26 };
}

const WAY = "stroke:var(--soft)"; // of a model to a client

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
  return sv("path", { class: "axis", d: line, style: WAY });
}

function clientCircle(x, y, client, ink) {
  const style = `fill:${ink};fill-opacity:.25;stroke:${ink};stroke-width:2`;
  const text = { class: "strong", x, y: y + 4, "text-anchor": "middle", style: "font-size:11px" };
  return [sv("circle", { cx: x, cy: y, r: 15, style }), sv("text", text, String(client))];
}
