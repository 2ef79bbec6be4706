"""The figure of a certificate."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npgm.lab.style import FAINT, INK, STYLES, blank, drawing, save
from npgm.theory.certify import Report


@drawing()
def plot(report: Report, path: str | Path) -> None:
    """Draw each bound (dashed) and the observed quantity (solid) against the iteration; needs Matplotlib.

    A bound is drawn thin where it is vacuous.

    Args:
        report: the certificate.
        path: the file, whose ending says the format.
    """
    quantities = list(dict.fromkeys(c.bound.quantity for c in report.certificates))
    figure = blank(5.0 * max(len(quantities), 1), 3.6)
    for ax, quantity in zip(figure.subplots(1, max(len(quantities), 1), squeeze=False)[0], quantities, strict=False):
        shown = [c for c in report.certificates if c.bound.quantity == quantity]
        observed = np.min([c.observed for c in shown], axis=0)  # V of Theorem 2.4 has a weight for each form of it
        said = ~np.isnan(observed)
        k, marker = np.flatnonzero(said), "" if said.sum() > len(said) / 2 else "o"
        ax.plot(k, observed[said], marker=marker, color=INK, label="observed")
        for certificate, (color, _) in zip(shown, STYLES, strict=False):
            values = certificate.bound.values
            label = f"{certificate.bound.theorem} ({certificate.bound.provenance})"
            ax.plot(k, values[said], color=color, linestyle="--", linewidth=0.7)
            useful = np.where(certificate.bound.vacuous, np.nan, values)[said]
            ax.plot(k, useful, color=color, linestyle="--", marker=marker, label=label)
        ax.set(yscale="log", xlabel="iteration", title=quantity)
        ax.grid(color=FAINT, linewidth=0.6)
    figure.suptitle(f"{report.verdict}: {report.reason}", fontsize="small", wrap=True)
    save(figure, Path(path))
