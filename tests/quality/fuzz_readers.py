"""The ways in which a recording of a stranger is read, one a case: each gives None, or what is wrong with what came of it.

`explain`, `check` and `diff` in each format; `fix`: up to the first run of the script; `graph`: the rebuilt script, which must pass a
gate of its own; `minify`: all that is read before a candidate runs; `parity`: all up to the first replay; `bench --check`. What reads
graphs needs torch.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes  # noqa: F401  imported late, its first `dlopen` would be taken for one of a case
import functools
import io
import itertools
import json
import os
import platform  # noqa: F401  Python 3.12 looks for a module of Windows when it is first imported
import random
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from hostile_logs import ATTACKS

from dynadiag.changes.syntax import tree_of
from dynadiag.errors import DynadiagError
from dynadiag.render import drawing
from dynadiag.render.html import report_page
from dynadiag_cli import showing

Reader = Callable[[Path, Path, random.Random], "str | None"]
_PROGRAM = """
import sys, torch, dynadiag
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))
    def forward(self, x, parts, scale, *, mask=None):
        y = torch.nn.functional.gelu(self.line(x) * scale, approximate="tanh") + parts[0][..., :8].to(torch.float32)
        self.seen.add_(y.detach().mean(0))
        torch._dynamo.graph_break()
        if mask is not None:
            y = y.masked_fill(mask, float("-inf")).softmax(-1)
        return y.view(-1)[1:9], torch.cat([y, parts[1]], dim=1)
with dynadiag.observe(sys.argv[1]):
    net = torch.compile(Net(), backend="aot_eager")
    for n in (4, 5):
        net(torch.randn(n, 8), [torch.ones(n, 9, dtype=torch.bfloat16), torch.ones(n, 2)], 0.5, mask=torch.zeros(n, 8, dtype=torch.bool))
from torch._dynamo.repro.after_aot import save_graph_repro
from torch.fx.experimental.proxy_tensor import make_fx
base = torch.randn(6, 4)
values = [base[1:3], base.t()[:2], torch.arange(3), torch.randn(4, 6, dtype=torch.bfloat16)]
graph = make_fx(lambda a, b, index, c: (torch.relu(a[0] + 1).sum() + b.sum(), c.float() + 1, index + 1))(*values)
with open(sys.argv[2], "w") as file:
    save_graph_repro(file, graph, values, "inductor", save_dir=None, command="minify")
"""
# Large, and nothing that the readers of graphs look at.
_LEFT_OUT = re.compile(
    rb"compilation_metrics|chromium_event|dynamo_cpp_guards_str|create_symbol|guard_added|describe_|BYTECODE|_functorch\.config|"
    rb"aot_forward_graph_fw_metadata|aot_autograd_runtime_wrappers|aot_joint_graph|aot_backward_graph"
)
_BACKEND = "def mine(gm, inputs):\n    return gm.forward\n"
HERE = b"@HERE@"  # where a reduction or a run lies, in its files
_OPTIONS = {
    "dynamo": {"recompile_limit": 3, "suppress_errors": True, "repro_after": "dynamo"},
    "functorch": {"donated_buffer": False},
    "inductor": {"cpp.cxx": "/bin/false", "cpp.min_chunk_size": 2048, "post_grad_custom_pre_pass": "os.system", "max_autotune": True},
}


def with_torch(folder: Path) -> list[Path]:
    """A recording with graphs, and a script of torch's, made by torch itself in a process of its own; also imports all that is needed."""
    run, script = folder / "graphs", folder / "repro.py"
    project = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": project, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", _PROGRAM, str(run), str(script)], check=True, env=environment, cwd=folder)
    (log,) = run.glob("dedicated_log*.log")
    records = re.split(rb"(?m)^(?=[VIWEC]\d{4} )", log.read_bytes())
    kept = [one for one in records if not _LEFT_OUT.search(one.partition(b"\n")[0])]
    kept = [_with_options(one) if b'"dynadiag_config"' in one.partition(b"\n")[0] else one for one in kept]
    log.write_bytes(b"".join(kept))
    for seed in range(20):
        for name in ("graph", "minify", "parity"):
            read(name, log, folder, random.Random(seed))
    minify(script, folder, random.Random(0))
    return [log, log, script]


def _with_options(record: bytes) -> bytes:
    first, _, payload = record.partition(b"\n")
    said = json.loads(payload)
    return first + b"\n\t" + json.dumps({**said, **{name: one for name, one in _OPTIONS.items() if name in said}}).encode() + b"\n"


def warm(recording: Path, folder: Path) -> None:
    """Read what nobody changed: what is imported late is imported now, and the process that lays out pictures started.

    On a busy machine it stays: another one would be a program that a case has started.
    """
    drawing.TIMEOUT_S = 3600.0
    copy = folder / "warm"
    shutil.copytree(recording, copy)
    for form in ("text", "md", "json"):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            options = showing.ShowOptions(format=form, output="-", renderer="svg")
            showing.explain_recording(copy, out=None, force=False, options=options)
    tree_of("")


def explain(path: Path, _: Path, chance: random.Random) -> str | None:
    """The report in one of its formats, and the files of a run."""
    form = chance.choice(("text", "text", "json", "json", "md"))
    options = showing.ShowOptions(
        format=form,
        output="-",
        limit=chance.choice((0, 10)),
        renderer=chance.choice((None, None, None, "svg")),
        show_free=chance.random() < 0.5,
    )
    told, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors):
        report, _ = showing.explain_recording(path, out=None, force=False, options=options)
    if form == "json":
        json.loads(told.getvalue(), parse_constant=_no_constant)
    if form == "text" and (alive := _alive(report_page.render(report))):
        return alive
    told.getvalue().encode("utf-8")
    said = [*report.notes, errors.getvalue()]
    return next((f"{note}" for note in said if "internal error" in note or "please report this" in note), None)


def check(path: Path, _: Path, chance: random.Random) -> str | None:
    """The outcome of a gate in each of its formats."""
    from dynadiag.gate import formats
    from dynadiag.gate.formats import junit, sarif
    from dynadiag.gate.result import GateOptions
    from dynadiag.gate.session import checked
    from dynadiag.runs import refuse_damaged

    refuse_damaged(path, "nothing was checked")
    report = showing.read_report(path)
    limits = GateOptions(
        max_breaks=chance.choice((None, 0)), max_recompiles=chance.choice((None, 1)), min_compiled=chance.choice((None, None, None, 1.0))
    )
    shown = formats.Shown(result=checked(report, path, limits), roots=formats.roots_of(report.run.info.cwd), target=str(path))
    json.loads(formats.as_json(shown), parse_constant=_no_constant)
    json.loads(sarif(shown), parse_constant=_no_constant)
    for line in formats.as_json_lines(shown).splitlines():
        json.loads(line, parse_constant=_no_constant)
    ElementTree.fromstring(junit(shown))
    said = [formats.concise(shown), formats.github(shown), formats.markdown(shown), formats.summary(shown)]
    if any(unseemly := [_UNSEEMLY.search(one) for one in said]):
        return f"what is printed holds {next(one for one in unseemly if one)[0]!r}"
    commands = [line for line in said[1].splitlines() if line and not re.match("::(error|warning|notice|group|endgroup)", line)]
    return f"a line for GitHub that is none of ours: {commands[0]!r:.200}" if commands else None


def diff(path: Path, folder: Path, chance: random.Random) -> str | None:
    """The run beside itself or beside an honest one, as the older or the newer, in each format."""
    from dynadiag.diff.compare import compare
    from dynadiag.diff.show import as_json, document_of
    from dynadiag.render.html import result_page
    from dynadiag.render.markdown_text import document
    from dynadiag.render.page import text_of

    honest = folder / "dedicated_log_torch_trace_1_.log"
    honest.write_bytes(b"".join(itertools.islice(ATTACKS["mixed"](), 2)))
    one, other = showing.read_report(path), showing.read_report(honest)
    sides = chance.choice(((one, one), (one, other), (other, one)))
    result = compare(*sides, old_path=str(path), new_path=str(folder))
    json.loads(as_json(result), parse_constant=_no_constant)
    said = [text_of(document_of(result)), document(document_of(result))]
    if any(unseemly := [_UNSEEMLY.search(one) for one in said]):
        return f"what is printed holds {next(one for one in unseemly if one)[0]!r}"
    return _alive(result_page.render(document_of(result, beside=True)))


def fix(path: Path, _: Path, chance: random.Random) -> str | None:
    """All that `fix RUN_DIR` reads before it runs the script; half of the runs are taken for the user's own."""
    from dynadiag.fix.baseline import baseline_of
    from dynadiag.fix.baseline import read as read_baseline
    from dynadiag.fix.candidates import candidates

    _put_here(path / "dynadiag-run.json", path)
    # One's own script may be a link, which is followed: not what is looked for here.
    own = chance.random() < 0.5 and not (path / "train.py").is_symlink()
    with mock.patch("dynadiag.fix.baseline.is_ours", lambda *_: True) if own else contextlib.nullcontext():
        baseline = baseline_of(path)
    candidates(*read_baseline(baseline), unsafe=True)
    return None


class _Tags(HTMLParser):
    """The first thing in a page that could act and that we do not write."""

    found: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        bad = [f"<{tag} {name}={value}>" for name, value in attrs if _acts(name, value or "")]
        if tag in ("iframe", "object", "embed", "base", "form", "animate", "set", "foreignobject"):
            bad.append(f"<{tag}>")
        self.found = self.found or next(iter(bad), None)


def _acts(name: str, value: str) -> bool:
    return (
        name.startswith("on")
        or (name == "src" and not value.startswith("data:image/"))
        or (name in ("href", "xlink:href") and not value.startswith(("#", "https://")))
        or (name == "http-equiv" and value.lower() != "content-security-policy")
    )


def _alive(page: str) -> str | None:
    """What in a page could act: a handler, an address that is no link, a script that is not at its end."""
    tags = _Tags()
    tags.feed(page)
    body = page.lower().partition("<body")[2].rpartition("</main>")[0]
    return tags.found or ("a script in the body" if not body or "<script" in body else None)


def graph(path: Path, _: Path, chance: random.Random) -> str | None:
    """One graph as a script, not tried."""
    from dynadiag.fx.standalone import TryOptions, standalone_of
    from dynadiag_cli import verb_graph

    run, chosen = verb_graph._find(path, _some_graph(chance))
    device = chance.choice((None, "cpu"))
    made = standalone_of(run, chosen, title="graph", device=device, trying=TryOptions(timeout_s=None), say=lambda _: None)
    return forbidden(made.source)


def minify(path: Path, folder: Path, chance: random.Random) -> str | None:
    """One graph, or each, as captures that are loaded; the scripts of torch are read."""
    from dynadiag.reduce.graphs.loading import load_capture
    from dynadiag.reduce.sources.recording import capture_all_recorded, capture_recorded
    from dynadiag.reduce.sources.torch_repro import capture_script, is_torch_repro

    with tempfile.TemporaryDirectory(dir=folder) as out, contextlib.redirect_stderr(io.StringIO()):
        if is_torch_repro(path):
            captures = capture_script(path, Path(out), backend=None)[1]
        elif chance.random() < 0.3:
            captures = capture_all_recorded(path, Path(out), backend=None)
        else:
            captures = [capture_recorded(path, _some_graph(chance), Path(out), backend=None)]
        for one in captures[:3]:
            load_capture(one)
    return None


def parity(path: Path, _: Path, chance: random.Random) -> str | None:
    """One graph, rebuilt with inputs and tried, with the plan of its replays."""
    from dynadiag.parity.subject import make_ready
    from dynadiag_cli import verb_graph

    run, chosen = verb_graph._find(path, _some_graph(chance))
    make_ready(chosen, run)
    return None


def bench(path: Path, _: Path, __: random.Random) -> str | None:
    """The earlier result of `bench --check`."""
    from dynadiag.bench.regression import find_regressions, read_base

    found = find_regressions(_measured(), read_base(path))
    lines = [*found.found, *found.notes]
    return next((f"a line of {len(line)} characters" for line in lines if len(line) > 2000), None)


def resume(path: Path, folder: Path, chance: random.Random) -> str | None:
    """The folder of an interrupted `minify`: all that `--resume` reads before a candidate runs."""
    from dynadiag.children.answer_cache import AnswerCache
    from dynadiag.record.directory import is_run_directory
    from dynadiag.reduce.core.journal import Journal
    from dynadiag.reduce.session import _known_before
    from dynadiag.reduce.sources.recording import captures_to_resume, is_script_job

    _put_here(path / "job.json", path)
    is_run_directory(path)
    is_script_job(path)
    _known_before(path)
    for name in ("journal.jsonl", "known.jsonl"):
        with contextlib.suppress(DynadiagError):
            subject = (
                Journal(path / name, subject="s", resume=True) if name[0] == "j" else AnswerCache(path / name, environment={}, resume=True)
            )
            subject.close()
    captures = captures_to_resume(path)
    if "torch" in sys.modules and chance.random() < 0.5:
        from dynadiag.reduce.graphs.loading import load_capture

        with contextlib.redirect_stderr(io.StringIO()):
            load_capture(captures[0])
    return None


def _put_here(file: Path, folder: Path) -> None:
    """Let a file name the folder where this case lies."""
    if file.is_file() and not file.is_symlink():
        file.write_bytes(file.read_bytes().replace(HERE, os.fsencode(folder)))


def resume_source(folder: Path, log: Path | None) -> Path:
    """The folder of a reduction that was interrupted; with a log, its capture is a real one."""
    made = folder / "reduction"
    made.mkdir(mode=0o700)
    (made / "dynadiag-run.json").write_text(json.dumps({"format": 1, "dynadiag": "0", "command": None}))
    if log is not None:
        from dynadiag.reduce.sources.recording import capture_recorded

        with contextlib.redirect_stderr(io.StringIO()):
            capture_recorded(log, "g0", made / "capture", backend=None)
    capture = next(made.glob("capture/**/setting.json"), made / "capture" / "setting.json").parent
    capture.mkdir(parents=True, exist_ok=True)
    setting = capture / "setting.json"
    state = json.loads(setting.read_text()) if setting.exists() else {}
    setting.write_text(json.dumps({**state, "backend_source": _BACKEND}))
    here = f"{HERE.decode()}/{capture.relative_to(made)}"
    job = {"script": "train.py", "captures": [here], "call": 1, "backward": False, "said": ["RuntimeError", "no"], "timeout_s": 60}
    (made / "job.json").write_text(json.dumps(job))
    verdicts = [{"key": f"k{number}", "verdict": verdict, "remark": "r"} for number, verdict in enumerate(("interesting", "boring", "x"))]
    lines = [{"journal": 1, "subject": "s"}, *verdicts]
    (made / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    answers = [{"known": 1, "environment": {}}, {"key": "a", "answer": [1, {"b": None}]}]
    (made / "known.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in answers))
    (made / "minify.json").write_text(json.dumps({"schema_version": 1, "complete": False, "kind": "error", "queries": {"cut": 3}}))
    return made


def bench_source(folder: Path) -> Path:
    """A bench.json."""
    from dynadiag.bench import json_result

    (folder / "bench.json").write_text(json_result.dumps(_measured()))
    return folder / "bench.json"


@functools.cache
def _measured() -> Any:
    from dynadiag.bench.judging import compare_arms, summarise
    from dynadiag.bench.outcome import ArmResult, BenchResult, Correctness

    arms = [ArmResult(name="eager", samples_ms=[10.0] * 30), ArmResult(name="default", samples_ms=[5.0] * 30, graphs=1, breaks=0)]
    again = ArmResult(name="A/A", samples_ms=[10.0] * 30)
    result = BenchResult(target="steps:train", unit="forward", arms=arms, same_again=again, rounds=30)
    result.environment = {"device": "cpu", "torch": "2.15.0"}
    result.correctness = [
        Correctness(arm=one.name, status="PASS", worst=None, detail="", error=None, allowed=None, compared=4) for one in arms
    ]
    for row in (*arms, again):
        summarise(row, arms[0])
    compare_arms(result, in_process=False)
    return result


def _some_graph(chance: random.Random) -> str:
    return f"g{chance.randrange(4)}"


def _no_constant(name: str) -> None:
    raise ValueError(f"the JSON holds {name}")


_IMPORTS = frozenset(("torch", "math", "operator"))
_NEVER = re.compile(
    "exec|eval|compile|open|input|breakpoint|globals|locals|vars|setattr|delattr|exit|quit|help|type|__(?!name__).*",
)
_NEVER_OF = re.compile(
    "load|save|hub|jit|package|utils|classes|loads|system|popen|library|load_library|include_paths|multiprocessing|distributed|os|sys|"
    "subprocess|builtins|importlib|inspect|pickle|serialization|_dynamo|_inductor|cpp_extension|set_default_tensor_type|__(?!init__).*"
)
_UNSEEMLY = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_INNER = re.compile(r"torch\._C\.(?!_(nn|fft|linalg|special|sparse|nested)\b)")


def forbidden(source: str) -> str | None:
    """What a script must not hold, by a list of forbidden things: the gate of the writers has a list of what is allowed."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            if any(name.partition(".")[0] not in _IMPORTS for name in names):
                return f"the script holds `{ast.unparse(node)}`"
        elif isinstance(node, ast.Name) and _NEVER.fullmatch(node.id):
            return f"the script holds the name {node.id}"
        elif isinstance(node, ast.Attribute) and (_NEVER_OF.fullmatch(node.attr) or _INNER.match(ast.unparse(node))):
            return f"the script holds `{ast.unparse(node)[:200]}`"
    return None


READERS: dict[str, Reader] = {one.__name__: one for one in (explain, check, diff, fix, graph, minify, parity, bench, resume)}


def read(name: str, path: Path, folder: Path, chance: random.Random) -> str | None:
    """The reader of this name; a clear refusal is fine when it is one line."""
    try:
        return READERS[name](path, folder, chance)
    except DynadiagError as error:
        return None if "\n" not in error.message.strip() else f"an error of several lines: {error.message!r:.400}"
