"""Reduction of a whole script: for failures that no graph alone shows (graph breaks, recompiles, a second call, state)."""
