// What it comes to: the sentences that fedskew compare prints too, and what to know before
// trusting them.

const verdictSection = {
  id: "verdict",
  title: "In short",
  link: "In short",
  needs: ["verdict"],
  parts() {
    const { verdict, notes } = App.data;
    const sentences = verdict.map((text, i) => el("p", { class: i ? null : "lead" }, text));
    const nothing = hintLine("No run is finished yet.");
    const notices = notes.map((note) => el("p", { class: "notice" }, note));
    return [...(sentences.length ? sentences : [nothing]), ...notices];
  },
};
