"""Nested arguments and results as flat leaves: the functions of `torch.utils._pytree` that we use (2.6 to 2.15)."""

from __future__ import annotations

from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

__all__ = ["tree_leaves", "tree_map", "tree_map_only"]
