// Values under the pointer, and under a place that the arrow keys move.

const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** `kept` holds the place of the arrow keys from one drawing of a figure to the next. */
function listen(drawn, mark, kept) {
  const svg = drawn.svg;
  svg.setAttribute("tabindex", "0");

  const clear = () => {
    mark.replaceChildren();
    Tip.hide();
  };
  const point = (px, py, clientX, clientY) => {
    const shown = drawn.hover(px, py);
    if (!shown) return clear();
    kept.place = [px, py];
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
    const { width, height } = svg.viewBox.baseVal;
    const [px, py] = nextPlace(drawn, kept.place, way, width, height);
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

function nextPlace({ stops, step, start }, place, [right, down], width, height) {
  if (stops) {
    if (!place) return stops[0];
    const away = ([x, y]) => Math.hypot(x - place[0], y - place[1]);
    const next = stops.indexOf(nearestOf(stops, away)) + (right || down);
    return stops[within(next, 0, stops.length - 1)];
  }
  const [x, y] = place || start || [0, 0];
  const [dx, dy] = step || [10, 10];
  return [within(x + right * dx, 0, width), within(y + down * dy, 0, height)];
}
