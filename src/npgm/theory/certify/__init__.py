"""Certificates: they compare a run with the bound of each theorem that applies, and say why the others do not.

>>> import npgm
>>> problem = npgm.problems.registry["cosh-sum"](c=2.0)
>>> phi = npgm.reference("separable-cosh")
>>> run = npgm.minimize(problem, problem.start, lr=0.5, reference=phi, maxiter=50, history=True)
>>> constants = problem.constants(phi, n=1)
>>> report = npgm.theory.certify.deterministic(
...     run.history, smoothness=constants.smoothness, pl=constants.pl, minimum=problem.minimum(1), exact=True
... )
>>> report.verdict, [certificate.bound.theorem for certificate in report.certificates]
('holds', ['The base bound', 'Theorem 2.2', 'Theorem 2.4, refined'])
>>> report.refused["Theorem 2.4"]
'Theorem 2.4 does not apply: it assumes β > 0, but β = 0'

γ, β and φ are read from the history. A certificate is as good as its constants: from estimates (see
`npgm.theory.smoothness`) it is empirical.
"""

from npgm.theory.certify.inequality import descent
from npgm.theory.certify.report import Certificate, Report
from npgm.theory.certify.rounding import resolution
from npgm.theory.certify.runs import deterministic
from npgm.theory.certify.searches import auto
from npgm.theory.certify.seeds import growing_batches, simulate, stochastic

__all__ = [
    "Certificate",
    "Report",
    "auto",
    "descent",
    "deterministic",
    "growing_batches",
    "resolution",
    "simulate",
    "stochastic",
]
