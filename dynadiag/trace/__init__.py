"""Reads torch's structured trace and text logs into a `Run`, without torch."""

from dynadiag.trace.graph_text import argument_names, graph_nodes, signature
from dynadiag.trace.load import load
from dynadiag.trace.payloads import NodeStacks, aot_metadata, graph_details, probe_result, read_payload, side_effects
from dynadiag.trace.rank_logs import usable_processors

__all__ = [
    "NodeStacks",
    "aot_metadata",
    "argument_names",
    "graph_details",
    "graph_nodes",
    "load",
    "probe_result",
    "read_payload",
    "side_effects",
    "signature",
    "usable_processors",
]
