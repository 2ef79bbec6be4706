"""The playground of the site in a real browser: its formulas are the package's, and it shows them."""

import json
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

import npgm

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "playground"


@pytest.fixture(scope="module")
def evaluate(driver):
    driver.get("about:blank")
    source = (PAGE / "npgm.js").read_text(encoding="utf-8")
    return lambda expression: json.loads(driver.execute_script(f"{source}; return JSON.stringify({expression})"))


def test_kernels_of_the_playground_are_those_of_npgm(evaluate):
    y = np.concatenate([[0.0], np.geomspace(1e-8, 1e8, 33)])
    for kernel in evaluate("Object.keys(npgm.kernels)"):
        values = evaluate(f"{y.tolist()}.map(npgm.kernels.{kernel})")
        np.testing.assert_allclose(values, npgm.kernels.registry[kernel]().precondition(y), rtol=1e-12, err_msg=kernel)


@pytest.mark.parametrize("lift", ["isotropic", "separable"])
def test_runs_of_the_playground_are_those_of_minimize(evaluate, lift):
    for name in evaluate("Object.keys(npgm.functions)"):
        chosen = f"npgm.functions[{json.dumps(name)}]"
        given = evaluate(chosen)
        reference = {"lift": lift, "kernel": "cosh", "scale": given["scale"]}
        start, lr, momentum = np.array(given["start"]), given["lr"], given["momentum"]
        shown = json.dumps({"start": given["start"], "lr": lr, "momentum": momentum, "steps": 20})
        run = evaluate(f"npgm.run({chosen}, {json.dumps(reference)}, {shown})")

        def fun(x, chosen=chosen):
            value, gradient = evaluate(f"[{chosen}.f({x.tolist()}), {chosen}.grad({x.tolist()})]")
            return value, np.array(gradient, dtype=float)

        _, gradient = fun(start)
        h = 1e-6
        slopes = [(fun(start + h * e)[0] - fun(start - h * e)[0]) / (2 * h) for e in np.eye(2)]
        np.testing.assert_allclose(gradient, slopes, rtol=1e-7, err_msg=name)
        phi = npgm.reference(f"{lift}-cosh", scale=given["scale"])
        options = {"lr": lr, "momentum": momentum, "maxiter": 20, "tol": 0.0, "history": True}
        result = npgm.minimize(fun, start, reference=phi, **options)
        np.testing.assert_allclose(run["norms"], result.history["grad_norm"], rtol=1e-10, err_msg=name)


def test_the_page_runs_and_the_arrow_keys_move_the_start(driver, tmp_path):
    page = (PAGE.parent / "playground.md").read_text(encoding="utf-8").partition("# Playground")[2]
    html = page.replace("../playground/", f"{PAGE.as_uri()}/")
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8><body>{html}", encoding="utf-8")
    driver.get_log("browser")
    driver.get((tmp_path / "page.html").as_uri())
    status = driver.find_element("name", "status")
    before = status.text
    assert before.startswith("isotropic cosh: ‖∇f‖ = ")
    driver.find_element("css selector", "#npgm-playground canvas").send_keys(Keys.ARROW_LEFT)
    assert status.text != before
    driver.find_element("name", "function").send_keys("exp")
    WebDriverWait(driver, 20).until(lambda _: "diverged: gradient descent" in status.text)
    assert len(driver.find_elements("css selector", "#npgm-playground .uplot canvas")) == 2
    assert driver.get_log("browser") == []
