"""In-place writes on tensors that the graph itself makes: functionalization turns them into ordinary values, so they cost nothing."""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.facts.user_frames import is_own_file, normal_path
from dynadiag.model import codes
from dynadiag.model.run import Run
from dynadiag.passes.mutation_errors import inner_name
from dynadiag.passes.mutation_facts import Effect, Fact, Site, site_of
from dynadiag.passes.mutation_graphs import GraphView

_DETAIL = "the tensor is made in the graph: functionalization replaces the write with a new value"


def by_optimizer(site: Site) -> bool:
    """Whether a line of torch.optim writes: what it makes on the way belongs to the optimizer's step."""
    return site.inner is not None and "/torch/optim/" in normal_path(site.inner.file)


def inner_facts(view: GraphView, run: Run) -> Iterator[Fact]:
    """One fact for each variable that the graph makes and code that the user wrote or called writes in place."""
    by_name: dict[str, list[Site]] = {}
    for node in view.inner_writes:
        site = site_of(view.frame, view.stack_of(node), node.target, run)
        if site.where is None or not is_own_file(site.where.file, run) or by_optimizer(site):
            continue
        by_name.setdefault(inner_name(site, node.args[0] if node.args else node.name), []).append(site)
    for name, sites in by_name.items():
        yield Fact(
            code=codes.MADE_IN_GRAPH,
            frame=view.frame,
            graph=view.graph.id,
            input=f"{name} (made in the compiled code)",
            kind="data",
            where="in_graph",
            effects=(Effect("free", "derived", _DETAIL),),
            sites=tuple(dict.fromkeys(sites)),
            bytes_written_back=0,
            unknown={
                "bytes_touched": "only writes of inputs are measured",
                "no_grad": "only writes of inputs are analysed",
                "static": "it is not an input",
            },
        )
