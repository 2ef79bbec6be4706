"""Kernels, methods, problems and experiments of a user's own, in every process; the blocks of CONTRIBUTING are the user's."""

import re
import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import commands
import npgm
import processes
from npgm._common import registry

PAGE = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
SPECIFICATION, ENTRY_POINTS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(COMMAND,) = re.findall(r"```sh\n(npgm .*?)\n```", PAGE)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "valley-descent.toml").write_text(SPECIFICATION)
    return tmp_path


def run(folder, call):
    process = processes.start(call, folder / "output")
    process.join()
    assert process.exitcode == 0, (folder / "output").read_text()


def rows(folder):
    text = (folder / "results" / "valley-descent" / "smoke" / "report.md").read_text()
    return re.findall(r"\| condition = \S+ \| [\w ]+ \| (\d of \d) ", text)


@pytest.mark.slow
def test_the_command_runs_what_is_in_the_current_folder(folder):
    assert COMMAND.startswith("npgm ")
    code = f"import commands; commands.program(*{COMMAND.split()[1:]}, '--jobs', '2')"
    run(folder, partial(commands.script, code, folder))
    assert rows(folder) == ["2 of 2"] * 4
    report = (folder / "results" / "valley-descent" / "smoke" / "report.md").read_text()
    assert "`npgm --import mine reproduce valley-descent.toml --preset smoke`" in report
    assert "preset `paper`" not in report


@pytest.mark.slow
def test_what_a_script_registers_reaches_its_processes(folder):
    code = (
        CODE + "\nfrom pathlib import Path\nfrom npgm.lab import experiments\n"
        "if __name__ == '__main__':\n"
        "    mine = experiments.load(Path('valley-descent.toml'))\n"
        "    experiments.write_report(mine, 'smoke', experiments.run(mine, 'smoke', Path('results'), jobs=2))\n"
    )
    run(folder, partial(commands.script, code, folder))
    assert rows(folder) == ["2 of 2"] * 4


@pytest.mark.slow
def test_an_installed_package_is_found(folder):
    (folder / "mine").mkdir()
    (folder / "mine.py").rename(folder / "mine" / "__init__.py")
    (folder / "mine" / "specs").mkdir()
    (folder / "valley-descent.toml").rename(folder / "mine" / "specs" / "valley-descent.toml")
    installed = folder / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    groups = re.sub(r'\[project\.entry-points\."(.*?)"\].*', r"[\1]", ENTRY_POINTS).replace('"', "")
    assert groups.startswith("[npgm.kernels]")
    (installed / "entry_points.txt").write_text(
        groups.replace(
            "[npgm.kernels]", "[npgm.methods]\nmine = mine\n\n[npgm.instances]\nmine = mine\n\n[npgm.kernels]"
        )
    )
    code = (
        "import sys, commands, npgm\n"
        "sys.path.append('..')\n"
        "assert 'mine' not in sys.modules\n"
        "npgm.reference('separable-halfcosh'), npgm.solvers.sign\n"
        "commands.program('reproduce', 'valley-descent', '--preset', 'smoke')\n"
    )
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    run(elsewhere, partial(commands.script, code, elsewhere))
    assert rows(elsewhere) == ["2 of 2"] * 4


def test_the_kernel_is_one(folder):
    scope = {"__name__": "mine"}
    exec(CODE, scope)
    try:
        kernel, y = npgm.kernels.registry["halfcosh"](), np.linspace(-9.0, 9.0, 19)
        x = kernel.precondition(y)
        np.testing.assert_allclose(kernel.gradient(x), y, rtol=1e-12)
        np.testing.assert_allclose(kernel(x) + kernel.conjugate(y), x * y, rtol=1e-12)
        np.testing.assert_allclose(
            (kernel.precondition(y + 1e-6) - kernel.precondition(y - 1e-6)) / 2e-6, kernel.curvature(y), rtol=1e-8
        )
        assert {known.kind for known, _ in registry.extensions()} >= {"kernel", "solver", "instance"}
    finally:
        for known, entries in registry.extensions():
            for key in entries:
                del known[key]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--import", "nothing_of_the_kind", "kernels"], "--import nothing_of_the_kind: No module named"),
        (["reproduce", "./nothing.toml"], "No such file or directory"),
        (["reproduce", "./mnist.toml"], "there is an experiment 'mnist' already; give the file another name"),
        (["reproduce", "./valley-descent.toml"], "unknown reference 'isotropic-halfcosh'"),
    ],
)
def test_what_a_user_can_mend_is_one_line(folder, monkeypatch, arguments, message):
    (folder / "mnist.toml").write_text(SPECIFICATION)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which --import adds the folder
    assert message in commands.refused(*arguments)


def test_an_entry_point_that_fails_is_a_warning(monkeypatch):
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [EntryPoint("broken", "nowhere_at_all", group)]
    )
    monkeypatch.setattr(registry, "_all", [])
    things = registry.Registry("thing", __name__, "npgm.things")
    with pytest.warns(
        RuntimeWarning,
        match=r"the entry point 'broken' of npgm\.things \(nowhere_at_all\) cannot be loaded: ModuleNotFound",
    ):
        assert "x" not in things
    things["x"] = 1
    assert dict(things) == {"x": 1}  # and asks no more
