"""How well `fedskew compare` uses the cores, and how soon its report can be used.

Six methods x five seeds on digits, as a person starts it. Share of core time = processor time of
all its processes / (wall time x cores), from the command to its end: it falls when something else
runs on the machine, so the load at the start is printed. The report of 6 methods x 5 seeds x 150
rounds x 100 clients (and of K = 10,000) is opened in headless Chromium, against a page of 20,000
rectangles and nothing else, if Chromium, its driver and selenium are there; ``--pages`` does only
that. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedskew import recipe
from table import Figure, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit" / "show"))
METHODS = (
    "fedavg",
    "fedlecc",
    "bacsa",
    "clust_psi_pfl",
    "afls",
    "balanced_chains",
    "poc",
    "fed_cbs",
    "divfl",
    "greedy_balance",
)
ROUNDS, SEEDS = 150, "0-4"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PLAIN = """<!doctype html><svg width="1000" height="1000"></svg><script>
const svg = document.querySelector("svg");
for (let i = 0; i < 20000; i++) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  one.setAttribute("x", i % 1000);
  one.setAttribute("y", Math.floor(i / 20));
  one.setAttribute("width", 3);
  one.setAttribute("height", 3);
  svg.append(one);
}
document.documentElement.dataset.ready = "yes";
</script>"""


def core_share(folder: Path) -> list[Figure]:
    """Run the comparison and account for its processor time."""
    names = [name for name in METHODS if name in recipe.shipped_recipes()][:6]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "fedskew",
        "compare",
        *names,
        "--seeds",
        SEEDS,
        "--set",
        f"run.rounds={ROUNDS}",
    ]
    local = [f"local.{key}" for key in ("epochs=1", "batch=16", "lr=0.1", "optimizer=sgd")]
    options = [part for setting in local for part in ("--set", setting)]
    subprocess.run(
        [*command, *options, "--out", str(folder), "--quiet"], check=True, stdout=subprocess.DEVNULL
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = f"{used:.1f} s on {cores} cores in {wall:.1f} s"
    note = f"{seconds}; load before: {load:.1f}; {', '.join(names)}"
    return [Figure("share of core time used", used / (wall * cores), 0.85, note, at_least=True)]


def page_of(folder: Path, clients: int, budget: int, seeds: int) -> Path:
    """The report of six methods that nobody trained."""
    from played import write_run

    from fedskew.compare.comparison import Comparison
    from fedskew.report.page import save_page

    for method in range(6):
        for seed in range(seeds):
            settings = {
                "clients": clients,
                "rounds": 150,
                "budget": budget,
                "local": {"lr": 0.1 + method / 10},
            }
            write_run(
                folder / f"{method}" / f"seed-{seed}",
                f"method {method}",
                seed,
                level=0.6 + method / 20,
                **settings,
            )
    save_page(Comparison.read(folder), folder / "report.html", target=0.6, budget="bytes")
    return folder / "report.html"


def why_not_opened() -> str:
    """What is missing to open a page; empty if nothing is."""
    programs = {"chromium": "chromium", "chromedriver": "chromium-driver"}
    missing = [package for name, package in programs.items() if not shutil.which(name)]
    if missing:
        return f"{' and '.join(missing)} of Debian"
    return "" if find_spec("selenium") else "selenium, of the extra dev"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window, with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield browser
        finally:
            browser.quit()


def opening_seconds(browser: Any, page: Path) -> float:
    """From the request until every figure is drawn."""
    browser.get(page.as_uri())
    until = time.monotonic() + 30
    while browser.execute_script("return document.documentElement.dataset.ready") != "yes":
        if time.monotonic() > until:
            raise SystemExit(f"{page.name} was not drawn within 30 s")
        time.sleep(0.01)
    loaded = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    return float(browser.execute_script(loaded)) / 1e3


def opened(page: Path, plain: Path) -> tuple[float, float]:
    """Median seconds of both pages, opened in turn."""
    with chromium() as browser:
        pairs = [
            (opening_seconds(browser, page), opening_seconds(browser, plain)) for _ in range(5)
        ]
    ours, theirs = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def pages(folder: Path) -> list[Figure]:
    """Size and opening time of the two reports."""
    figures = []
    missing = why_not_opened()
    if missing:
        print(f"  (the report is not opened in a browser: install {missing})")
    for name, clients, budget, seeds in (
        ("100 clients, 5 seeds", 100, 10, 5),
        ("10,000 clients, 2 seeds", 10_000, 100, 2),
    ):
        page = page_of(folder / str(clients), clients, budget, seeds)
        figures.append(Figure(f"report of 6 methods, {name}: MB", page.stat().st_size / 1e6, 5.0))
        if not missing:
            plain = folder / "plain.html"
            plain.write_text(PLAIN)
            ours, theirs = opened(page, plain)
            note = f"{ours:.2f} s, {theirs:.2f} s"
            figures.append(Figure(f"opened, {name} / plain page", ours / theirs, 3.0, note))
    return figures


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = core_share(Path(folder) / "cells") if "--pages" not in sys.argv else []
        found += pages(Path(folder) / "pages")
        return report("compare and its report", found)


if __name__ == "__main__":
    sys.exit(main())
