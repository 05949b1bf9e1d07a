// What stands around the figures: head, contents and foot.

function showHead() {
  const { methods, shared, notes, live } = App.data;
  const runs = methods.flatMap((method) => method.runs);
  const finished = runs.filter((run) => run.finished).length;
  const seeds = Math.max(...methods.map((method) => method.runs.length));
  const size = `${count(methods.length, "method")}, ${count(seeds, "seed")}`;
  const title = methods.map((method) => method.label).join(", ");
  const notice = (text, id) => el("p", { class: "notice", id }, text);
  const theme = { type: "button", class: "theme", onclick: Theme.toggle };
  document.getElementById("top").replaceChildren(
    el(
      "div",
      {},
      el("h1", {}, title),
      el("p", {}, shared),
      el("p", { class: "soft" }, `${size}; ${finished} of ${count(runs.length, "run")} finished`),
      notes.map((note) => notice(note)),
      live ? notice("Live: this page follows the runs.", "live") : null,
    ),
    el("button", theme, Theme.switchText()),
  );
}

function showContents(parts) {
  const linked = parts.filter(({ spec }) => spec.link);
  const entries = linked.map(({ spec }) => {
    return el("li", {}, el("a", { href: `#${spec.id}` }, spec.link));
  });
  document.getElementById("contents").replaceChildren(el("ul", {}, entries));
}

function showFoot() {
  const made = `Made by fedskew ${App.data.version}, ${App.data.made}.`;
  const line = el("p", {}, `${made} This file loads nothing from anywhere.`);
  document.getElementById("foot").replaceChildren(line);
}
