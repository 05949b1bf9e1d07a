// One part of the page: a heading with elements below it, or with a drawing that answers.
//
// Every part is described by an object with
//   id        of its section, and of the files it saves
//   title     its heading
//   link      its name in the contents; without one it has no entry there
//   half      true: it shares a row with a neighbour that is half too
//   needs     paths into the data, e.g. "methods.runs.plan"; where one leads nowhere,
//             the part is left out
// and either
//   parts()   -> the elements below the heading
// or, for a drawing,
//   hint()       -> a line below the heading
//   controls     see controls.js
//   legend       true: methods can be switched off; "references": those too
//   absent(method) -> why the legend's figure has nothing of it, "" if it has
//   draw(width)  -> {svg, hover(x, y), step: [dx, dy], start: [x, y]}; hover gives {lines, mark}
//                (mark: SVG elements drawn on top) or null; instead of step and start there may be
//                stops: the places [x, y] that arrow keys go through
//   csv()        -> rows

/** A part of the page as it stands there: {id, section, update(), redraw()}. */
function place(spec) {
  return spec.draw ? placeDrawing(spec) : placeParts(spec);
}

function placeParts(spec) {
  const section = el("section", { id: spec.id });
  const update = () => section.replaceChildren(el("h2", {}, spec.title), ...spec.parts());
  return { spec, section, update, redraw: () => {} };
}

function placeDrawing(spec) {
  const hint = hintLine("");
  const controls = el("div", { class: "controls" });
  const legend = el("ul", { class: "legend", "aria-label": "Methods shown" });
  const plot = el("div", { class: "plot" });
  const section = el(
    "section",
    { id: spec.id, class: "figure" },
    el("h2", {}, spec.title),
    hint,
    controls,
    spec.legend ? legend : null,
    plot,
    drawingTools(spec, plot),
  );

  const kept = {}; // where the arrow keys are
  const redraw = () => {
    const width = Math.max(280, Math.floor(plot.clientWidth || section.clientWidth - 40));
    const drawn = spec.draw(width);
    hint.textContent = spec.hint();
    const isFocused = plot.contains(document.activeElement);
    plot.replaceChildren(drawn.svg);
    describe(drawn, `${spec.title}. ${hint.textContent}`, kept);
    if (isFocused) drawn.svg.focus({ preventScroll: true });
    if (spec.legend) syncLegend(legend, spec);
  };
  // new data: controls may have new options
  const update = () => {
    syncControls(controls, spec.controls || [], redraw);
    redraw();
  };
  return { spec, section, update, redraw };
}

function drawingTools(spec, plot) {
  const svg = () => plot.querySelector("svg");
  const saveSvg = () => download(`${spec.id}.svg`, "image/svg+xml", svgText(svg(), spec));
  const saveCsv = () => download(`${spec.id}.csv`, "text/csv", csvText(spec.csv()));
  const button = (kind, onclick) => {
    const label = `Download ${spec.title} as ${kind}`;
    return el("button", { type: "button", onclick, "aria-label": label }, kind);
  };
  return el("div", { class: "tools" }, button("SVG", saveSvg), button("CSV", saveCsv));
}

/** What a drawing says to those who cannot see it, and what answers pointer and keys. */
function describe(drawn, text, kept) {
  const mark = sv("g", { class: "mark" });
  drawn.svg.append(mark);
  drawn.svg.setAttribute("role", "img");
  drawn.svg.setAttribute("aria-label", text + (drawn.hover ? " Arrow keys read values." : ""));
  if (drawn.hover) listen(drawn, mark, kept);
}

function redrawAll() {
  App.shown.forEach((part) => part.redraw());
}

/** An SVG of a given size in its own pixels. */
function canvas(width, height, ...children) {
  return sv("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, ...children);
}

/** A drawing that only says why there is none. */
function onlyText(width, text) {
  return { svg: canvas(width, 40, sv("text", { x: 4, y: 24 }, text)) };
}
