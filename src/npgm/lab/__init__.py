"""What measures, reproduces and draws: experiments, benchmarks, data, networks and the command line.

It imports the library; nothing of the library imports it.
"""
