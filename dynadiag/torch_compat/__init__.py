"""The only door to torch's private names: cut by torch's areas, each of them usable where dynadiag itself is not installed.

Nothing here imports torch when it is imported; modules that torch has loaded are looked up when a hook is put in. A name that a torch
version lacks is reported as the health of that hook (`Hooks.health`), never raised.
"""
