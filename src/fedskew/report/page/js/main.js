// The page from top to bottom, and newer values while runs go on.

function headSection() {
  const host = document.getElementById("top");
  const update = () => {
    const data = App.data;
    const seeds = Math.max(...data.methods.map((m) => m.runs.length));
    const done = data.methods.flatMap((m) => m.runs).filter((r) => r.finished).length, all = data.methods.flatMap((m) => m.runs).length;
    const label = Theme.now() === "dark" ? "Light theme" : "Dark theme";
    host.replaceChildren(
      el("div", {},
        el("h1", {}, data.methods.map((m) => m.label).join(", ")),
        el("p", {}, data.shared),
        el("p", { class: "soft" }, `${count(data.methods.length, "method")}, ${count(seeds, "seed")}; ${done} of ${count(all, "run")} finished`),
        ...data.notes.map((note) => el("p", { class: "notice" }, note)),
        data.live ? el("p", { class: "notice", id: "live" }, "Live: this page follows the runs.") : null),
      el("button", { type: "button", class: "theme", onclick: Theme.toggle }, label));
  };
  return { update };
}

function federationSection() {
  const section = el("section", { id: "federation" });
  const update = () => {
    const found = App.data.federation;
    section.replaceChildren(el("h2", {}, "The federation"));
    if (!found) return section.append(el("p", { class: "hint" }, "These runs keep no label counts."));
    section.append(el("p", { class: "hint" }, `What clients train on, seed ${found.seed}.`), found.verdict ? el("p", {}, found.verdict) : "",
      el("dl", { class: "facts" }, found.facts.map(([name, value, hint]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, hint ? el("small", {}, hint) : null)))));
  };
  return { section, update };
}

function methodsSection() {
  const section = el("section", { id: "again" });
  const update = () => section.replaceChildren(
    el("h2", {}, "Make it again"),
    el("p", { class: "hint" }, `fedskew ${App.data.version}. Save a recipe below as the file its command names; the same seed gives the same numbers.`),
    el("pre", { tabindex: "0" }, App.data.commands.join("\n")),
    ...App.data.methods.map((method, number) => el("details", {},
      el("summary", {}, el("span", { class: "square", style: `background:${colour(number)}` }), ` ${method.label}`),
      el("p", {}, method.description), method.citation ? el("p", { class: "hint" }, method.citation) : null,
      el("p", { class: "hint" }, Object.entries(method.stages).map(([stage, use]) => `${stage}: ${use}`).join(" · ")),
      el("pre", { tabindex: "0" }, method.recipe),
      el("div", { class: "tools" }, el("button", { type: "button", onclick: () => download(`${method.label.replace(/[^\w-]/g, "_")}.toml`, "text/plain", method.recipe) }, "Save the recipe")))));
  return { section, update };
}

function build() {
  const main = document.getElementById("main");
  const known = Boolean(App.data.federation);
  const federation = federationSection(), table = tableSection(), curves = curvesFigure();
  const labels = known ? labelsFigure() : null, map = known ? mapFigure() : null;
  const chosen = chosenFigure(), plan = planFigure(), ecdf = ecdfFigure(), ledger = ledgerFigure(), failures = failuresFigure(), again = methodsSection();
  const two = known ? el("div", { class: "two" }, labels.section, map.section) : null;
  const pair = el("div", { class: "two" }, ecdf.section, ledger.section);
  main.replaceChildren(...[table.section, curves.section, federation.section, two, chosen.section, plan.section, pair, failures.section, again.section].filter(Boolean));
  const links = [["table", "Table"], ["curves", "Curves"], ["federation", "Federation"], ["chosen", "Chosen"], ["plan", "Plan"], ["ecdf", "Clients"], ["ledger", "Bytes"], ["failures", "Failures"], ["again", "Make it again"]];
  document.getElementById("contents").replaceChildren(el("ul", {}, links.map(([id, text]) => el("li", {}, el("a", { href: `#${id}` }, text)))));
  document.getElementById("foot").replaceChildren(el("p", {}, `Made by fedskew ${App.data.version}, ${App.data.made}. This file loads nothing from anywhere.`));
  App.updates = [headSection(), table, curves, federation, labels, map, chosen, plan, ecdf, ledger, failures, again].filter(Boolean);
  refresh();
}

function refresh() {
  App.updates.forEach((part) => part.update());
}

/** Ask for newer values once a second; stop when the runs are over or nobody answers any more. */
async function follow(misses) {
  try {
    const answer = await fetch("data.json", { cache: "no-store", headers: App.tag ? { "If-None-Match": App.tag } : {} });
    if (answer.status === 200) {
      const known = Boolean(App.data.federation);
      App.tag = answer.headers.get("ETag");
      App.data = await answer.json();
      Boolean(App.data.federation) === known ? refresh() : (Figures.splice(0), build());
    }
    misses = 0;
  } catch {
    misses += 1;
  }
  if (!App.data.live || misses >= 3) {
    const line = document.getElementById("live");
    if (line) line.textContent = "The server has stopped; this is the last state it sent.";
    return;
  }
  setTimeout(() => follow(misses), 1000);
}

Theme.start();
build();
let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redrawAll, 120);
});
addEventListener("scroll", () => Tip.hide(), { passive: true });
if (App.data.live && location.protocol.startsWith("http")) setTimeout(() => follow(0), 1000);
document.documentElement.dataset.ready = "yes";
