"""The command line as Typer sees it: the verbs and what they have in common."""

from __future__ import annotations

from typing import Annotated

import typer

import dynadiag
from dynadiag_cli import (
    verb_bench,
    verb_bug,
    verb_check,
    verb_diff,
    verb_doctor,
    verb_explain,
    verb_fix,
    verb_graph,
    verb_mcp,
    verb_minify,
    verb_numerics,
    verb_parity,
    verb_prove,
    verb_rule,
    verb_runs,
    verb_start,
    verb_sweep,
)
from dynadiag_cli.command_line import Command, TargetCommand

app = typer.Typer(
    name="dynadiag",
    help="Explain where a torch.compile program breaks the graph, recompiles or falls back to eager, why, and what to change.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dynadiag {dynadiag.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    """Explain where a torch.compile program breaks the graph, recompiles or falls back to eager, why, and what to change."""


app.command(
    "explain",
    short_help="Say what broke the graph, recompiled or ran eagerly, and the fix.",
    cls=TargetCommand,
    epilog=verb_explain.EXAMPLES,
)(verb_explain.explain)
app.command("fix", short_help="Apply the fixes to a copy, prove them, and write a patch.", cls=TargetCommand, epilog=verb_fix.EXAMPLES)(
    verb_fix.fix
)
app.command("prove", short_help="Say whether an edit changes no result.", cls=TargetCommand, epilog=verb_prove.EXAMPLES)(verb_prove.prove)
app.command("graph", short_help="Write one captured graph as a script and as a picture.", cls=Command, epilog=verb_graph.EXAMPLES)(
    verb_graph.graph
)
app.command("bench", short_help="Say whether compiled code is faster on this machine, and right.", cls=Command, epilog=verb_bench.EXAMPLES)(
    verb_bench.bench
)
app.command("minify", short_help="Reduce a failure to the smallest program that shows it.", cls=TargetCommand, epilog=verb_minify.EXAMPLES)(
    verb_minify.minify
)
app.command(
    "parity", short_help="Replay captured graphs on other calls, and compare with eager.", cls=TargetCommand, epilog=verb_parity.EXAMPLES
)(verb_parity.parity)
app.command(
    "numerics",
    short_help="Say where numbers differ from eager's, why, and what helps.",
    cls=TargetCommand,
    epilog=verb_numerics.EXAMPLES,
)(verb_numerics.numerics)
app.command("check", short_help="Fail on graph breaks, recompiles and fallbacks, for CI.", cls=TargetCommand, epilog=verb_check.EXAMPLES)(
    verb_check.check
)
app.command("diff", short_help="Say what a newer run has gained and lost.", cls=Command, epilog=verb_diff.EXAMPLES)(verb_diff.diff)
app.command("start", short_help="Say why the second start compiles again.", cls=TargetCommand, epilog=verb_start.EXAMPLES)(verb_start.start)
app.command("sweep", short_help="Run many programs by many configurations, and compare.", cls=Command, epilog=verb_sweep.EXAMPLES)(
    verb_sweep.sweep
)
app.command("bug", short_help="Fill in a bug report, without secrets and names.", cls=Command, epilog=verb_bug.EXAMPLES)(verb_bug.bug)
app.command("rule", short_help="Explain codes of a report, such as GB0170 and DM05.", cls=Command, epilog=verb_rule.EXAMPLES)(
    verb_rule.rule
)
app.command("mcp", short_help="Serve the verbs as tools for coding agents.", cls=Command, epilog=verb_mcp.EXAMPLES)(verb_mcp.mcp)
app.command("runs", short_help="List run directories, or delete old ones.", cls=Command, epilog=verb_runs.EXAMPLES)(verb_runs.runs)
app.command("doctor", short_help="Print versions, devices and tools, to paste into an issue.", cls=Command, epilog=verb_doctor.EXAMPLES)(
    verb_doctor.doctor
)
