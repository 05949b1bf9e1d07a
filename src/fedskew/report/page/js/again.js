// How to make these runs again: commands and recipes.

const againSection = {
  id: "again",
  title: "Make it again",
  link: "Make it again",
  needs: ["commands", "methods.recipe"],
  parts: () => [
    hintLine(
      `fedskew ${App.data.version}. Save a recipe below as the file its command names; ` +
        "the same seed gives the same numbers.",
    ),
    el("pre", { tabindex: "0" }, App.data.commands.join("\n")),
    ...App.data.methods.map(methodDetails),
  ],
};

function methodDetails(method, number) {
  const square = el("span", { class: "square", style: `background:${colour(number)}` });
  const stages = Object.entries(method.stages).map(([stage, use]) => `${stage}: ${use}`);
  const file = `${method.label.replace(/[^\w-]/g, "_")}.toml`;
  const save = () => download(file, "text/plain", method.recipe);
  const button = el("button", { type: "button", onclick: save }, "Save the recipe");
  return el(
    "details",
    {},
    el("summary", {}, square, ` ${method.label}`),
    el("p", {}, method.description),
    method.citation ? hintLine(method.citation) : null,
    hintLine(stages.join(" · ")),
    el("pre", { tabindex: "0" }, method.recipe),
    el("div", { class: "tools" }, button),
  );
}
