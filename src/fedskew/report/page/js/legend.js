// Buttons that hide and show methods, in all figures that have a legend at once. A method that a
// figure has nothing of is grey there, with the reason.

function syncLegend(host, spec) {
  const entries = legendLines(spec).map((line) => legendEntry(line));
  keepingFocus(host, () => host.replaceChildren(...entries));
}

/** {method, stroke, dashes, reason} of everything that the legend of a figure names. */
function legendLines({ legend, absent }) {
  const { methods, references } = App.data;
  const line = (method, stroke, dashes) => ({ method, stroke, dashes, reason: absent(method) });
  return [
    ...methods.map((method, i) => line(method, colour(i), dash(i))),
    ...(legend === "references" ? references : []).map((method, i) => {
      return line(method, REFERENCE_COLOUR, referenceDash(i));
    }),
  ];
}

function legendEntry({ method, stroke, dashes, reason }) {
  const { label, twins = [] } = method;
  const sample = lineSample(stroke, dashes);
  if (reason) {
    return el("li", {}, el("span", { class: "absent" }, sample, label, el("small", {}, reason)));
  }
  const onclick = () => {
    if (!App.hidden.delete(label)) App.hidden.add(label);
    redrawAll();
  };
  const looks = { type: "button", "aria-pressed": String(!App.hidden.has(label)) };
  const same = twins.length ? el("small", {}, `same as ${twins.join(", ")}`) : null;
  return el("li", {}, el("button", { ...looks, onclick }, sample, label, same));
}

/** A piece of a line as it is drawn: dashes "7 4" are 7 px of it, then 4 px of nothing. */
function lineSample(stroke, dashes) {
  const lengths = (dashes || "22 0").split(" ").map(Number);
  let end = 0;
  const stops = lengths.map((length, i) => {
    const begin = end;
    end += length;
    return `${i % 2 ? "transparent" : stroke} ${begin}px ${end}px`;
  });
  const background = `background:repeating-linear-gradient(90deg, ${stops.join(", ")})`;
  return el("span", { class: "swatch", style: background });
}

/** The legend as a drawing, for saved files: {text, stroke, dashes, thick}, in as many lines as
 * they need -> [elements, the last line]. */
function drawnKeys(keys, width, top) {
  let x = 4;
  let y = top;
  const drawn = keys.map(({ text, stroke, dashes, thick = 2 }) => {
    const wide = 36 + text.length * 7.2;
    if (x + wide > width && x > 4) {
      x = 4;
      y += 20;
    }
    const left = x;
    x += wide;
    const long = thick > 2 ? 12 : 22;
    const style = `stroke:${stroke};stroke-width:${thick};fill:none`;
    const line = { d: `M${left} ${y - 4}h${long}`, style, "stroke-dasharray": dashes };
    return [sv("path", line), sv("text", { x: left + long + 5, y }, text)];
  });
  return [drawn, y];
}
