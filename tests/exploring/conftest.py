"""One real server and one real browser for the tests of the explorer."""

import pytest
from tests.exploring.served import CHROMIUM, FLAGS, Served


@pytest.fixture(scope="session")
def server():
    served = Served("--port", 0)
    yield served
    if served.process.poll() is None:
        served.stop()


@pytest.fixture(scope="module")  # while it lives, this thread has an event loop, and other tests could not start theirs
def browser():
    if CHROMIUM is None:
        pytest.fail("the explorer is tested in Chromium; install it with: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()
