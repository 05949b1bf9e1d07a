// Elements, colours, and what the whole page shares.
// Text from the data only ever becomes textContent: no markup in it can come alive.

const App = {
  data: JSON.parse(document.getElementById("data").textContent),
  state: {}, // key of a control -> its value
  hidden: new Set(), // labels of methods that are switched off
  shown: [], // the figures on the page
};

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
    else if (value !== false && isGiven(value)) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter(isGiven));
  return node;
}

const isGiven = (value) => value !== null && value !== undefined;

/** A line in small print. */
const hintLine = (text) => el("p", { class: "hint" }, text);

/** A name that may be broken after an underscore, and nowhere else while there is room. */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));
}

// -------------------------------- colours

const colour = (number) => (number < 0 ? "var(--none)" : `var(--c${number % 9})`);
const HALO = "paint-order:stroke;stroke:var(--card);stroke-width:3px"; // of text on a drawing

/** By nines; a method that coincides with one before it is drawn over that one, with gaps. */
function dash(number) {
  const before = App.data.methods.slice(0, number).map((method) => method.label);
  if (App.data.methods[number].twins.some((twin) => before.includes(twin))) return "8 8";
  return number < 9 ? null : number < 18 ? "6 3" : "2 3";
}
const REFERENCE_COLOUR = "var(--soft)";
const referenceDash = (number) => ["7 4", "1.5 3.5", "9 3 2 3", null][number % 4];

/** The value of a CSS variable now, for canvases. */
function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// -------------------------------- clients and clusters

/** A client's name where names are known. */
function clientName(client) {
  const names = App.data.federation && App.data.federation.names;
  const name = names && names[client];
  const isNamed = isGiven(name) && name !== String(client);
  return isNamed ? `${name} (client ${client})` : `client ${client}`;
}

/** A line of a tooltip that names a cluster. */
function clusterLine(cluster) {
  return [colour(cluster), cluster < 0 ? "in no cluster" : `cluster ${cluster}`];
}
