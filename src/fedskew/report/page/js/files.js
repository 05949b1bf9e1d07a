// What can be saved: figures as SVG, numbers as CSV.

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The row below a table with a button that saves it. */
function csvTools(name, rows) {
  const save = () => download(`${name}.csv`, "text/csv", csvText(rows()));
  return el("div", { class: "tools" }, el("button", { type: "button", onclick: save }, "CSV"));
}

const csvText = (rows) => rows.map((row) => row.map(csvCell).join(",") + "\r\n").join("");

/** A text that a spreadsheet would read as a formula gets a quote in front. */
function csvCell(value) {
  if (!isGiven(value)) return "";
  let text = typeof value === "number" ? String(Number(value.toPrecision(12))) : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "opacity",
  "paint-order", // else the halo of a text hides it
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
];

/** A figure as a file of its own, with the names that the page has in its legend. */
function svgText(svg, spec) {
  if (!spec.legend) return standalone(svg);
  const shown = legendLines(spec).filter(({ method, reason }) => {
    return !reason && !App.hidden.has(method.label);
  });
  const named = shown.map((line) => ({ ...line, text: line.method.label }));
  const { width, height } = svg.viewBox.baseVal;
  const [keys, bottom] = drawnKeys(named, width, height + 14);
  const below = sv("g", {}, keys);
  svg.append(below); // while its style is read
  const text = standalone(svg, bottom + 10);
  below.remove();
  return text;
}

/** What the style sheet says is written into every element. */
function standalone(svg, height) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    const written = STYLES.map((key) => `${key}:${style.getPropertyValue(key)}`);
    node.setAttribute("style", written.join(";"));
  });
  copy.querySelectorAll(".mark").forEach((node) => node.remove());
  copy.prepend(sv("rect", { width: "100%", height: "100%", style: `fill:${css("--card")}` }));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (height) {
    copy.setAttribute("viewBox", `0 0 ${svg.viewBox.baseVal.width} ${height}`);
    copy.setAttribute("height", height);
  }
  return new XMLSerializer().serializeToString(copy);
}
