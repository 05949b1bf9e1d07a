// Failures: which replies were not used, and why.

function failuresFigure() {
  const total = (method) => method.runs.reduce((sum, run) => sum + run.failures.reasons.reduce((s, [, n]) => s + n, 0), 0);
  const any = () => App.data.methods.some((method) => total(method));
  const reasons = () => {
    const found = new Map();
    App.data.methods.forEach((method, m) => method.runs.forEach((run) => run.failures.reasons.forEach(([why, n]) => {
      if (!found.has(why)) found.set(why, App.data.methods.map(() => 0));
      found.get(why)[m] += n;
    })));
    return [...found].sort((a, b) => b[1].reduce((x, y) => x + y) - a[1].reduce((x, y) => x + y));
  };
  const section = el("section", { id: "failures" });
  const update = () => {
    const parts = [el("h2", {}, "Failures")];
    if (!any()) parts.push(el("p", { class: "hint" }, "Every reply of every client was used."));
    else {
      const head = el("tr", {}, el("th", { scope: "col" }, "why a reply was not used"), App.data.methods.map((m) => el("th", { scope: "col" }, m.label)));
      const rows = reasons().map(([why, numbers]) => el("tr", {}, el("td", { class: "wrap" }, why), numbers.map((n) => el("td", {}, n ? plain(n) : "–"))));
      parts.push(el("p", { class: "hint" }, "Replies over all rounds and seeds."),
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of failures" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))),
        el("div", { class: "tools" }, el("button", { type: "button", onclick: () => download("failures.csv", "text/csv", csvText([["reason", ...App.data.methods.map((m) => m.label)], ...reasons().map(([why, n]) => [why, ...n])])) }, "CSV")));
    }
    section.replaceChildren(...parts);
  };
  return { section, update };
}
