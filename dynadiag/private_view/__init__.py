"""Runs of the user's program that leave no file behind: copy-on-write where the kernel lets us, else each file is put back after the run.

The network cannot be kept apart; what a run connected to is noted. Standard library only: the launcher runs as `python -I -S`.
"""
