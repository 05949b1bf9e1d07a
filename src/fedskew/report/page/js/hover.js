// Values under the pointer, and under a place that the arrow keys move.

const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function listen(drawn, mark) {
  const svg = drawn.svg;
  let [x, y] = drawn.start || [0, 0];
  svg.setAttribute("tabindex", "0");

  const clear = () => {
    mark.replaceChildren();
    Tip.hide();
  };
  const point = (px, py, clientX, clientY) => {
    const shown = drawn.hover(px, py);
    if (!shown) return clear();
    [x, y] = [px, py];
    mark.replaceChildren(...(shown.mark || []));
    Tip.show(shown.lines, clientX, clientY);
  };
  const byPointer = (event) => {
    const frame = svg.getBoundingClientRect();
    const zoom = svg.viewBox.baseVal.width / frame.width;
    const px = (event.clientX - frame.left) * zoom;
    const py = (event.clientY - frame.top) * zoom;
    point(px, py, event.clientX, event.clientY);
  };
  const byKey = (event) => {
    if (event.key === "Escape") return clear();
    const way = WAYS[event.key];
    if (!way) return;
    event.preventDefault();
    const [dx, dy] = drawn.step || [10, 10];
    const { width, height } = svg.viewBox.baseVal;
    const px = within(x + way[0] * dx, 0, width);
    const py = within(y + way[1] * dy, 0, height);
    const frame = svg.getBoundingClientRect();
    const zoom = frame.width / width;
    if (drawn.hover(px, py)) point(px, py, frame.left + px * zoom, frame.top + py * zoom);
  };

  svg.addEventListener("pointermove", byPointer);
  svg.addEventListener("pointerdown", byPointer);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", byKey);
}
