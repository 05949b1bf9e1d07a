// Failures: which replies were not used, and why.

const failuresSection = {
  id: "failures",
  title: "Failures",
  link: "Failures",
  needs: ["methods.runs.failures"],
  parts() {
    const reasons = failureReasons();
    if (!reasons.length) return [hintLine("Every reply of every client was used.")];
    const labels = App.data.methods.map((method) => method.label);
    const titles = ["why a reply was not used", ...labels];
    const head = el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)));
    const rows = reasons.map(([why, numbers]) => {
      const cells = numbers.map((number) => el("td", {}, number ? plain(number) : "–"));
      return el("tr", {}, el("td", { class: "wrap" }, why), cells);
    });
    const csv = () => [["reason", ...labels], ...reasons.map(([why, n]) => [why, ...n])];
    return [
      hintLine("Replies over all rounds and seeds."),
      scrollingTable("Table of failures", el("thead", {}, head), el("tbody", {}, rows)),
      csvTools("failures", csv),
    ];
  },
};

/** [reason, replies lost at each method], the most frequent first. */
function failureReasons() {
  const numbers = new Map();
  App.data.methods.forEach((method, column) => {
    for (const [why, number] of method.runs.flatMap((run) => run.failures.reasons)) {
      if (!numbers.has(why)) numbers.set(why, App.data.methods.map(() => 0));
      numbers.get(why)[column] += number;
    }
  });
  return [...numbers].sort((one, other) => sumOf(other[1]) - sumOf(one[1]));
}
