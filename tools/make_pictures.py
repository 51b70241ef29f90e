"""Take the pictures of README and docs: the page of a release and of a plan, by headless Chromium. `make pictures`."""

from __future__ import annotations

import base64
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import dpunion
from dpunion import report, samples
from dpunion.ledger import Ledger

PLACE = Path(__file__).parents[1] / "docs" / "_static"
MOST_BYTES = 200_000
WIDTH = 1000
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
TOLD = dpunion.About(
    "Packages that others depend on", "Example team", "For the tutorial: what many packages of Debian have in common."
)


def make_pages(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the pages by their names, each with how much of its height is shown."""
    ledger = Ledger.open(folder / "budget.db", create=True)
    ledger.create_dataset("debian", 10.0, 1e-5, "tight")
    released = dpunion.release(
        samples.debian_depends(),
        user="user",
        item="item",
        epsilon=1.0,
        delta=1e-6,
        charge=dpunion.Charge(folder / "budget.db", "debian"),
        run=dpunion.Run(about=TOLD),
    )
    planned = dpunion.plan(epsilon=1.0, delta=1e-6)
    return {"report": (report.release_page(released), 1240), "plan": (report.plan_page(planned), 1240)}


def start_browser() -> Any:
    """Start Chromium, or say what is missing."""
    binary = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        sys.exit("Pictures need chromium and chromedriver (Debian: apt-get install chromium chromium-driver).")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def take_picture(browser: Any, page: Path, height: int) -> bytes:
    """Return the upper part of a page as PNG, in light colours."""
    metrics = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    light = {"name": "prefers-color-scheme", "value": "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [light]})
    browser.get(page.as_uri())
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


def main() -> None:
    """Take both pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        browser = start_browser()
        try:
            for title, (html, height) in make_pages(folder).items():
                page = folder / f"{title}.html"
                page.write_text(html, "utf-8")
                picture = take_picture(browser, page, height)
                if len(picture) > MOST_BYTES:
                    sys.exit(f"The picture of the {title} has {len(picture):,} bytes, more than {MOST_BYTES:,}.")
                (PLACE / f"{title}.png").write_bytes(picture)
                print(f"{title}.png: {len(picture):,} bytes")
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
