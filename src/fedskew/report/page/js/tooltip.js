// The box beside the pointer that shows values.

const Tip = {
  box: document.getElementById("tip"),

  /** Lines are texts, or [colour, text]. */
  show(lines, x, y) {
    this.box.replaceChildren(...lines.map(tipLine));
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const isLow = y + height + 20 > innerHeight;
    const left = Math.max(4, Math.min(x + 14, innerWidth - width - 4));
    const top = isLow ? Math.max(4, y - height - 12) : y + 14;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${top}px`;
  },

  hide() {
    this.box.hidden = true;
  },
};

function tipLine(line) {
  if (!Array.isArray(line)) return el("div", {}, line);
  const [fill, text] = line;
  return el("div", {}, el("span", { class: "square", style: `background:${fill}` }), text);
}
