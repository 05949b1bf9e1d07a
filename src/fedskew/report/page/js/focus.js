// Who reads with the keyboard stays where they are when a part of the page is made again.

const FOCUSABLE = "a, button, input, select, summary, [tabindex]";

/** Do something that replaces elements below `host`; focus and opened details stay. */
function keepingFocus(host, replace) {
  const focused = host.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  const opened = [...host.querySelectorAll("details[open]")].map(placeOf);
  replace();
  for (const place of opened) {
    const details = elementAt(place);
    if (details) details.open = true;
  }
  const again = focused && elementAt(focused);
  if (again && again !== document.activeElement) again.focus({ preventScroll: true });
}

/** [id of what it stands in, its kind, its number among those] of an element. */
function placeOf(element) {
  const home = element.closest("[id]");
  if (!home) return null;
  const kind = element.tagName === "DETAILS" ? "details" : FOCUSABLE;
  return [home.id, kind, [...home.querySelectorAll(kind)].indexOf(element)];
}

function elementAt(place) {
  if (!place) return null;
  const [id, kind, number] = place;
  const home = document.getElementById(id);
  return home ? home.querySelectorAll(kind)[number] : null;
}
