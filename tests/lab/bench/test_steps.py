"""`npgm.lab.bench`: what is measured, that it is measured, and what is made of it; never how long it takes."""

import io
import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch.optim import SGD

from npgm import _native
from npgm.lab.bench.steps import figure, runner
from npgm.lab.bench.steps.cases import LAYOUTS, PRESETS, Case, Layout, growing
from npgm.lab.bench.steps.contenders import COMPILED, GROWTH, LOOP, MOST_COMPILED, SPECTRAL, Workload, contenders
from npgm.lab.bench.steps.measure import LOOP_ROUNDS, measure, memory, shortage
from npgm.lab.bench.steps.results import PAIRS, Result, Results

needs_native = pytest.mark.skipif(not _native.available(), reason="built without the native module")

TINY = Layout("tiny", ((3, 4), (5,)))
FEW = ("memory", "memory, momentum", "SGDm", "sHGD", "sHGDm")
EAGER = tuple(name for name in contenders if name not in (COMPILED, *SPECTRAL))


@pytest.fixture(autouse=True)
def quick_estimates(monkeypatch):
    monkeypatch.setattr(runner, "_ENTRIES", 100)
    monkeypatch.setattr(runner, "_TENSORS", 3)
    monkeypatch.setattr("npgm.lab.bench.steps.measure.SHORTEST", 1e-6)  # of a timing, which is then of one step


def case(layout=TINY, dtype="float32", device="cpu", threads=1, rounds=2, size=1.0, names=FEW):
    return Case(layout, dtype, device, threads, rounds, size, names)


def result(seconds, left_out=None, **options):
    return Result(case(names=tuple(seconds), **options), seconds, left_out or {})


def run(plan, folder):
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    results = runner.run(plan, folder / "out" / "bench.json", folder / "out" / "bench.png", console)
    return results, stream.getvalue()


@pytest.mark.parametrize(
    ("key", "tensors", "size"),
    [
        ("one-tensor", 1, 11_000_000),
        ("resnet18", 62, 11_689_512),
        ("gpt2", 148, 124_439_808),
        ("many-tensors", 10_000, 10_000_000),
    ],
)
def test_layouts_have_the_sizes_of_their_networks(key, tensors, size):
    assert len(LAYOUTS[key].shapes) == tensors
    assert LAYOUTS[key].size == size


@pytest.mark.slow
def test_gpt2_is_that_of_transformers():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    assert sorted(tuple(p.shape) for p in model.parameters()) == sorted(LAYOUTS["gpt2"].shapes)


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_contender_is_timed_in_every_round(dtype):
    measured = measure(case(dtype=dtype, rounds=LOOP_ROUNDS + 1, names=EAGER))
    assert not measured.left_out
    assert list(measured.seconds) == list(EAGER)
    for name, seconds in measured.seconds.items():
        assert len(seconds) == (LOOP_ROUNDS if name == LOOP else LOOP_ROUNDS + 1)
        assert min(seconds) > 0
    assert {(r.step, r.against) for r in measured.ratios()} == {p for p in PAIRS if not {COMPILED, *SPECTRAL} & {*p}}


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this release of torch has no Muon")
def test_matrices_are_stepped_beside_muon():
    (plan,) = runner.plan(layouts=["matrices"], dtypes=["float32"], threads=[1], devices=["cpu"], growth=False).layouts[
        :1
    ]
    assert plan.contenders == SPECTRAL
    work = Workload(case(Layout("two matrices", ((3, 5), (6, 4)))))
    moves = []
    for name in SPECTRAL:
        step, before = contenders[name](work), [p.detach().clone() for p in work.parameters]
        for p in work.parameters:
            p.data.zero_()
        step()
        moves.append(torch.cat([p.detach().flatten() for p in work.parameters]))
        for p, value in zip(work.parameters, before, strict=True):
            p.data.copy_(value)
    # each about orthogonal, hence along the same direction, however rough Muon's iteration is
    for move in moves:
        assert torch.cosine_similarity(move, moves[-1], dim=0) > 0.95


@pytest.mark.parametrize("name", EAGER)
def test_a_contender_moves_every_parameter(name):
    if not _native.available() and name in ("sHGD", "sHGDm", "iHGD", "iHGDm"):
        pytest.skip("built without the native module")
    work = Workload(case(dtype="float64"))
    step = contenders[name](work)
    before = [p.detach().clone() for p in work.parameters]
    step()
    assert all((p != q).all() for p, q in zip(work.parameters, before, strict=True))


def test_optimizers_share_their_states():
    work = Workload(case())
    first, second = (SGD(work.parameters, 0.1, 0.9, foreach=foreach) for foreach in (True, False))
    work.step_of(first)
    work.step_of(second)
    for p in work.parameters:
        assert first.state[p]["momentum_buffer"] is second.state[p]["momentum_buffer"]


def test_gradients_have_the_size_that_is_asked_for():
    (parameter,) = Workload(case(growing(100_000), size=0.01)).parameters
    assert parameter.grad.std().item() == pytest.approx(0.01, rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method. is deprecated")  # of torch's own import of inductor
def test_a_compiled_step_takes_part_where_there_is_a_compiler():
    measured = measure(case(names=(COMPILED, "memory, momentum")))
    assert len(measured.seconds.get(COMPILED, ())) == 2 or measured.left_out[COMPILED]


@pytest.mark.slow
def test_who_cannot_take_part_is_left_out_with_the_reason(monkeypatch, tmp_path):
    def refuse(work):
        raise RuntimeError("no such thing\nat all")

    monkeypatch.setitem(contenders, "sHGD", refuse)
    many = Layout("many", ((1,),) * (MOST_COMPILED + 1))
    plan = runner.Plan([case(many, names=("memory", "sHGD", COMPILED))], [])
    results, output = run(plan, tmp_path)
    assert results.layouts[0].left_out == {
        "sHGD": "no such thing",
        COMPILED: f"the compiler takes too long for more than {MOST_COMPILED} tensors",
    }
    assert "• sHGD: left out, since no such thing" in output


def test_the_number_of_threads_is_put_back(monkeypatch):
    def fail(work):
        assert torch.get_num_threads() == before + 1
        raise KeyError

    before = torch.get_num_threads()
    monkeypatch.setitem(contenders, "memory", fail)
    with pytest.raises(KeyError):
        measure(case(threads=before + 1))
    assert torch.get_num_threads() == before


def test_ratios_are_of_the_same_round():
    seconds = {"sHGD": [1.0, 4.0, 9.0, 8.0, 5.0], "memory": [1.0, 2.0, 3.0, 2.0, 1.0]}
    ratio = result(seconds, layout=growing(10**7)).ratio("sHGD", "memory")
    assert ratio.values == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert ratio.quartiles == (2.0, 3.0, 4.0)
    assert (ratio.aim, ratio.met) == (1.25, False)


def test_aims_are_met_by_the_median():
    seconds = {"sHGDm": [1.0, 1.0, 9.0], "memory, momentum": [1.0, 1.0, 1.0], "SGDm": [1.0, 1.0, 1.0]}
    met = result(seconds, layout=growing(10**7))
    assert met.ratio("sHGDm", "memory, momentum").met is True
    assert met.ratio("sHGDm", "SGDm").met is None
    many = replace(met, case=replace(met.case, layout=Layout("many", ((1,),) * 1000)))
    assert many.ratio("sHGDm", "SGDm").met is False
    on_a_gpu = replace(met, case=replace(met.case, device="cuda"))
    assert on_a_gpu.ratio("sHGDm", "memory, momentum").aim is None
    assert met.ratio("sHGDm", "Adam") is None


def test_the_loop_has_fewer_rounds():
    ratio = result({"sHGDm": [1.0, 1.0, 1.0, 1.0], LOOP: [10.0, 20.0]}).ratio("sHGDm", LOOP)
    assert ratio.values == (0.1, 0.05)


def test_the_presets_plan_what_they_say():
    quick = runner.plan(threads=[1, 2], devices=["cpu"])
    assert len(quick.layouts) == 3 * 2 * 2
    assert [c.layout.size for c in quick.growth] == [
        1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000, 3_162_278, 10_000_000,
    ]  # fmt: skip
    assert all(COMPILED not in c.contenders for c in quick.layouts)
    full = runner.plan("full", threads=[1], dtypes=["float64"], rounds=2, size=0.1, devices=["cpu"])
    assert [c.layout for c in full.layouts] == list(LAYOUTS.values())
    assert {c.contenders for c in full.layouts} == {tuple(name for name in contenders if name not in SPECTRAL)}
    assert full.growth[-1] == Case(growing(10**8), "float64", "cpu", 1, 2, 0.1, GROWTH)
    assert not runner.plan(growth=False).growth
    twice = runner.plan(layouts=["gpt2", "gpt2"], dtypes=["float32"] * 2, threads=[3, 3], devices=["cpu", "cpu"])
    assert [c.title for c in twice.layouts] == ["GPT-2 of 124 M, float32, 3 threads"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "slow"}, "unknown preset 'slow'; accepted: full, quick"),
        ({"layouts": ["vgg"]}, "unknown layout 'vgg'; accepted: gpt2, many-tensors"),
        ({"dtypes": ["int8"]}, "unknown dtype 'int8'"),
        ({"devices": ["mps"]}, "unknown device 'mps'; accepted: cpu, cuda"),
        ({"threads": [0]}, "threads must be at least 1, not 0"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"size": 0.0}, "size must be positive and finite, not 0.0"),
        ({"size": float("nan")}, "size must be positive and finite, not nan"),
    ],
)
def test_options_that_are_not_accepted(options, message):
    with pytest.raises(ValueError, match=message):
        runner.plan(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match=r"device 'cuda' was requested, but torch .* finds none"):
        runner.plan(devices=["cuda"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_has_rows_of_its_own():
    plan = runner.plan(layouts=["resnet18"], dtypes=["float32"], rounds=1, growth=False)
    assert [c.device for c in plan.layouts] == ["cpu"] * len({c.threads for c in plan.layouts}) + ["cuda"]
    assert {"SGDm", "Adam", "sHGDm, foreach", "iHGDm, foreach"} <= measure(plan.layouts[-1]).seconds.keys()


@pytest.mark.slow
def test_a_run_is_printed_and_written(tmp_path):
    plan = runner.Plan([case(), case(dtype="bfloat16")], [case(growing(10)), case(growing(100))])
    results, output = run(plan, tmp_path)
    assert [r.case for r in results.layouts] == plan.layouts
    assert "4 cases of 2 rounds, expected to take 0:0" in output
    assert "tiny, bfloat16, 1 thread" in output
    assert "one tensor, float32, 1 thread: time of a step / of memory, momentum" in output
    assert all(len(line) <= 80 for line in output.splitlines() if str(tmp_path) not in line)
    content = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert content["interrupted"] is False
    assert content["environment"]["torch"] == torch.__version__
    assert content["environment"]["instruction_set"] in (
        _native.core().instruction_sets() if _native.available() else [None]
    )
    assert [entry["parameters"] for entry in content["layouts"] + content["growth"]] == [17, 17, 10, 100]
    for entry in content["layouts"]:
        assert set(entry["seconds"]) | set(entry["left_out"]) == set(FEW)
        for ratio in entry["ratios"]:
            values = [
                a / b for a, b in zip(entry["seconds"][ratio["step"]], entry["seconds"][ratio["against"]], strict=True)
            ]
            assert ratio["median"] == pytest.approx(sum(values) / 2)
            assert ratio["quartiles"][0] <= ratio["median"] <= ratio["quartiles"][1]
            assert ratio["met"] is (None if ratio["aim"] is None else ratio["median"] <= ratio["aim"])
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_the_tables_fit_80_columns():
    seconds = {name: [123.4, 5.0] for name in contenders}
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    runner.tables.show_layout(result(seconds | {LOOP: [1.0, 2.0]}, layout=LAYOUTS["many-tensors"]), console)
    runner.tables.show_end(Results([], [result(seconds, layout=growing(10**8))], {}), console)
    assert "…" not in stream.getvalue()
    assert all(" / ".join(pair) in stream.getvalue() for pair in PAIRS)
    assert "100,000,000" in stream.getvalue()


@pytest.mark.slow
def test_what_does_not_fit_into_memory_is_skipped(tmp_path):
    huge = Layout("huge", ((10**14,),))
    assert memory(case(huge)) > 10**15
    assert "GiB that are free" in shortage(case(huge))
    assert shortage(case()) is None
    results, output = run(runner.Plan([case(huge), case()], []), tmp_path)
    assert [r.case for r in results.layouts] == [case()]
    assert list(results.skipped) == ["huge, float32, 1 thread"]
    assert "huge, float32, 1 thread: skipped, since it needs about" in output.replace("\n", " ")


@pytest.mark.slow
def test_an_interruption_keeps_what_was_measured(monkeypatch, tmp_path):
    def interrupt(work):
        if work.parameters[0].numel() == 99:
            raise KeyboardInterrupt
        return lambda: None

    monkeypatch.setitem(contenders, "memory", interrupt)
    plan = runner.Plan([case(names=("memory",)), case(growing(99), names=("memory",)), case(names=("SGDm",))], [])
    results, output = run(plan, tmp_path)
    assert results.interrupted
    assert [r.case for r in results.layouts] == plan.layouts[:1]
    assert "interrupted; the measurements so far are kept" in output
    assert json.loads((tmp_path / "out" / "bench.json").read_text())["interrupted"] is True


@pytest.mark.parametrize(
    ("json_path", "plot", "error"),
    [
        ("file/a.json", "a.png", FileExistsError),
        (".", "a.png", IsADirectoryError),
        ("a.json", "a.xyz", ValueError),
        ("a.json", "a", ValueError),
    ],
)
def test_what_cannot_be_written_is_found_out_first(json_path, plot, error, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(error):
        runner.run(runner.Plan([case(Layout("huge", ((10**14,),)))], []), tmp_path / json_path, tmp_path / plot)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_figures_of_parts(tmp_path):
    seconds = {name: [1.0, 2.0, 3.0] for name in contenders}
    aims, growth = (
        result(seconds),
        [result(seconds, layout=growing(n), device=d) for n in (10, 99) for d in ("cpu", "cuda")],
    )
    for name, results in {"aims": Results([aims], [], {}), "growth": Results([], growth, {})}.items():
        assert figure.draw(results, tmp_path / f"{name}.svg")
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert drawn.count("<path") > 20
        assert "prefers-color-scheme" in drawn
    assert not figure.draw(Results([], [], {}), tmp_path / "nothing.svg")
    assert not (tmp_path / "nothing.svg").exists()


def test_presets_name_layouts():
    assert all(set(preset.layouts) <= set(LAYOUTS) for preset in PRESETS.values())


def test_short_steps_have_aims_of_their_own():
    plan = runner.plan(layouts=["small"], dtypes=["float32"], threads=[1], devices=["cpu"], growth=False)
    assert [c.layout.size for c in plan.layouts] == [100, 1348, 10_000, 535_818, 3_200_000, 100_000, 1_000_000]
    seconds = {"iHGDm": [0.6], "clip + SGDm": [1.0], "sHGDm": [1.0], "memory, momentum": [1.0]}
    met = [Result(case, seconds).ratio("iHGDm", "clip + SGDm").met for case in plan.layouts]
    assert met == [False, False, False, True, True, True, True]
    assert all(Result(case, seconds).ratio("sHGDm", "memory, momentum").aim is None for case in plan.layouts)
