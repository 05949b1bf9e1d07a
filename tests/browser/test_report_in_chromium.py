"""The report as a person meets it, in headless Chromium: it draws, answers the pointer and the
keyboard, and asks nobody.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip(
        "chromium and chromedriver are not installed (Debian: chromium chromium-driver)",
        allow_module_level=True,
    )

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "show"))

from page_parts import ids_of_drawings  # noqa: E402
from played import write_run  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from fedskew.compare.comparison import Comparison  # noqa: E402
from fedskew.report.live import Watched, live_page  # noqa: E402
from fedskew.report.page import save_page  # noqa: E402

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
# files from one page without being asked
SEVERAL = {"profile.default_content_setting_values.automatic_downloads": 1}
FIGURES = ids_of_drawings()
NASTY = '<img src="http://127.0.0.1:9/x" onerror="document.title=\'owned\'">'


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    folder = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder), **SEVERAL})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.downloads = folder
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("fedavg", "chains", NASTY)):
        for seed in (0, 1, 2):
            write_run(
                root / f"{number}" / f"seed-{seed}",
                name,
                seed,
                level=0.6 + number / 10,
                chain=1 + 2 * (number == 1),
                cluster=number == 2,
                names=[NASTY if i == 0 else f"site {i}" for i in range(12)],
                failing=NASTY if number == 2 else "",
                budget=6,
                local={"lr": 0.1 + number},
            )
    save_page(
        Comparison.read(root),
        root / "report.html",
        target=0.3,
        budget="bytes",
        commands=["fedskew compare"],
    )
    return (root / "report.html").as_uri()


@pytest.fixture
def opened(browser, page):
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(page)
    browser.execute_script("localStorage.clear()")
    browser.get(page)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    yield browser
    assert [
        entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ] == []


def tip(browser):
    return browser.execute_script(
        "const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText"
    )


def hover(browser, figure, x=0.5, y=0.5):
    svg = browser.find_element(By.CSS_SELECTOR, f"#{figure} svg")
    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", svg
    )
    size = svg.size
    ActionChains(browser).move_to_element_with_offset(
        svg, int((x - 0.5) * size["width"]), int((y - 0.5) * size["height"])
    ).perform()
    return tip(browser)


def click(browser, selector):
    browser.execute_script("arguments[0].click()", browser.find_element(By.CSS_SELECTOR, selector))


def asked_for(browser):
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in urls if not url.startswith(("data:", "blob:"))]


# ---------------------------------------------------------------- drawing


def test_every_figure_is_drawn_and_no_request_leaves(opened, page):
    for name in FIGURES:
        assert (
            opened.execute_script(f"return document.querySelectorAll('#{name} svg *').length") > 10
        ), name
    assert opened.execute_script("return document.querySelectorAll('#curves .curve').length") == 3
    assert (
        opened.execute_script("return document.querySelectorAll('#table tbody tr').length") == 9
    )  # three methods in three tables
    assert set(asked_for(opened)) == {page}


NEW_FIGURE = """
const dotFigure = {
  id: "dot",
  title: "A new figure",
  link: "Dot",
  needs: ["methods.runs.series"],
  hint: () => "One dot.",
  draw: (width) => ({
    svg: canvas(width, 60, sv("circle", { cx: 30, cy: 30, r: 9 })),
    hover: () => ({ lines: ["the dot"] }),
  }),
  csv: () => [["x", "y"], [30, 30]],
};
const absentFigure = { ...dotFigure, id: "absent", needs: ["federation.nothing"] };
const FIGURES = [
  dotFigure,
  absentFigure,
"""


def test_a_new_figure_needs_one_place_only(browser, page, tmp_path):
    text = (Path(page.removeprefix("file://"))).read_text(encoding="utf8")
    assert text.count("const FIGURES = [\n") == 1
    (tmp_path / "new.html").write_text(text.replace("const FIGURES = [\n", NEW_FIGURE))
    browser.get((tmp_path / "new.html").as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    assert browser.find_element(By.CSS_SELECTOR, "#contents li").text == "Dot"
    assert browser.find_element(By.CSS_SELECTOR, "main section:first-child h2").text
    assert hover(browser, "dot") == "the dot"
    assert len(browser.find_elements(By.CSS_SELECTOR, "#dot .tools button")) == 2
    assert browser.find_elements(By.ID, "absent") == []  # the data has nothing for it


def test_markup_in_names_is_text(opened):
    assert opened.title.startswith("fedskew:")
    assert opened.execute_script("return document.querySelectorAll('img').length") == 0
    assert NASTY in opened.find_element(By.TAG_NAME, "h1").text
    assert NASTY in opened.find_element(By.ID, "failures").text


def test_it_opens_quickly(opened):
    seconds = (
        opened.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
        / 1000
    )
    # no limit here: this machine may be busy; benchmarks/compare.py has one
    print(f"interactive after {seconds:.2f} s")


# ---------------------------------------------------------------- pointer and keyboard


def test_hover_shows_values(opened):
    text = hover(opened, "curves", 0.6)
    assert "round" in text
    assert "fedavg: 0." in text
    assert "%" in hover(opened, "labels", 0.5, 0.4)
    assert "cluster" in hover(opened, "labels", 0.5, 0.4)
    assert "chosen" in hover(opened, "chosen", 0.4, 0.4)
    assert "of clients" in hover(opened, "ecdf", 0.7)
    assert "MB" in hover(opened, "ledger", 0.5, 0.1) or "kB" in tip(opened)
    assert opened.execute_script("return document.querySelectorAll('#ledger .mark *').length") == 1


def test_arrow_keys_read_values(opened):
    svg = opened.find_element(By.CSS_SELECTOR, "#curves svg")
    opened.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'}); arguments[0].focus()",
        svg,
    )
    time.sleep(0.2)  # scrolling hides the values
    for _ in range(3):
        svg.send_keys(Keys.ARROW_RIGHT)
    assert tip(opened).startswith("round 3")
    svg.send_keys(Keys.ESCAPE)
    assert tip(opened) == ""


def test_everything_can_be_reached_with_tab(opened):
    script = """
        const kinds = 'button, select, input, a, svg, summary, .scroll';
        const all = [...document.querySelectorAll(kinds)];
        const shown = all.filter((e) => e.offsetParent !== null || e.tagName === 'svg');
        return shown.filter((e) => e.tabIndex < 0).map((e) => e.outerHTML.slice(0, 80));
    """
    assert opened.execute_script(script) == []


def test_the_axis_can_be_switched(opened):
    before = opened.execute_script(
        "return document.querySelector('#curves .curve').getAttribute('points')"
    )
    click(opened, "#curves input[value=bytes]")
    assert (
        opened.execute_script(
            "return document.querySelector('#curves .curve').getAttribute('points')"
        )
        != before
    )
    assert "bytes sent" in opened.find_element(By.CSS_SELECTOR, "#curves svg").text


def test_methods_can_be_hidden(opened):
    click(opened, "#curves .legend button")
    assert (
        len(opened.find_elements(By.CSS_SELECTOR, "#curves .legend button[aria-pressed=false]"))
        == 1
    )
    points = opened.execute_script(
        "const curves = [...document.querySelectorAll('#curves .curve')];"
        "return curves.map((curve) => curve.getAttribute('points'))"
    )
    assert [bool(p) for p in points] == [False, True, True]


def test_plans_show_chains(opened):
    box = opened.find_element(By.CSS_SELECTOR, "#plan select")
    box.send_keys("chains")
    hint = opened.find_element(By.CSS_SELECTOR, "#plan .hint").text
    assert hint == "Round 1: 2 chains on 1 model, chains of up to 3 clients, one after the other."
    assert len(opened.find_elements(By.CSS_SELECTOR, "#plan svg circle")) == 6
    slider = opened.find_element(By.CSS_SELECTOR, "#plan input[type=range]")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert opened.find_element(By.CSS_SELECTOR, "#plan .hint").text.startswith("Round 2:")


# ---------------------------------------------------------------- themes, phones, files


def test_the_theme_follows_the_system_and_the_switch(opened, page):
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert opened.execute_script(ground) == "rgb(255, 255, 255)"
    click(opened, ".theme")
    assert opened.execute_script(ground) == "rgb(18, 22, 27)"
    opened.get(page)
    assert opened.execute_script(ground) == "rgb(18, 22, 27)"  # remembered
    opened.execute_script("localStorage.clear()")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened.get(page)
    assert opened.execute_script(ground) == "rgb(18, 22, 27)"
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_needs_no_sideways_scrolling(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": True},
    )
    time.sleep(0.4)
    too_wide = """
        const all = [...document.querySelectorAll('main *')];
        const wide = all.filter((e) => e.scrollWidth > 375 && !e.closest('.scroll, pre'));
        return wide.map((e) => e.outerHTML.slice(0, 60));
    """
    assert opened.execute_script(too_wide) == []
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 375
    widths = opened.execute_script(
        "const plots = [...document.querySelectorAll('.plot svg')];"
        "return plots.map((svg) => svg.getBoundingClientRect().right)"
    )
    assert max(widths) <= 375
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def wait_for(path, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.is_file() and path.stat().st_size:
            return path.read_bytes().decode()
        time.sleep(0.05)
    raise AssertionError(f"{path} was not downloaded")


def test_a_figure_can_be_saved(opened):
    for button in opened.find_elements(By.CSS_SELECTOR, "#curves .tools button"):
        opened.execute_script("arguments[0].click()", button)
    assert "<svg" in wait_for(opened.downloads / "curves.svg")
    rows = wait_for(opened.downloads / "curves.csv").split("\r\n")
    assert rows[0] == "method,round,round,accuracy,half interval,seeds"
    assert rows[1] == "fedavg,0,0,0.1,0,3"


def test_every_figure_gives_svg_and_csv(opened):
    """The files as they are handed over: Chromium itself stops a page after ten of them."""
    script = """
        const done = arguments[1], files = [];
        URL.createObjectURL = (blob) => (files.push(blob.text()), "data:,");
        HTMLAnchorElement.prototype.click = () => {};
        const buttons = document.querySelectorAll(`#${arguments[0]} .tools button`);
        buttons.forEach((button) => button.click());
        Promise.all(files).then(done);
    """
    for figure in FIGURES:
        svg, csv = opened.execute_async_script(script, figure)
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in svg  # colours are written out
        assert csv.count("\r\n") > 3


# ---------------------------------------------------------------- live


def test_the_live_page_follows_a_run_and_stops(browser, tmp_path):
    folder = write_run(tmp_path / "a" / "seed-0", until=2)
    watched = Watched([folder, tmp_path / "a" / "seed-1"])
    said = []
    with live_page(watched, said.append) as address:
        browser.get(address)
        assert "0 of 1 run finished" in browser.find_element(By.ID, "top").text
        for path in folder.iterdir():
            path.unlink()
        write_run(folder)
        end = time.monotonic() + 15
        while (
            "1 of 1 run finished" not in browser.find_element(By.ID, "top").text
            and time.monotonic() < end
        ):
            time.sleep(0.1)
        assert "1 of 1 run finished" in browser.find_element(By.ID, "top").text
        assert len(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")) == 2
        assert {url.partition("?")[0] for url in asked_for(browser) if url.startswith("http")} <= {
            address,
            f"{address}data.json",
        }
    assert said == [address]
    assert address.startswith("http://127.0.0.1:")
    with pytest.raises(OSError, match="refused"):
        urlopen(address, timeout=2)
