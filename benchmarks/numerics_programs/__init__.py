"""Planted faults and right programs for `benchmarks/numerics.py`."""
