"""Draw the figure of the README: the lengths of steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import npgm
from npgm.lab.plot import Line, Panel, Plot, numbers


def main() -> None:
    """Draw the length of a step against the norm of the gradient, beside this file."""
    norms = np.geomspace(1e-2, 1e3, 200)
    lengths = {
        "GD": norms,
        "iHGD": [npgm.Isotropic(npgm.Cosh()).precondition(np.array([r]))[0] for r in norms],
        "clipping": np.minimum(norms, 1.0),
        "NGD": [npgm.Isotropic(npgm.Log()).precondition(np.array([r]))[0] for r in norms],
    }
    panel = Panel(
        lines=[Line(label=label, x=numbers(norms), y=numbers(length)) for label, length in lengths.items()],
        xlabel="‖∇f‖/λ", ylabel="length of the step/γ", xscale="log", yscale="log", ylim=(5e-3, 30.0),
    )  # fmt: skip
    Plot(rows=[[panel]], width=4.7).draw(Path(__file__).with_name("steps.svg"))


if __name__ == "__main__":
    main()
