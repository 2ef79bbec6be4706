import os
import re
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import npgm
from npgm import _native
from pages import ROOT


def test_the_version_is_the_same_everywhere():
    written = {
        "pyproject.toml": r'^version = "(.+)"$',
        "src/npgm/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "conda/recipe.yaml": r"^  version: ([\d.]+)$",
    }
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in (*written, "CHANGELOG.md")}
    found = {name: re.findall(pattern, texts[name], re.MULTILINE) for name, pattern in written.items()}
    assert found == {name: [npgm.__version__] for name in written}
    latest = re.findall(r"^## (\S+)", texts["CHANGELOG.md"], re.MULTILINE)[0]
    assert latest in ("Unreleased", npgm.__version__)


def test_the_recipe_and_the_package_need_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {*project["project"]["dependencies"], *project["build-system"]["requires"]}
    recipe = re.findall(
        r"^    - (\S+ >=\S+)$", (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {entry.replace(" ", "") for entry in recipe} == needed


def test_the_text_for_a_package_index_has_only_links_that_lead():
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    assert shown.startswith("# npgm\n")
    assert "npgm.minimize(fun" in shown
    assert re.findall(r"\]\((?!https://)", shown) == []


def test_import_needs_the_core_alone_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "for name in ('torch', 'jax', 'polars', 'matplotlib', 'typer', 'rich', 'pooch', 'joblib'):\n"
        "    sys.modules[name] = None\n"  # makes an import of it fail
        "import npgm\n"
        "import numpy as np\n"
        "assert npgm.minimize(lambda x: (0.5 * x @ x, x), np.ones(2), lr=0.5).success\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.slow
def test_import_loads_what_is_used_and_no_more():
    code = (
        "import sys, npgm\n"
        "loaded = lambda *names: [m for m in sys.modules if m.startswith(names)]\n"
        "lazy = ['problems', 'proximal', 'solvers', 'theory']\n"
        "assert not loaded('numpy', 'scipy', 'torch', 'jax', 'importlib.metadata'), loaded('scipy', 'importlib.metadata')\n"
        "assert npgm.Cosh is npgm.kernels.Cosh and not loaded('scipy')\n"
        "assert not loaded(*(f'npgm.{name}' for name in lazy))\n"
        "assert {*lazy, 'minimize', 'Cosh', 'reference'} <= {*dir(npgm)}\n"
        "assert 'double-well' in npgm.problems.registry and 'adgd' in npgm.solvers.registry\n"
        "assert not loaded('npgm.theory', 'scipy.stats')\n"
        "assert npgm.torch.IHGD and npgm.optax.ihgd and npgm.jax.minimize\n"
        "assert not loaded('torch._dynamo', 'npgm.lab.experiments')\n"
        "from npgm import *\n"
        "assert theory.certify and minimize is npgm.minimize is npgm.solvers.minimize\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_what_the_package_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'npgm' has no attribute 'maximize'"):
        npgm.maximize  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'maximize'"):
        from npgm import maximize  # noqa: F401


@pytest.mark.parametrize("module", ["npgm.lab.cli", "typer", "numpy", "npgm.lab.experiments"])
def test_an_interrupt_during_the_import_is_quiet(module):
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == '{module}':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from npgm.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")  # 130 to a shell


@pytest.mark.slow
def test_an_interrupted_command_is_quiet():
    code = (
        "import os, signal, sys\n"
        "from npgm.lab import theory_commands\n"
        "theory_commands.new_table = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['npgm', 'kernels']\n"
        "from npgm.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_little_is_imported_before_an_interrupt_is_quiet():
    code = (
        "import sys; before = {*sys.modules}\n"
        "import npgm.__main__\n"
        "loaded = {name for name in {*sys.modules} - before if name.startswith('npgm')}\n"
        "assert loaded == {'npgm', 'npgm.__main__'} and not {'numpy', 'typing'} & ({*sys.modules} - before), loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_says_what_it_needs():
    code = "import sys; sys.modules['typer'] = None; from npgm.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "npgm: the command line needs the package typer; install npgm[experiments]"


@pytest.mark.parametrize("name", npgm.__all__)
def test_public_names_are_documented(name):
    text = getattr(npgm, name).__doc__
    assert text
    assert not text.startswith(f"{name}(")  # what `dataclass` writes where there is nothing


def test_python_numbers_are_accepted():
    assert float(npgm.Cosh().precondition(1.5)) == np.arcsinh(1.5)


@pytest.mark.slow
def test_without_the_module_the_package_says_how_to_get_it():
    code = (
        "import sys; sys.modules['npgm._native._core'] = None\n"
        "import torch, npgm.torch\n"
        "p = torch.nn.Parameter(torch.ones(2)); p.grad = torch.ones(2)\n"
        "npgm.torch.SHGD([p], lr=0.5).step()\n"
        "assert (p < 1).all()\n"
        "try:\n"
        "    npgm.torch.SHGD([p], lr=0.5, fused=True)\n"
        "except RuntimeError as error:\n"
        "    assert 'install npgm again with a C++20 compiler' in str(error), error\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif("NPGM_PURE_PYTHON" in os.environ, reason="asked to do without")
def test_the_native_module_is_built():
    assert _native.available(), "install npgm again; the tests of the fused steps would be skipped"
