"""Judgement: exact worth in a world, sampled worth, estimates from the log, and diagnostics of values."""
