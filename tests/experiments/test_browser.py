"""The pages of the reports in a real browser."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from npgm import experiments
from npgm.experiments.solving.experiment import SolvingPreset

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--force-device-scale-factor=1")  # fmt: skip
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


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs the Debian packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, Service(chromedriver)) as opened:
        yield opened


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


@pytest.fixture
def report(browser, pages):
    browser.get((pages / PAGES[0]).as_uri())
    return browser


def pixels(browser, color):
    """Return how many pixels of the chart have a colour, up to rounding."""
    return browser.execute_script(
        """const canvas = document.querySelector(".chart canvas");
        const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(canvas, 0, 0);
        const { data } = context.getImageData(0, 0, copy.width, copy.height);
        const wanted = arguments[0].match(/\\w\\w/g).map((part) => parseInt(part, 16));
        let count = 0;
        for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] === 255 && wanted.every((value, j) => Math.abs(data[i + j] - value) < 8)) count += 1;
        return count;""",
        color,
    )


def chart(browser, expression):
    return browser.execute_script(f"const chart = document.querySelector('section.chart').chart; return {expression}")


def choose(browser, label, name):
    Select(browser.find_element(By.XPATH, f"//label[starts-with(., '{label} ')]/select")).select_by_visible_text(name)


def data_of(browser):
    return json.loads(browser.find_element(By.CSS_SELECTOR, "script.chart").get_attribute("textContent"))


@pytest.mark.parametrize("width", [1280, 400])
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


def test_the_network_is_forbidden(browser, pages):
    browser.get((pages / PAGES[0]).as_uri())
    code = "fetch('http://localhost:9/').catch((error) => arguments[0](error.name))"
    assert browser.execute_async_script(code) == "TypeError"
    messages = [entry["message"] for entry in browser.get_log("browser")]
    assert any("violates the following Content Security Policy directive" in message for message in messages), messages


def test_without_scripts_figures_and_tables_are_there(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get((pages / PAGES[0]).as_uri())
    assert browser.find_elements(By.CSS_SELECTOR, "section.chart, th button") == []
    assert browser.find_element(By.TAG_NAME, "img").size["height"] > 200
    assert len(browser.find_elements(By.TAG_NAME, "table")) == 3


def test_methods_can_be_left_out(report):
    colors = {method["label"]: method["color"] for method in data_of(report)["methods"]}
    assert pixels(report, colors["iHGD"]) > 100
    assert pixels(report, colors["sHGD"]) > 100
    assert pixels(report, colors["clipped SGD"]) == 0  # which was not run
    report.find_element(By.XPATH, "//label[contains(., 'iHGD')]/input").click()
    assert pixels(report, colors["iHGD"]) == 0
    assert pixels(report, colors["sHGD"]) > 100


def test_axes_settings_and_quantities_can_be_chosen(report):
    data = data_of(report)
    assert chart(report, "[chart.axes[0].label, chart.axes[1].label, chart.scales.y.distr]") == [
        "iteration",
        "f − min f",
        3,
    ]
    for number, setting in enumerate(data["settings"]):
        choose(report, "setting", setting["name"])
        for quantity in data["quantities"]:
            choose(report, "y", quantity["label"])
            for clock in data["clocks"]:
                choose(report, "x", clock)
                assert chart(report, "[chart.axes[0].label, chart.axes[1].label]") == [clock, quantity["label"]]
                curves = data["settings"][number]["curves"]
                assert chart(report, "chart.data[0]") == sorted({x for curve in curves for x in curve[clock]})
                for i, curve in enumerate(curves[:2]):
                    drawn = chart(report, f"chart.data[{3 * i + 1}].filter((value) => value != null)")
                    assert drawn == curve[quantity["key"]][0]
    choose(report, "y scale", "linear")
    assert chart(report, "chart.scales.y.distr") == 1
    choose(report, "y scale", "logarithmic")
    assert chart(report, "chart.scales.y.distr") == 3


@pytest.mark.parametrize("clock", ["iteration", "seconds"])
def test_the_pointer_reads_the_curves(report, clock):
    choose(report, "setting", "variance = 0.5")  # where sHGD was run from one start
    choose(report, "x", clock)
    plot = report.find_element(By.CSS_SELECTOR, ".chart .u-over")
    report.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(report).move_to_element(plot).perform()
    read = {output.find_element(By.XPATH, "..").text: output.text
            for output in report.find_elements(By.CSS_SELECTOR, ".chart output")}  # fmt: skip
    place = next(float(text.split()[1]) for text in read.values() if text.startswith(clock))
    curves = data_of(report)["settings"][1]["curves"]
    for curve, label, pattern in zip(curves, ("iHGD", "sHGD"), (r"(\S+) \[(\S+), (\S+)\]", r"(\S+)"), strict=False):
        text = next(value for key, value in read.items() if key.startswith(label))
        numbers = [float(number) for number in re.fullmatch(pattern, text).groups()]
        nearest = min(curve[clock], key=lambda x: abs(x - place))
        k = curve[clock].index(nearest)
        near = [
            [values[j] for values in curve["gap"]][: len(numbers)]
            for j in range(max(k - 1, 0), k + 2)
            if j < len(curve[clock])
        ]
        assert any(numbers == pytest.approx(values, rel=5e-3) for values in near)


def test_tables_can_be_sorted(report):
    def column():
        rows = report.find_elements(By.XPATH, "//h2[text()='Results']/following-sibling::div[1]//tbody/tr")
        return [float(row.find_elements(By.TAG_NAME, "td")[5].text.split(" ")[0]) for row in rows]

    unsorted = column()
    heading = report.find_element(By.XPATH, "//th[contains(., 'final f − min f')]")
    for descending, state in ((False, "ascending"), (True, "descending")):
        heading.find_element(By.TAG_NAME, "button").click()
        assert heading.get_attribute("aria-sort") == state
        assert column() == sorted(unsorted, reverse=descending)
    assert len(unsorted) == 4  # two methods in two settings
    assert unsorted != sorted(unsorted)


def test_the_overview_leads_to_the_pages_of_the_reports(browser, pages):
    browser.get((pages / "index.html").as_uri())
    (link, *_) = browser.find_elements(By.LINK_TEXT, "paper, 0 of 40 runs")
    link.click()
    assert browser.title == "A multilayer perceptron on MNIST"
    assert "No run is done: this preset was never run." in browser.find_element(By.TAG_NAME, "body").text
