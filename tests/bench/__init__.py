"""What the README claims about speed, measured: ``python -m tests.bench``, with ``--write`` into the README.

Every row is a ratio against a peer in the same run, medians of interleaved repetitions; no test asserts a time, because
machines differ and are shared.
"""
