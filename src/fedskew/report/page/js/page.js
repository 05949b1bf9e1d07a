// Elements, the tooltip and the theme. Text from the data only ever becomes textContent: no markup in it can come alive.

const App = { data: JSON.parse(document.getElementById("data").textContent), state: {}, hidden: new Set(), updates: [] };

/** An HTML element; children are elements or texts. */
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function sv(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** A name that may be broken after an underscore, and nowhere else while there is room. */
const breakable = (name) => name.split(/(?<=_)/).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));

const colour = (number) => (number < 0 ? "var(--none)" : `var(--c${number % 9})`);
const dash = (number) => (number < 9 ? null : number < 18 ? "6 3" : "2 3");
const REFERENCE_COLOUR = "var(--soft)";
const referenceDash = (number) => ["7 4", "1.5 3.5", "9 3 2 3", null][number % 4];

/** The value of a CSS variable now, for canvases. */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---------------------------------------------------------------- tooltip

const Tip = {
  box: document.getElementById("tip"),
  /** Lines are texts, or [colour, text]. */
  show(lines, x, y) {
    this.box.replaceChildren(
      ...lines.map((line) =>
        Array.isArray(line) ? el("div", {}, el("span", { class: "square", style: `background:${line[0]}` }), line[1]) : el("div", {}, line),
      ),
    );
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    this.box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
    this.box.style.top = `${y + height + 20 > innerHeight ? Math.max(4, y - height - 12) : y + 14}px`;
  },
  hide() {
    this.box.hidden = true;
  },
};

// ---------------------------------------------------------------- theme

const Theme = {
  read() {
    try {
      return localStorage.getItem("fedskew-theme");
    } catch {
      return null; // pages opened from a file may have no storage
    }
  },
  system: matchMedia("(prefers-color-scheme: dark)"),
  now: () => document.documentElement.dataset.theme,
  set(theme) {
    document.documentElement.dataset.theme = theme;
    document.querySelectorAll(".theme").forEach((button) => (button.textContent = theme === "dark" ? "Light theme" : "Dark theme"));
    redrawAll();
  },
  toggle() {
    const theme = Theme.now() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("fedskew-theme", theme);
    } catch {
      /* then it holds for this visit */
    }
    Theme.set(theme);
  },
  start() {
    document.documentElement.dataset.theme = this.read() || (this.system.matches ? "dark" : "light");
    this.system.addEventListener("change", (event) => this.read() || Theme.set(event.matches ? "dark" : "light"));
  },
};

// ---------------------------------------------------------------- files

function download(name, type, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Rows as CSV; a text that a spreadsheet would read as a formula gets a quote in front. */
function csvText(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    let text = typeof value === "number" ? String(Number(value.toPrecision(12))) : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];

/** A figure as a file of its own: what the style sheet says is written into every element. */
function svgText(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    node.setAttribute("style", STYLES.map((key) => `${key}:${style.getPropertyValue(key)}`).join(";"));
  });
  copy.querySelectorAll(".mark").forEach((node) => node.remove());
  copy.prepend(sv("rect", { width: "100%", height: "100%", style: `fill:${css("--card")}` }));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}
