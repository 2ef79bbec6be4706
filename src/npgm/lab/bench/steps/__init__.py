"""Benchmarks of an optimizer's step: ratios to torch's optimizers and to memory itself, measured in one run.

`cases` says what is measured, `contenders` who takes part, `measure` how, and `runner` does it all.
"""
