// Newer values while runs go on.

/** Ask once a second; stop when the runs are over or nobody answers any more. */
async function follow(misses) {
  try {
    await askForData();
    misses = 0;
  } catch {
    misses += 1;
  }
  if (App.data.live && misses < 3) {
    setTimeout(() => follow(misses), 1000);
    return;
  }
  const line = document.getElementById("live");
  if (line) line.textContent = "The server has stopped; this is the last state it sent.";
}

async function askForData() {
  const headers = App.tag ? { "If-None-Match": App.tag } : {};
  const answer = await fetch("data.json", { cache: "no-store", headers });
  if (answer.status !== 200) return;
  App.tag = answer.headers.get("ETag");
  App.data = await answer.json();
  refresh();
}
