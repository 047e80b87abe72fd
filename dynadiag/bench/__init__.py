"""`dynadiag bench`: is the compiled program faster on this machine, and is it still right?"""

from dynadiag.bench.marks import benchmark

__all__ = ["benchmark"]
