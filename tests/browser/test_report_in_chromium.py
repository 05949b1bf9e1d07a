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


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """fedavg, a method that coincides with it, and one with several models."""
    root = tmp_path_factory.mktemp("mixed")
    for number, name in enumerate(("fedavg", "own", "twin")):
        for seed in (0, 1):
            write_run(
                root / name / f"seed-{seed}",
                name,
                seed,
                mark="same",
                personal=name == "own",
                local={"lr": 0.1 + number},
            )
    save_page(Comparison.read(root), root / "report.html")
    return (root / "report.html").as_uri()


def fresh(browser, page):
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(page)
    browser.execute_script("localStorage.clear()")
    browser.get(page)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    return browser


@pytest.fixture
def opened(browser, page):
    yield fresh(browser, page)
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
    across, down = int((x - 0.5) * size["width"]), int((y - 0.5) * size["height"])
    # scrolling hides the values, and on a busy machine it may end after the pointer has come
    for attempt in range(20):
        near = across + attempt % 2
        ActionChains(browser).move_to_element_with_offset(svg, near, down).perform()
        if tip(browser):
            break
        time.sleep(0.1)
    return tip(browser)


def click(browser, selector):
    browser.execute_script("arguments[0].click()", browser.find_element(By.CSS_SELECTOR, selector))


def asked_for(browser, page):
    """What the page asked for; the browser's own new-tab page may still be loading beside it."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = [s["request"]["url"] for s in sent if s["documentURL"].split("#")[0] == page]
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
    assert set(asked_for(opened, page)) == {page}


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


def test_a_parallel_plan_does_not_look_like_a_chain(opened):
    """Every client has its own way from the model; in a chain only the first has."""
    script = """
        const paths = [...document.querySelectorAll('#plan svg path')];
        const heads = paths.flatMap((path) => path.getAttribute('d').match(/m-[45] -[45]l/g) || []);
        const circles = [...document.querySelectorAll('#plan svg circle')];
        const rows = new Set(circles.map((circle) => circle.getAttribute('cy')));
        return [heads.length, circles.length, rows.size, paths.length];
    """
    assert opened.execute_script(script) == [6, 6, 1, 1]  # one branching way to six clients
    assert (
        "6 clients in parallel on 1 model"
        in opened.find_element(By.CSS_SELECTOR, "#plan .hint").text
    )
    opened.find_element(By.CSS_SELECTOR, "#plan select").send_keys("chains")
    assert opened.execute_script(script) == [6, 6, 2, 6]  # two chains of three, an arrow each


# ---------------------------------------------------------------- words and the picture of costs


def sections(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('main section')].map((section) => section.id)"
    )


def test_it_opens_with_the_verdict_then_pictures_then_tables(opened, page):
    assert sections(opened)[:4] == ["verdict", "cost", "curves", "table"]
    folder = Path(page.removeprefix("file://")).parent
    said = Comparison.read(folder).verdict(target=0.3, budget="bytes")
    shown = opened.find_elements(By.CSS_SELECTOR, "#verdict p:not(.notice)")
    assert " ".join(line.text for line in shown) == said
    assert "3 seeds are too few" in said


def test_costs_are_a_point_for_each_method_and_the_line_of_the_best(opened):
    centres = """
        const dots = [...document.querySelectorAll('#cost circle.point')];
        return dots.map((dot) => [dot.getAttribute('cx'), dot.getAttribute('cy')].map(Number));
    """
    by_bytes = opened.execute_script(centres)
    assert len(by_bytes) == 3
    # every round moves 12 models, chains of three 8: cheaper, and not the best
    line = "return document.querySelector('#cost .efficient').getAttribute('d')"
    assert opened.execute_script(line).count("V") == 1
    click(opened, "#cost input[value=energy]")
    assert opened.execute_script(centres) != by_bytes
    assert opened.execute_script(line).count("V") == 0  # they all spend as much
    assert "energy of the clients" in opened.find_element(By.CSS_SELECTOR, "#cost svg").text
    box = opened.find_element(By.CSS_SELECTOR, "#cost select")
    assert [option.text for option in box.find_elements(By.TAG_NAME, "option")] == [
        "final accuracy",
        "clients' accuracy",
        "worst tenth",
    ]


def test_arrow_keys_go_from_method_to_method(opened):
    svg = opened.find_element(By.CSS_SELECTOR, "#cost svg")
    opened.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'}); arguments[0].focus()",
        svg,
    )
    time.sleep(0.2)
    seen = []
    for _ in range(4):
        svg.send_keys(Keys.ARROW_RIGHT)
        seen.append(tip(opened).split("\n")[0])
    assert seen == ["chains", NASTY, "fedavg", "fedavg"]  # the cheapest first, then the better
    assert "final accuracy: 0." in tip(opened)
    assert "bytes: " in tip(opened)


def test_the_target_is_drawn(opened):
    target = "const t = document.querySelector('#curves .target'); return t && t.getAttribute('y1')"
    assert float(opened.execute_script(target)) > 0
    assert "target 0.3" in opened.find_element(By.CSS_SELECTOR, "#curves svg").text
    opened.find_element(By.CSS_SELECTOR, "#curves select").send_keys("test loss")
    assert opened.execute_script(target) is None  # a loss has no target


def test_figures_that_need_words_have_them_where_they_stand(opened):
    table = opened.find_element(By.ID, "table").text
    for words in ("AD mean distance", "SDAD standard deviation", "Jain how evenly"):
        assert words in table
    federation = opened.find_element(By.ID, "federation").text
    assert "population stability index" in federation
    assert "AFLS's skew" in federation


def legend(browser, figure):
    found = browser.find_elements(By.CSS_SELECTOR, f"#{figure} .legend li")
    return [" ".join(entry.text.split()) for entry in found]


def test_entries_without_data_are_grey_and_twins_are_named(browser, mixed):
    fresh(browser, mixed)
    expected = ["fedavg same as twin", "own several models, no global one", "twin same as fedavg"]
    assert legend(browser, "curves") == legend(browser, "cost") == expected
    assert len(browser.find_elements(By.CSS_SELECTOR, "#curves .legend button")) == 2
    dashes = [
        curve.get_attribute("stroke-dasharray")
        for curve in browser.find_elements(By.CSS_SELECTOR, "#curves .curve")
    ]
    assert dashes[0] is None or dashes[0] == ""
    assert dashes[2] == "8 8"  # lies on the first one, and lets it be seen
    box = browser.find_element(By.CSS_SELECTOR, "#curves select")
    box.send_keys("accuracy of the clients")
    assert legend(browser, "curves") == [
        "fedavg one global model",
        "own",
        "twin one global model",
    ]
    assert "fedavg and twin coincide" in browser.find_element(By.ID, "verdict").text
    assert "fedavg, twin" in browser.find_element(By.CSS_SELECTOR, "#cost svg").text


# ---------------------------------------------------------------- focus

FOCUSED = """
    const e = document.activeElement;
    return [e.tagName, e.closest('[id]')?.id || '', e.innerText || '', e.name || ''];
"""


def test_the_keyboard_stays_where_it_is(opened):
    button = opened.find_elements(By.CSS_SELECTOR, "#curves .legend button")[1]
    opened.execute_script("arguments[0].focus()", button)
    before = opened.execute_script(FOCUSED)
    assert before[:3] == ["BUTTON", "curves", "chains"]
    for pressed in ("false", "true"):
        ActionChains(opened).send_keys(Keys.ENTER).perform()
        assert opened.execute_script(FOCUSED) == before
        assert (
            opened.execute_script("return document.activeElement.getAttribute('aria-pressed')")
            == pressed
        )
    radio = opened.find_element(By.CSS_SELECTOR, "#cost input[value=bytes]")
    opened.execute_script("arguments[0].focus()", radio)
    ActionChains(opened).send_keys(Keys.ARROW_RIGHT).perform()
    assert opened.execute_script("return document.activeElement.value") == "time"
    opened.execute_script("document.querySelector('.theme').focus()")
    ActionChains(opened).send_keys(Keys.ENTER).perform()
    assert opened.execute_script(FOCUSED)[2] == "Light theme"


def test_arrow_keys_go_on_where_they_were_after_a_new_drawing(opened):
    svg = opened.find_element(By.CSS_SELECTOR, "#curves svg")
    opened.execute_script("arguments[0].focus({preventScroll: true})", svg)
    for _ in range(3):
        ActionChains(opened).send_keys(Keys.ARROW_RIGHT).perform()
    opened.execute_script("window.dispatchEvent(new Event('resize'))")
    time.sleep(0.5)
    ActionChains(opened).send_keys(Keys.ARROW_RIGHT).perform()
    assert tip(opened).startswith("round 4")


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
        for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
            style = dict(part.split(":", 1) for part in text.get("style").split(";"))
            assert style["stroke"] == "none" or style["paint-order"] == "stroke", text.text
        named = figure in ("cost", "curves", "ecdf")
        assert ("fedavg" in "".join(ElementTree.fromstring(svg).itertext())) >= named
        assert csv.count("\r\n") > 3


# ---------------------------------------------------------------- live


def test_the_live_page_follows_a_run_and_stops(browser, tmp_path):
    folder = write_run(tmp_path / "a" / "seed-0", until=2)
    watched = Watched([folder, tmp_path / "a" / "seed-1"])
    said = []
    with live_page(watched, said.append) as address:
        browser.get(address)
        assert "0 of 2 runs finished" in browser.find_element(By.ID, "top").text  # one not begun
        browser.execute_script("document.querySelector('.theme').focus()")
        browser.execute_script("document.querySelector('#again details').open = true")
        for path in folder.iterdir():
            path.unlink()
        write_run(folder)
        end = time.monotonic() + 15
        while (
            "1 of 2 runs finished" not in browser.find_element(By.ID, "top").text
            and time.monotonic() < end
        ):
            time.sleep(0.1)
        assert "1 of 2 runs finished" in browser.find_element(By.ID, "top").text
        # everything was made again, and the reader is where they were
        assert browser.execute_script(FOCUSED)[:3] == ["BUTTON", "top", "Dark theme"]
        assert browser.execute_script("return document.querySelector('#again details').open")
        assert sections(browser)[:2] == ["verdict", "cost"]  # the first finished run has costs
        assert len(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")) == 2
        asked = {url.partition("?")[0] for url in asked_for(browser, address)}
        assert f"{address}data.json" in asked
        assert asked <= {address, f"{address}data.json"}
    assert said == [address]
    assert address.startswith("http://127.0.0.1:")
    with pytest.raises(OSError, match="refused"):
        urlopen(address, timeout=2)
