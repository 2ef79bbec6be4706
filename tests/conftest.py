import gc
import os
import shutil
import signal

import pytest

CHROMIUM = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--force-device-scale-factor=1")  # fmt: skip


def pytest_configure():
    """Processes that tests start can be interrupted, though this one runs in the background of a shell."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection(session):
    """Set up what takes seconds to import, for which the process that only starts those of pytest-xdist would wait.

    There is one seed, that of pytest-randomly, which prints it, for the order of the tests, their data and Hypothesis.
    """
    import jax
    import torch
    from hypothesis import HealthCheck, core, settings

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    jax.config.update("jax_enable_x64", True)
    # most of the time goes into compiling what runs once
    jax.config.update("jax_disable_most_optimizations", True)
    if jax.__version_info__ >= (0, 10):  # others may not know the flag, and would end the process
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    settings.register_profile("npgm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("npgm")
    if core.global_force_seed is None and (seed := session.config.getoption("randomly_seed", None)) is not None:
        core.global_force_seed = seed


def pytest_collection_finish():
    """What was imported stays, and no garbage collection goes through it again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _torch_is_seeded():
    import torch

    # as pytest-randomly does for NumPy and the standard library; `manual_seed` itself takes a millisecond without a GPU
    (torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed)(0)


@pytest.fixture(scope="session")
def ratings():
    """The real MovieLens 100K matrix, through the real sources, which are not there with the oldest versions of the core."""
    pytest.importorskip("PIL")
    from npgm.lab.data import load
    from npgm.lab.data.movielens import rating_matrix

    return rating_matrix(load("movielens-100k"))


@pytest.fixture(params=["native", "arrays"])
def solver_path(request):
    """Both ways on which `npgm.minimize` steps on NumPy arrays: by the native module, and as the methods themselves say."""
    from backends import without_native

    if request.param == "native":
        yield
    else:
        with without_native():
            yield


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Chromium without a screen, one for all tests of a process."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs the Debian packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*CHROMIUM, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, Service(chromedriver)) as opened:
        yield opened
