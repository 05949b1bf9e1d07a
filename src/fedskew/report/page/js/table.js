// The table: means and intervals over seeds, differences against the first method.

const tableSection = {
  id: "table",
  title: "Table",
  link: "Table",
  needs: ["methods"],
  parts() {
    const { table } = App.data;
    if (!table) return [hintLine("No run is finished yet.")];
    const names = [...new Set(table.columns.map((column) => column.part))];
    const smallPrint =
      `Small print: difference from ${table.rows[0].label}. ` +
      "✓: better than every other method for real.";
    return [
      ...names.flatMap((name) => [partTable(table, name), meaningsLine(table, name)]),
      ...(table.rows.length > 1 ? [hintLine(smallPrint)] : []),
      ...table.caption.map(hintLine),
      csvTools("table", () => tableRows(table)),
    ];
  },
};

function tableRows({ columns, rows, references }) {
  return [
    ["method", ...columns.map((column) => column.title), "reference"],
    ...rows.map((row) => [row.label, ...row.cells, "no"]),
    ...references.map((row) => [row.label, ...row.cells, "yes"]),
  ];
}

/** The table of some columns, in a box that scrolls sideways where the page is narrow. */
function partTable(table, name) {
  const columns = [...table.columns.keys()].filter((i) => table.columns[i].part === name);
  const titles = columns.map((i) => el("th", { scope: "col" }, table.columns[i].title));
  const head = el("tr", {}, el("th", { scope: "col" }, "method"), titles);
  const rows = table.rows.map((row) => methodRow(row, columns));
  const hasReferences = name === "Accuracy" && table.references.length;
  return scrollingTable(
    `Table: ${name}`,
    el("caption", {}, name),
    el("thead", {}, head),
    el("tbody", {}, rows),
    hasReferences ? referenceRows(table.references, columns) : null,
  );
}

/** What the columns of a table mean, as far as their titles do not say it. */
function meaningsLine({ columns }, name) {
  const told = columns.filter((column) => column.part === name && column.meaning);
  const texts = told.map(({ title, meaning }) => [el("b", {}, title), ` ${meaning}. `]);
  return el("p", { class: "hint meanings" }, texts);
}

function methodRow(row, columns) {
  const cells = columns.map((i) => {
    const difference = row.differences[i] ? el("small", {}, row.differences[i]) : null;
    return el("td", { class: row.best[i] ? "best" : null }, row.cells[i], difference);
  });
  return el("tr", {}, el("th", { scope: "row" }, breakable(row.label)), cells);
}

function referenceRows(references, columns) {
  const wide = { scope: "rowgroup", colspan: columns.length + 1 };
  const rows = references.map((row) => {
    const cells = columns.map((i) => el("td", {}, row.cells[i]));
    return el("tr", {}, el("th", { scope: "row" }, breakable(row.label)), cells);
  });
  const heading = el("tr", {}, el("th", wide, "References, not ranked"));
  return el("tbody", { class: "references" }, heading, rows);
}

function scrollingTable(label, ...children) {
  const box = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  return el("div", box, el("table", {}, children));
}
