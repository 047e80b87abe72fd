"""Reads torch's structured trace and text logs into a `Run`, without torch."""

from dynadiag.trace.graph_nodes import graph_nodes
from dynadiag.trace.load import load
from dynadiag.trace.payloads import graph_details, read_payload

__all__ = ["graph_details", "graph_nodes", "load", "read_payload"]
