// The federation: how skewed it is, in words and numbers.

const federationSection = {
  id: "federation",
  title: "The federation",
  link: "Federation",
  needs: [],
  parts() {
    const { federation } = App.data;
    if (!federation) return [hintLine("These runs keep no label counts.")];
    return [
      hintLine(`What clients train on, seed ${federation.seed}.`),
      federation.verdict ? el("p", {}, federation.verdict) : "",
      el("dl", { class: "facts" }, federation.facts.map(factBox)),
    ];
  },
};

function factBox([name, value, remark, meaning]) {
  const small = [remark, meaning].filter(Boolean).map((text) => el("small", {}, text));
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, small));
}
