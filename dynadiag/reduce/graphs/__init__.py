"""Reduction of a captured graph: what a candidate is, how it is run and judged, what makes it simpler."""
