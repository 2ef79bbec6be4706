"""Every solver on suites of smooth problems, by the evaluations that each takes."""
