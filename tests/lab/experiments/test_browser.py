"""The pages of the reports in a real browser."""

import dataclasses
import io
import json

import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from npgm.lab import experiments
from npgm.lab.experiments.solving.experiment import SolvingPreset

pytestmark = pytest.mark.slow

PAGES = ("phase-retrieval/smoke/report.html", "mnist/paper/report.html", "index.html")


def small():
    """The real experiment with small problems, with long curves and two quantities."""
    return dataclasses.replace(
        experiments.load("phase-retrieval"),
        options={"n": 30, "m": 10, "batch_size": 3},
        quantities=["gap", "grad_norm"],
        settings={"variance": [0.25, 0.5, 0.75]},
        readings={},
        presets={"smoke": SolvingPreset(starts=[3, 2, 1], maxiter=600)},
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report with runs, of which some are missing; one without any; and the overview."""
    output = tmp_path_factory.mktemp("results")
    experiments.run(small(), "smoke", output, jobs=1, methods=["iHGD"])
    store = experiments.run(small(), "smoke", output, jobs=1, methods=["sHGD"], seeds=1)
    for run in small().runs("smoke")[-3:]:  # of the last setting
        store.path(run).unlink(missing_ok=True)
    experiments.write_report(small(), "smoke", store)
    experiments.write_report(experiments.load("mnist"), "paper", experiments.Store(output / "mnist" / "runs"))
    experiments.write_overview(output)
    return output


@pytest.fixture
def browser(driver):
    for log in ("browser", "performance"):
        driver.get_log(log)
    set_width(driver, 1280)
    yield driver
    assert driver.get_log("browser") == []
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def set_width(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def requests(browser):
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_shows_its_images_and_asks_for_nothing(browser, pages, name, width):
    set_width(browser, width)
    address = (pages / name).as_uri()
    browser.get(address)
    assert {url for url in requests(browser) if not url.startswith("data:")} == {address}
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = browser.execute_script("return [...document.images].map((image) => image.naturalWidth)")
    assert len(sizes) == (1 if name == PAGES[0] else 0)
    assert all(size > 0 for size in sizes)
    whole = "return [...document.images].every((image) => image.getBoundingClientRect().right <= innerWidth)"
    assert browser.execute_script(whole)


@pytest.mark.parametrize(("scheme", "background"), [("light", 255), ("dark", 30)])
def test_page_and_figures_follow_the_readers_preference(browser, pages, scheme, background):
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    browser.get((pages / PAGES[0]).as_uri())
    for element in ("h1", "img"):
        picture = Image.open(io.BytesIO(browser.find_element(By.TAG_NAME, element).screenshot_as_png)).convert("L")
        assert abs(picture.getpixel((picture.width - 1, 0)) - background) < 20


def test_the_network_is_forbidden(browser, pages):
    browser.get((pages / PAGES[0]).as_uri())
    code = "fetch('http://localhost:9/').catch((error) => arguments[0](error.name))"
    assert browser.execute_async_script(code) == "TypeError"
    messages = [entry["message"] for entry in browser.get_log("browser")]
    assert any("violates the following Content Security Policy directive" in message for message in messages), messages


def test_the_overview_leads_to_the_pages_of_the_reports(browser, pages):
    browser.get((pages / "index.html").as_uri())
    (link, *_) = browser.find_elements(By.LINK_TEXT, "paper, 0 of 40 runs")
    link.click()
    assert browser.title == "A multilayer perceptron on MNIST"
    assert "No run is done: this preset was never run." in browser.find_element(By.TAG_NAME, "body").text
