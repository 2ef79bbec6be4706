"""How close runs come to the bounds: never above, and for each theorem once above 0.4."""

import npgm
from npgm.lab.bench import bounds


def largest(cases):
    return {theorem: max(case.ratio for case in found) for theorem, found in bounds.by_theorem([*cases]).items()}


def test_bounds_hold_and_are_not_far_off():
    random = largest(bounds.random_runs(sorted(npgm.problems.registry), runs=1, iterations=15, seeds=3))
    known = largest(bounds.known_runs())
    assert {kind.theorem for kind in bounds.KINDS} <= set(random) == set(known)
    assert max([*random.values(), *known.values()]) <= 1.0 + 1e-9
    assert min(known.values()) > 0.4
