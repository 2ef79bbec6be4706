"""``npgm bench``."""

import json
import subprocess
import sys

import pytest

import commands
from npgm.lab.bench.steps import runner
from npgm.lab.bench.steps.cases import PRESETS, SETS, Layout, Preset
from npgm.lab.bench.steps.contenders import contenders


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SETS, "tiny", (Layout("tiny", ((3, 4), (5,))),))
    monkeypatch.setitem(PRESETS, "quick", Preset(("tiny",), rounds=2, largest=1000, compiled=False))


@pytest.fixture(autouse=True)
def quick_estimates(monkeypatch):
    monkeypatch.setattr(runner, "_ENTRIES", 100)
    monkeypatch.setattr(runner, "_TENSORS", 3)


def bench(*arguments, status=0):
    return commands.npgm("bench", *arguments, status=status, columns=80)


@pytest.mark.slow
def test_bench_prints_and_writes(tiny, tmp_path):
    paths = {"--json": tmp_path / "a" / "bench.json", "--plot": tmp_path / "b" / "bench.svg"}
    printed = bench(
        "--dtypes", "float32", "--threads", 1, "--device", "cpu", *(x for pair in paths.items() for x in pair)
    )  # fmt: skip
    assert "tiny, float32, 1 thread" in printed
    assert "ratios meet their aims" in printed
    content = json.loads(paths["--json"].read_text())
    assert [entry["parameters"] for entry in content["layouts"] + content["growth"]] == [17, 1000]
    assert "<svg" in paths["--plot"].read_text()


def test_an_interruption_has_its_exit_code(tiny, monkeypatch, tmp_path):
    def interrupt(work):
        raise KeyboardInterrupt

    monkeypatch.setitem(contenders, "memory", interrupt)
    bench("--no-growth", "--json", tmp_path / "a.json", "--plot", tmp_path / "a.png", status=130)
    assert json.loads((tmp_path / "a.json").read_text())["layouts"] == []
    assert not (tmp_path / "a.png").exists()


BAD = "--preset x, --layouts x, --dtypes x, --device x, --threads 0, --rounds 0, --size -1, --plot bench.x, --json /"


@pytest.mark.parametrize("argument", BAD.split(", "))
def test_bad_arguments_exit_with_2(argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bench(*argument.split(), status=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_without_torch_it_says_what_to_install():
    code = (
        "import sys\n"
        "class WithoutTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, WithoutTorch())\n"
        "from npgm.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "bench"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "npgm: the benchmark needs the package torch; install npgm[experiments]"
