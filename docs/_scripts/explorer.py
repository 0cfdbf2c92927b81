"""Draw the explorer's pictures in a real browser: python docs/_scripts/explorer.py (needs Chromium, and the extra `dev`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
TARGET = ROOT / "docs" / "_static"
FULL = "#dataset_size=60000&poisson_batch_size=256&max_batch_size=256&noise_multiplier=1&steps=14000&delta=1e-5"


def picture(browser: Browser, url: str, name: str, height: int, scheme: str, part: str | None) -> None:
    """One screenshot, once everything has been computed; from the element `part` on, or from the top."""
    page = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url + FULL)
    page.locator(".card[data-state=whole]").nth(6).wait_for(timeout=300_000)
    if part is not None:
        page.locator("#plan").click()
        page.locator("#plan-table tbody tr").first.wait_for(timeout=300_000)
        page.evaluate(
            f"window.scrollTo(0, document.querySelector('{part}').getBoundingClientRect().top + scrollY - 140)"
        )
        page.wait_for_timeout(800)
    page.screenshot(path=TARGET / name)
    page.close()


def main() -> None:
    from playwright.sync_api import sync_playwright
    from tests.exploring.served import CHROMIUM, FLAGS, Served

    served = Served("--port", 0)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            picture(browser, served.url, "explorer.png", 1270, "light", None)
            picture(browser, served.url, "explorer_plan.png", 1560, "dark", "#planning")
            browser.close()
    finally:
        served.stop()


if __name__ == "__main__":
    main()
