"""Listening: torch's trace, its profiler, stacks, and hooks in the user's process."""
