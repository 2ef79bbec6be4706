"""The stepsizes found, beside the paper's: a table in Markdown, and methods in TOML for a specification."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import tomli_w

from npgm.lab.experiments.page import table
from npgm.lab.experiments.spec import Experiment, Setting
from npgm.lab.experiments.summary import over_starts, setting_name
from npgm.lab.experiments.tuning.tune import NEGLIGIBLE, SPREAD, Tuned, spread
from npgm.lab.files import make_writable, replacing


def write_table(experiment: Experiment, preset: str, output: Path, tuned: Sequence[Tuned]) -> list[Path]:
    """Write what was found and return the files: the table, and for each setting the methods with their stepsizes.

    They are ``<output>/<experiment>/tuning/<preset>.md`` and, with the setting in the name, ``<preset>.toml``, whose
    ``[settings]`` and ``[[methods]]`` are those of a specification.
    """
    folder = make_writable(output / experiment.key / "tuning")
    texts = {f"{preset}.md": "\n\n".join(_sections(experiment, preset, tuned)) + "\n"}
    for setting, entries in _by_setting(tuned):
        name = "-".join((preset, *(f"{key}{value}" for key, value in setting.items())))
        texts[f"{name}.toml"] = _specification(preset, entries)
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


def _sections(experiment: Experiment, preset: str, tuned: Sequence[Tuned]) -> Iterable[str]:
    measure, starts = experiment.symbol(experiment.measure), experiment.starts_are
    yield f"# Stepsizes: {experiment.title}"
    yield (
        f"{experiment.origin}, preset `{preset}`: {experiment.scope(experiment.preset(preset))}. "
        f"Tune with `{experiment.command('tune', preset)}`."
    )
    if preset != "paper":
        yield f"What is best for the length of the preset `{preset}` need not be for that of `paper`."
    before = "the paper's γ" if experiment.source else "γ before"
    head = ("method", before, "γ found", f"{measure} at {before}", f"{measure} at γ found",
            f"{starts} at γ found, worst / best", "trials")  # fmt: skip
    for setting, entries in _by_setting(tuned):
        if setting:
            yield f"## {setting_name(setting)}"
        yield table(head, (_row(experiment, entry) for entry in entries))
    if experiment.tuning_seed is not None:
        yield (
            f"The least {measure} at the end was searched with seed {experiment.tuning_seed}, which is none of those "
            "of the table, on grids that are the same for all methods: seven γ with ratios of 2, each with λ, or the "
            "radius of clipping, as it was, a tenth and ten times of it, unless the table says that this was not done."
            " A grid whose best is at its edge went on."
        )
        for setting, entries in _by_setting(tuned):
            if any(entry.by_radius for entry in entries):
                yield "## " + ", ".join(filter(None, ("Best γ by λ, or by the radius", setting_name(setting))))
                rows = ((entry.before.label, *row) for entry in entries for row in entry.by_radius)
                columns = ("method", "λ or radius", "best γ", f"least {measure}")
                yield table(columns, ((label, *(f"{value:.4g}" for value in row)) for label, *row in rows))
        return
    listed = ", ".join(f"{lr:g}" for lr in experiment.sweep)
    where = f"over {listed}" if listed else "on an adaptive grid about the paper's γ"
    yield (
        f"The least {measure} at the end was searched on the first of the {starts}, {where}. "
        f"The {starts} agree where none diverges and the worst is at most {SPREAD:g} times the best, where values "
        f"below {NEGLIGIBLE * experiment.converged_below:g} count as that. While they do not, the next lower γ "
        f"that was tried is taken, unless its worst is worse."
    )


def _by_setting(tuned: Sequence[Tuned]) -> Iterable[tuple[Setting, list[Tuned]]]:
    return ((setting, list(entries)) for setting, entries in itertools.groupby(tuned, key=lambda entry: entry.setting))


def _row(experiment: Experiment, entry: Tuned) -> list[str]:
    ratio = spread(experiment, entry.values_after)
    agreement = "diverged" if ratio == math.inf else "one only" if len(entry.values_after) == 1 else f"{ratio:.3g}"
    if ratio > SPREAD:
        agreement += ", do not agree"
    lr = entry.after.options["lr"]
    lowered = f", lowered from {entry.best:.3g}" if entry.best != lr else ""
    radii = entry.before.radius, entry.after.radius
    radius = f", λ or radius {radii[1]:.3g} in place of {radii[0]:.3g}" if radii[0] != radii[1] else ""
    if entry.before.fixed_radius:
        radius = f", λ or radius {radii[0]:.3g} not searched"
    return [
        entry.before.label, f"{entry.before.options['lr']:.3g}", f"{lr:.3g}{lowered}{radius}",
        _measure(experiment, entry.values_before), _measure(experiment, entry.values_after), agreement,
        f"{entry.trials}{', search not finished' if entry.limited else ''}",
    ]  # fmt: skip


def _measure(experiment: Experiment, values: Sequence[float]) -> str:
    if diverged := values.count(math.inf):
        return f"{diverged} of {len(values)} diverged"
    return over_starts(experiment, experiment.measure, pl.Series(values))


def _specification(preset: str, tuned: Sequence[Tuned]) -> str:
    """Return methods as in a specification, with the setting for which they were tuned."""
    setting = {name: [value] for name, value in tuned[0].setting.items()}
    methods = [_method(preset, entry) for entry in tuned]
    return tomli_w.dumps({"settings": setting, "methods": methods} if setting else {"methods": methods})


def _method(preset: str, entry: Tuned) -> dict[str, Any]:
    method = entry.after
    if method != entry.before:
        # in place of a note that may be on the stepsize
        note = f"stepsize tuned at the preset {preset}, from {entry.before.options['lr']:g}"
        method = dataclasses.replace(method, note=note)
    return {key: value for key, value in dataclasses.asdict(method).items() if value}
