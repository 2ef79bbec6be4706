"""Solver runs: a problem minimised from several starts at once."""
