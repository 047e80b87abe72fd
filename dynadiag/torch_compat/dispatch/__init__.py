"""Operators, modes and torch's global state."""
