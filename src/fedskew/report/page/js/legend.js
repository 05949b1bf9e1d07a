// Buttons that hide and show methods, in all figures that have a legend at once.

function syncLegend(host, kind) {
  host.dataset.kind = kind;
  const references = kind === "references" ? App.data.references : [];
  const methods = App.data.methods.map((method, number) => {
    return legendEntry(method, lineSample(colour(number), dash(number)));
  });
  const others = references.map((method, number) => {
    return legendEntry(method, lineSample(REFERENCE_COLOUR, referenceDash(number)));
  });
  host.replaceChildren(...methods, ...others);
}

function legendEntry({ label }, sample) {
  const isShown = String(!App.hidden.has(label));
  const onclick = () => {
    if (!App.hidden.delete(label)) App.hidden.add(label);
    for (const legend of document.querySelectorAll(".legend")) {
      syncLegend(legend, legend.dataset.kind);
    }
    redrawAll();
  };
  const looks = { type: "button", "aria-pressed": isShown };
  return el("li", {}, el("button", { ...looks, onclick }, sample, label));
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
