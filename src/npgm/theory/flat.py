"""Reference functions on flat vectors."""

from __future__ import annotations

from npgm.references import Reference, Spectral, as_reference


def on_vectors(reference: Reference | str, n: int) -> Reference:
    """Return φ, as a function of the vectors of ℝⁿ.

    Raises:
        ValueError: if φ is spectral, for which a vector is a matrix of one column, and n > 1.
    """
    phi = as_reference(reference)
    if isinstance(phi, Spectral) and n > 1:
        raise ValueError(
            f"reference {phi.name!r} sees a vector of {n} entries as one column, on which it is isotropic; "
            f"name the matrices in it: npgm.Blocks({phi!r}, [(rows, columns)])"
        )
    return phi
