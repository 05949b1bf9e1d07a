// What stands around the figures: head, contents and foot.

function showHead() {
  const { methods, shared, progress, live } = App.data;
  const seeds = Math.max(...methods.map((method) => method.runs.length));
  const size = `${count(methods.length, "method")}, ${count(seeds, "seed")}`;
  const runs = count(progress.runs, "run");
  const title = methods.map((method) => method.label).join(", ");
  const theme = { type: "button", class: "theme", onclick: Theme.toggle };
  document.getElementById("top").replaceChildren(
    el(
      "div",
      {},
      el("h1", {}, title),
      el("p", {}, shared),
      el("p", { class: "soft" }, `${size}; ${progress.finished} of ${runs} finished`),
      live ? el("p", { class: "notice", id: "live" }, "Live: this page follows the runs.") : null,
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
