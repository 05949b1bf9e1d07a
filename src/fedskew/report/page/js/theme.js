// Light or dark: as the system has it, until somebody chooses.

const Theme = {
  system: matchMedia("(prefers-color-scheme: dark)"),

  /** What somebody chose before, or null. */
  chosen() {
    try {
      return localStorage.getItem("fedskew-theme");
    } catch {
      return null; // pages opened from a file may have no storage
    }
  },

  now: () => document.documentElement.dataset.theme,

  /** What the switch says: the other theme. */
  switchText: () => (Theme.now() === "dark" ? "Light theme" : "Dark theme"),

  set(theme) {
    document.documentElement.dataset.theme = theme;
    for (const button of document.querySelectorAll(".theme")) {
      button.textContent = Theme.switchText();
    }
    redrawAll();
  },

  toggle() {
    const theme = Theme.now() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("fedskew-theme", theme);
    } catch {
      /* then it holds for this visit */
    }
    Theme.set(theme);
  },

  start() {
    const systemTheme = (isDark) => (isDark ? "dark" : "light");
    const theme = this.chosen() || systemTheme(this.system.matches);
    document.documentElement.dataset.theme = theme;
    this.system.addEventListener("change", (event) => {
      if (!this.chosen()) Theme.set(systemTheme(event.matches));
    });
  },
};
