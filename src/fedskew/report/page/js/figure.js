// One figure: heading, controls, drawing, hover by pointer and arrow keys, download as SVG and CSV.

const Figures = [];

function redrawAll() {
  Figures.forEach((figure) => figure.redraw());
}

/**
 * spec: id, title, hint() -> text, controls: [control], legend: true, or "references" for those too, draw(width) -> {svg, hover(x, y), step: [dx, dy], start: [x, y]}, csv() -> rows.
 * hover returns {lines, mark} (mark: SVG elements drawn on top) or null.
 */
function figure(spec) {
  const hint = el("p", { class: "hint" });
  const controls = el("div", { class: "controls" });
  const legend = el("ul", { class: "legend", "aria-label": "Methods shown" });
  const plot = el("div", { class: "plot" });
  const saveSvg = () => download(`${spec.id}.svg`, "image/svg+xml", svgText(plot.querySelector("svg")));
  const saveCsv = () => download(`${spec.id}.csv`, "text/csv", csvText(spec.csv()));
  const tools = el("div", { class: "tools" },
    el("button", { type: "button", onclick: saveSvg, "aria-label": `Download ${spec.title} as SVG` }, "SVG"),
    el("button", { type: "button", onclick: saveCsv, "aria-label": `Download ${spec.title} as CSV` }, "CSV"));
  const section = el("section", { id: spec.id, class: "figure" }, el("h2", {}, spec.title), hint, controls, spec.legend ? legend : null, plot, tools);

  const self = {
    section,
    /** New data: controls may have new options. */
    update() {
      syncControls(controls, spec.controls || [], self.redraw);
      if (spec.legend) syncLegend(legend, spec.legend);
      self.redraw();
    },
    redraw() {
      const width = Math.max(280, Math.floor(plot.clientWidth || section.clientWidth - 40));
      const drawn = spec.draw(width);
      hint.textContent = spec.hint ? spec.hint() : "";
      const mark = sv("g", { class: "mark" });
      drawn.svg.append(mark);
      drawn.svg.setAttribute("role", "img");
      drawn.svg.setAttribute("aria-label", `${spec.title}. ${hint.textContent}${drawn.hover ? " Arrow keys read values." : ""}`);
      const focused = plot.contains(document.activeElement);
      plot.replaceChildren(drawn.svg);
      if (drawn.hover) listen(drawn, mark);
      if (focused) drawn.svg.focus();
    },
  };
  Figures.push(self);
  return self;
}

function listen(drawn, mark) {
  const svg = drawn.svg;
  let [x, y] = drawn.start || [0, 0];
  svg.setAttribute("tabindex", "0");
  const clear = () => {
    mark.replaceChildren();
    Tip.hide();
  };
  const point = (px, py, clientX, clientY) => {
    const found = drawn.hover(px, py);
    if (!found) return clear();
    [x, y] = [px, py];
    mark.replaceChildren(...(found.mark || []));
    Tip.show(found.lines, clientX, clientY);
  };
  const byPointer = (event) => {
    const frame = svg.getBoundingClientRect();
    const zoom = svg.viewBox.baseVal.width / frame.width;
    point((event.clientX - frame.left) * zoom, (event.clientY - frame.top) * zoom, event.clientX, event.clientY);
  };
  svg.addEventListener("pointermove", byPointer);
  svg.addEventListener("pointerdown", byPointer);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Escape") return clear();
    if (!way) return;
    event.preventDefault();
    const [dx, dy] = drawn.step || [10, 10];
    const { width, height } = svg.viewBox.baseVal;
    const next = [Math.max(0, Math.min(width, x + way[0] * dx)), Math.max(0, Math.min(height, y + way[1] * dy))];
    const frame = svg.getBoundingClientRect();
    const zoom = frame.width / width;
    if (drawn.hover(...next)) point(...next, frame.left + next[0] * zoom, frame.top + next[1] * zoom);
  });
}

/** An SVG of a given size in its own pixels. */
function canvas(width, height, ...children) {
  return sv("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, ...children);
}

// ---------------------------------------------------------------- controls

/** control: {key, label, kind: "radio" | "select" | "range", options() -> [[value, text, disabled]] | [low, high] for a range}. */
function syncControls(host, controls, redraw) {
  for (const control of controls) {
    const options = control.options();
    const print = JSON.stringify(options);
    const id = `control-${control.key}`;
    const old = host.querySelector(`[data-control="${id}"]`);
    if (old && old.dataset.print === print) continue;
    settle(control, options);
    const changed = (value) => {
      App.state[control.key] = value;
      if (control.then) control.then();
      syncControls(host, controls, redraw);
      redraw();
    };
    const made = { radio, select, range }[control.kind](control, options, changed, id);
    made.dataset.control = id;
    made.dataset.print = print;
    made.hidden = control.kind === "range" ? options[1] <= options[0] : options.length < 2;
    old ? old.replaceWith(made) : host.append(made);
  }
}

/** Keep the chosen value if it is still there, else the first that can be chosen. */
function settle(control, options) {
  const value = App.state[control.key];
  if (control.kind === "range") {
    const before = value === undefined ? (control.first ? control.first() : options[0]) : value;
    App.state[control.key] = Math.max(options[0], Math.min(options[1], before));
  } else if (!options.some(([v, , off]) => v === value && !off)) {
    App.state[control.key] = (options.find(([, , off]) => !off) || options[0] || [null])[0];
  }
}

function radio(control, options, changed, id) {
  const buttons = options.map(([value, text, off]) =>
    el("label", {}, el("input", { type: "radio", name: id, value, disabled: off, checked: App.state[control.key] === value, onchange: () => changed(value) }), text));
  return el("fieldset", {}, el("legend", {}, control.label), buttons);
}

function select(control, options, changed) {
  const box = el("select", { onchange: () => changed(options[box.selectedIndex][0]) },
    options.map(([value, text]) => el("option", { selected: App.state[control.key] === value }, text)));
  return el("label", {}, el("span", { class: "soft" }, control.label), box);
}

function range(control, [low, high], changed) {
  const text = control.text || String;
  const shown = el("output", {}, text(App.state[control.key]));
  const slider = el("input", { type: "range", min: low, max: high, step: 1, value: App.state[control.key], oninput: () => {
    shown.textContent = text(Number(slider.value));
    changed(Number(slider.value));
  } });
  return el("label", {}, el("span", { class: "soft" }, control.label), slider, shown);
}

/** Buttons that hide and show methods in all figures that have a legend. */
function syncLegend(host, kind) {
  host.dataset.kind = kind;
  const references = kind === "references" ? App.data.references : [];
  const looks = [...App.data.methods.map((_, number) => sample(colour(number), dash(number))), ...references.map((_, number) => sample(REFERENCE_COLOUR, referenceDash(number)))];
  host.replaceChildren(...[...App.data.methods, ...references].map((method, number) =>
    el("li", {}, el("button", { type: "button", "aria-pressed": String(!App.hidden.has(method.label)), onclick: () => {
      App.hidden.has(method.label) ? App.hidden.delete(method.label) : App.hidden.add(method.label);
      document.querySelectorAll(".legend").forEach((other) => syncLegend(other, other.dataset.kind));
      redrawAll();
    } }, looks[number], method.label))));
}

/** A piece of a line as it is drawn: dashes "7 4" are 7 px of it, then 4 px of nothing. */
function sample(stroke, dashes) {
  let end = 0;
  const stops = (dashes || "22 0").split(" ").map(Number).map((length, i) => `${i % 2 ? "transparent" : stroke} ${end}px ${(end += length)}px`);
  return el("span", { class: "swatch", style: `background:repeating-linear-gradient(90deg, ${stops.join(", ")})` });
}

/** Controls that choose one run: method and seed. */
function runControls(prefix, then) {
  const method = () => App.data.methods[App.state[`${prefix}-method`] || 0] || App.data.methods[0];
  return [
    { key: `${prefix}-method`, label: "method", kind: "select", then, options: () => App.data.methods.map((m, i) => [i, m.label]) },
    { key: `${prefix}-seed`, label: "seed", kind: "select", then, options: () => method().runs.map((r) => [r.seed, String(r.seed)]) },
  ];
}

function chosenRun(prefix) {
  const method = App.data.methods[App.state[`${prefix}-method`]] || App.data.methods[0];
  return method.runs.find((run) => run.seed === App.state[`${prefix}-seed`]) || method.runs[0];
}

/** A client's name where names are known. */
function clientName(client) {
  const names = App.data.federation && App.data.federation.names;
  return names && names[client] !== undefined && names[client] !== String(client) ? `${names[client]} (client ${client})` : `client ${client}`;
}
