// The page from top to bottom. This file is run last.

/** Every part of the page, in order: a new figure is a file of its own and a name in this list. */
const FIGURES = [
  verdictSection,
  costFigure,
  curvesFigure,
  tableSection,
  federationSection,
  labelsFigure,
  mapFigure,
  chosenFigure,
  planFigure,
  ecdfFigure,
  ledgerFigure,
  failuresSection,
  againSection,
];

/** Whether the data holds what a path names; of lists on the way the first item counts. */
function isInData(path) {
  const step = (value, key) => (Array.isArray(value) ? value[0] : value)?.[key];
  return isGiven(path.split(".").reduce(step, App.data));
}

const possibleFigures = () => FIGURES.filter((spec) => spec.needs.every(isInData));

function build() {
  App.shown = possibleFigures().map(place);
  document.getElementById("main").replaceChildren(...inRows(App.shown));
  showContents(App.shown);
  showFoot();
}

/** The sections; neighbours of half the width share a row. */
function inRows(parts) {
  const rows = [];
  for (const { spec, section } of parts) {
    const last = rows.at(-1);
    if (!spec.half) rows.push(section);
    else if (last && last.className === "two") last.append(section);
    else rows.push(el("div", { class: "two" }, section));
  }
  return rows;
}

/** New data: figures may have become possible, all others show it. */
function refresh() {
  const shown = App.shown.map(({ spec }) => spec.id);
  const possible = possibleFigures().map((spec) => spec.id);
  keepingFocus(document.body, () => {
    if (shown.join() !== possible.join()) build();
    showHead();
    App.shown.forEach((part) => part.update());
  });
}

Theme.start();
refresh();
let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redrawAll, 120);
});
addEventListener("scroll", () => Tip.hide(), { passive: true });
if (App.data.live && location.protocol.startsWith("http")) setTimeout(() => follow(0), 1000);
document.documentElement.dataset.ready = "yes";
