"""How well `fedskew compare` uses the cores, and how soon its report can be used.

Six methods x five seeds on digits, as a person starts it. Share of core time = processor time of
all its processes / (wall time x cores), from the command to its end: it falls when something else
runs on the machine, so the load at the start is printed. The report of 6 methods x 5 seeds x 150
rounds x 100 clients (and of K = 10,000) is opened in headless Chromium if that is there with
selenium; ``--pages`` does only that. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def opening_seconds(page: Path) -> float:
    """From the request until every figure is drawn, median of three."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
    ):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as profile:
        options.add_argument(f"--user-data-dir={profile}")
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            seconds = []
            for _ in range(3):
                browser.get(page.as_uri())
                assert (
                    browser.execute_script("return document.documentElement.dataset.ready") == "yes"
                )
                seconds.append(
                    browser.execute_script(
                        "return performance.getEntriesByType('navigation')[0].loadEventEnd"
                    )
                    / 1e3
                )
        finally:
            browser.quit()
    return sorted(seconds)[1]


def pages(folder: Path) -> list[Figure]:
    """Size and opening time of the two reports."""
    figures = []
    for name, clients, budget, seeds in (
        ("100 clients, 5 seeds", 100, 10, 5),
        ("10,000 clients, 2 seeds", 10_000, 100, 2),
    ):
        page = page_of(folder / str(clients), clients, budget, seeds)
        figures.append(Figure(f"report of 6 methods, {name}: MB", page.stat().st_size / 1e6, 5.0))
        try:
            figures.append(
                Figure(f"report of 6 methods, {name}: s until drawn", opening_seconds(page), 2.0)
            )
        except ImportError:
            print("  (selenium is not installed: the report was not opened)")
    return figures


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = core_share(Path(folder) / "cells") if "--pages" not in sys.argv else []
        found += pages(Path(folder) / "pages")
        return report("compare and its report", found)


if __name__ == "__main__":
    sys.exit(main())
