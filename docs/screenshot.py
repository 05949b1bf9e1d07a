"""Pictures of a report: python docs/screenshot.py report.html report.png; also writes report-dark.png and report-phone.png."""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
)


def shoot(browser: Any, path: Path, width: int, height: int) -> None:
    """The top of the page, with 256 colours: a third of the size."""
    from PIL import Image

    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_async_script(
        "setTimeout(arguments[0], 400)"
    )  # the figures follow the new width
    drawn = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    with Image.open(BytesIO(base64.b64decode(drawn))) as image:
        image.convert("RGB").save(path, optimize=True)


def main(page: Path, out: Path) -> None:
    """Light, dark, phone."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            browser.get(page.resolve().as_uri())
            shoot(browser, out, 1280, 1560)
            browser.execute_script("document.querySelector('.theme').click()")
            shoot(browser, out.with_stem(f"{out.stem}-dark"), 1280, 1560)
            shoot(browser, out.with_stem(f"{out.stem}-phone"), 390, 1560)
        finally:
            browser.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
