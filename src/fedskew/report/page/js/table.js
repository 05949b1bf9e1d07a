// The table: means and intervals over seeds, differences against the first method.

function tableSection() {
  const section = el("section", { id: "table" });
  const update = () => {
    const table = App.data.table;
    const parts = [el("h2", {}, "Table")];
    if (!table) parts.push(el("p", { class: "hint" }, "No run is finished yet."));
    else {
      for (const part of new Set(table.columns.map((c) => c.part)))
        parts.push(partTable(table, table.columns.map((_, i) => i).filter((i) => table.columns[i].part === part), part));
      if (table.rows.length > 1) parts.push(el("p", { class: "hint" }, `Small print: difference from ${table.rows[0].label}. ✓: better than every other method for real.`));
      parts.push(...table.caption.map((line) => el("p", { class: "hint" }, line)));
      const csv = () => [["method", ...table.columns.map((c) => c.title), "reference"], ...table.rows.map((r) => [r.label, ...r.cells, "no"]), ...table.references.map((r) => [r.label, ...r.cells, "yes"])];
      parts.push(el("div", { class: "tools" }, el("button", { type: "button", onclick: () => download("table.csv", "text/csv", csvText(csv())) }, "CSV")));
    }
    section.replaceChildren(...parts);
  };
  return { section, update };
}

/** The table of some columns, in a box that scrolls sideways where the page is narrow. */
function partTable(table, columns, name) {
  const head = el("tr", {}, el("th", { scope: "col" }, "method"), columns.map((i) => el("th", { scope: "col" }, table.columns[i].title)));
  const rows = table.rows.map((row) => el("tr", {}, el("th", { scope: "row" }, breakable(row.label)), columns.map((i) =>
    el("td", { class: row.best[i] ? "best" : null }, row.cells[i], row.differences[i] ? el("small", {}, row.differences[i]) : null))));
  const beside = name === "Accuracy" && table.references.length ? el("tbody", { class: "references" },
    el("tr", {}, el("th", { scope: "rowgroup", colspan: columns.length + 1 }, "References, not ranked")),
    table.references.map((row) => el("tr", {}, el("th", { scope: "row" }, breakable(row.label)), columns.map((i) => el("td", {}, row.cells[i]))))) : null;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${name}` }, el("table", {}, el("caption", {}, name), el("thead", {}, head), el("tbody", {}, rows), beside));
}
