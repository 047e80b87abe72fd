"""Agreement of the probe with AOTAutograd's own metadata, graph by graph, and which of the recorded graphs run."""

from dynadiag import trace
from dynadiag.errors import NotRebuildableError
from dynadiag.fx.rebuild import RebuildOptions
from dynadiag.fx.running import rebuild_and_try

AOT_KINDS = ("data", "metadata", "storage")


def theirs(metadata):
    """Index, kinds and place of each input that AOTAutograd calls mutated."""
    found = {}
    for index, one in enumerate(metadata.inputs):
        if one.is_mutated:
            replaced = one.replaces_storage or one.resizes_storage
            kinds = ["storage"] if replaced else [kind for kind in ("data", "metadata") if getattr(one, f"mutates_{kind}")]
            found[index] = (tuple(kinds), "in_graph" if one.in_graph else "epilogue")
    return found


def ours(probed):
    told = {one.index: (tuple(kind for kind in one.kinds if kind in AOT_KINDS), one.where) for one in probed.mutations or ()}
    return {index: found for index, found in told.items() if found[0]}


def compare(run, epoch=None):
    """(graphs with metadata, mutated inputs, what differs) over all Dynamo graphs of a run, or of one reset epoch of it."""
    epochs = {frame.id: frame.key.epoch for frame in run.frames}
    metadata = {(one.frame, one.attempt): trace.aot_metadata(one.payload) for one in run.mutation_records if one.kind == "aot_metadata"}
    graphs, inputs, differ = 0, 0, []
    for graph in run.graphs:
        said = metadata.get((graph.frame, graph.attempt))
        if graph.kind != "dynamo" or said is None or epoch not in (None, epochs[graph.frame]):
            continue
        graphs, inputs = graphs + 1, inputs + len(theirs(said))
        probed = trace.probe_result(graph.probe)
        if probed.error is not None or ours(probed) != theirs(said):
            differ.append((graph.id, probed.error, ours(probed), theirs(said)))
    return graphs, inputs, differ


def runnable(run):
    """(graphs that run, all graphs, why not by id) over graphs of every kind."""
    why_not = {}
    for graph in run.graphs:
        try:
            details = trace.graph_details(graph.details) if graph.details is not None else None
            trial = rebuild_and_try(trace.read_payload(graph.text), details=details, options=RebuildOptions(device="cpu"))[1]
            reason = trial.why_not
        except NotRebuildableError as error:
            reason = error.message
        if reason is not None:
            why_not[graph.id] = reason
    return len(run.graphs) - len(why_not), len(run.graphs), why_not
