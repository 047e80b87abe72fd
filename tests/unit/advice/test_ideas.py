"""Ideas where no change is established: from the recorded source alone, each with the line and what to write."""

import ast
from dataclasses import replace

import pytest

from dynadiag.advice.ideas import Parts, with_ideas
from dynadiag.advice.recompile_ideas import recompile_ideas
from dynadiag.changes import smaller_calls
from dynadiag.facts.failed_attempts import failed_attempts, failed_dynamic
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Transition
from dynadiag.model.run import BreakEvent, CompileCall, CompileKey, Frame, Process, Run, RunInfo, SourceFunction, Symbol
from dynadiag.report import build

FILE = "/home/me/train.py"
READ, BRANCH, SHAPE, OTHER = "GB0124", "GB0170", "GB0036", "GB0156"
TYPES = {READ: "Unsupported Tensor.item() call with capture_scalar_outputs=False"}


def location(text, row, function):
    return Location(FILE, row, function, text.splitlines()[row - 1].strip())


def recorded(text, gb_id, broken, called=None):
    """A run of a program that compiles `f` on the line with `torch.compile`, and breaks on the line that begins with `broken`."""
    rows = text.splitlines()
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    row = next(number for number, line in enumerate(rows, start=1) if line.strip().startswith(broken))
    inside = max((node for node in functions if node.lineno <= row <= node.end_lineno), key=lambda node: node.lineno)
    compiled = next(node for node in functions if node.name == "f")
    made = next(number for number, line in enumerate(rows, start=1) if "torch.compile" in line)
    call = next((number for number, line in enumerate(rows, start=1) if called and line.strip().startswith(called)), len(rows))
    stack = [location(text, call, "<module>")]
    if inside is not compiled:
        within = next(number for number in range(compiled.lineno + 1, compiled.end_lineno + 1) if f"{inside.name}(" in rows[number - 1])
        stack.append(location(text, within, "f"))
    stack.append(location(text, row, inside.name))
    sources = {node: "\n".join(rows[node.lineno - 1 : node.end_lineno]) for node in functions}
    event = BreakEvent(
        frame="f0",
        attempt=0,
        gb_id=gb_id,
        gb_type=TYPES.get(gb_id, "?"),
        explanation="",
        hints=(),
        context="",
        stack=tuple(stack),
        torch_frame=stack[-1],
    )
    return Run(
        info=RunInfo(),
        processes=(Process(index=0, log="log", torch="2.15.0", argv=(FILE,)),),
        frames=(Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="f", file=FILE, line=compiled.lineno, outcome="broke"),),
        breaks=(event,),
        compile_calls=(
            CompileCall(
                process=0, location=location(text, made, "<module>"), target="f", backend=None, definition=Location(FILE, compiled.lineno)
            ),
        ),
        functions=tuple(SourceFunction(FILE, node.lineno, node.name, source) for node, source in sources.items()),
        blocks={(FILE, node.lineno): source for node, source in sources.items()},
    )


def varied(source, kind, values, **changed):
    row = Transition(
        frame_name="f", own_frame=None, source=source, kind=kind, values=values, recompiles=("r0", "r1"),
        entries=3, limit=8, limit_hit=False, became_dynamic=False, why=None,
    )  # fmt: skip
    return replace(row, **changed)


def ideas(text, gb_id, broken, called=None):
    (finding,) = [one for one in build(recorded(text, gb_id, broken, called)).findings if one.severity != "note"]
    return {advice.slug: advice for advice in finding.fix if advice.how_sure == "idea"}


RUNS = "step = torch.compile(f)\nout = step(x, log)"


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("    if n.norm() > m:\n        x = x / n.norm()\n    return x", "x = torch.where(taken, x_if_true, x)"),
        ("    if x.sum() > 0:\n        return net(x)\n    return other(x)", "return torch.where(x.sum() > 0, net(x), other(x))"),
    ],
)
def test_both_sides_of_a_branch_are_an_idea_with_what_to_check(body, after):
    (found,) = [ideas(f"def f(x, n, m):\n{body}\n\n{RUNS}\n", BRANCH, "if ")["select-both"]]
    assert after in found.after
    assert "Check" in found.text


@pytest.mark.parametrize(
    "body",
    [
        "    y = x * 2\n    if y.sum() > 0:\n        y = torch.dropout(y, 0.5, True)\n    return y.sin()",
        "    y = x * 2\n    if y.sum() > 0:\n        y = y + next(log)\n    return y.sin()",
        "    y = x * 2\n    if y.sum() > 0:\n        y = y.double()\n    return y + 1",
        "    if x.sum() > 0:\n        x = x * 2\n    x.add_(1)\n    return x",
    ],
)
def test_no_selection_is_an_idea_where_the_source_shows_that_it_gives_other_results(body):
    assert "select-both" not in ideas(f"def f(x, log):\n{body}\n\n{RUNS}\n", BRANCH, "if ")


def test_an_iteration_that_would_be_skipped_is_selected_away():
    text = (
        "def f(x, log):\n    total, n = 0.0, 0\n    for c in range(3):\n        t = (x == c).float()\n"
        "        if t.sum() == 0:\n            continue\n"
        f"        total = total + t.mean()\n        n += 1\n    return total / max(n, 1)\n\n{RUNS}\n"
    )
    found = ideas(text, BRANCH, "if ")["select-iteration"]
    assert found.after.splitlines() == [
        "skipped = t.sum() == 0",
        "total = torch.where(skipped, total, total + t.mean())",
        "n = torch.where(skipped, n, n + 1)",
    ]
    assert "write `torch.clamp(n, min=1)` for `max(n, 1)`" in found.text


def test_an_effect_goes_behind_the_call_with_the_names_that_it_has_there():
    text = f"def f(x, log):\n    loss = (x * 2).mean()\n    y = x + 1\n    log.append(loss.item())\n    return y\n\n{RUNS}\n"
    found = ideas(text, READ, "log.append", "out = step")["defer-effect"]
    assert (found.before, found.after) == ("out = step(x, log)", "out, loss = step(x, log)\nlog.append(loss.item())")
    assert "write `return y, loss` for `return y`" in found.text


@pytest.mark.parametrize("later", ["    y = y + len(log)", "    loss = loss + 1\n    y = y + loss", "    log = [1]"])
def test_an_effect_that_the_rest_reads_stays(later):
    text = f"def f(x, log):\n    loss = (x * 2).mean()\n    y = x + 1\n    log.append(loss.item())\n{later}\n    return y\n\n"
    text += f"{RUNS}\n"
    assert "defer-effect" not in ideas(text, READ, "log.append", "out = step")


def test_effects_on_one_object_go_together_in_their_order():
    text = (
        "def f(x, log):\n    loss = (x * 2).mean()\n    log.append(loss.item())\n    y = x + 1\n    log.append(-1)\n    return y\n\n"
        + RUNS
        + "\n"
    )
    found = ideas(text, READ, "log.append(loss", "out = step")["defer-effect"]
    assert found.after.splitlines()[1:] == ["log.append(loss.item())", "log.append(-1)"]


def test_a_number_is_kept_as_a_tensor_with_all_that_then_changes():
    text = (
        "def f(x, log):\n    bound = x.abs().max().item()\n    if bound == 0.0:\n        bound = 1.0\n"
        "    return torch.tensor(bound / 2)\n\n" + RUNS + "\n"
    )
    found = ideas(text, READ, "bound = x")["keep-tensor"]
    assert found.after == "bound = x.abs().max().detach()"
    assert "`bound = torch.where(bound == 0.0, 1.0, bound)` for `if bound == 0.0: bound = 1.0`" in found.text
    assert "`bound / 2` for `torch.tensor(bound / 2)`" in found.text


def test_a_number_that_python_needs_is_not_kept_as_a_tensor():
    text = f"def f(x, log):\n    n = x.max().item()\n    for i in range(n):\n        x = x + i\n    return x\n\n{RUNS}\n"
    assert "keep-tensor" not in ideas(text, READ, "n = x")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            "loss = F.cross_entropy(y[m], z[m])",
            "torch.nn.functional.cross_entropy(y.flatten(0, m.dim() - 1), z.masked_fill(~m, -100).flatten())",
        ),
        ("d = torch.bincount(x, minlength=n)", "torch.zeros(n, dtype=torch.long, device=x.device).index_add_(0, x, torch.ones_like(x))"),
        ("s = x[x > 0].sum()", "torch.where(x > 0, x, 0).sum()"),
        ("s = x[m].mean()", "torch.where(m, x, 0).sum() / m.sum()"),
        (
            "e = F.mse_loss(y[m], z[m])",
            'torch.nn.functional.mse_loss(y.masked_fill(~m, 0), z.masked_fill(~m, 0), reduction="sum") / m.sum()',
        ),
        (
            "e = F.huber_loss(y[m], z[m], reduction='sum', delta=2.0)",
            'torch.nn.functional.huber_loss(y.masked_fill(~m, 0), z.masked_fill(~m, 0), delta=2.0, reduction="sum")',
        ),
    ],
)
def test_a_result_whose_size_depends_on_values_has_a_form_of_one_size(line, after):
    text = f"def f(x, y):\n    {line}\n    y.append(x.shape)\n    return x\n\nstep = torch.compile(f)\nstep(x, y)\n"
    found = ideas(text, SHAPE, line[:8])
    assert after in found["static-shape"].after


@pytest.mark.parametrize("line", ["e = F.mse_loss(y[m], z[n])", "e = F.mse_loss(y[m], z[m], reduction='none')", "s = x[m].max()"])
def test_what_is_not_reduced_of_one_mask_stays(line):
    text = f"def f(x, y):\n    {line}\n    y.append(x.shape)\n    return x\n\nstep = torch.compile(f)\nstep(x, y)\n"
    assert "static-shape" not in ideas(text, SHAPE, line[:8])


def test_numbers_of_a_generator_are_the_named_cause():
    text = f"def f(x, log):\n    top = random.randint(0, 4)\n    return x[:, top:top + 8] * 2\n\n{RUNS}\n"
    found = ideas(text, OTHER, "return x", "out = step")["before-call"]
    assert "`random.randint(0, 4)`" in found.text
    assert "train.py:6" in found.text


def test_a_loop_that_a_value_ends_stays_python_and_its_body_is_compiled():
    text = (
        "def f(x, log):\n    for _ in range(10):\n        new = (x + 2 / x) / 2\n        if (new - x).abs().max() < 1e-6:\n"
        "            break\n"
        f"        x = new\n    return x\n\n{RUNS}\n"
    )
    found = ideas(text, BRANCH, "if ")["plain-loop"]
    assert found.after == "@torch.compile\ndef one_iteration(x):\n    new = (x + 2 / x) / 2\n    return new"


def test_a_driver_whose_model_is_made_beside_it_stays_python():
    text = (
        "def f(model, data):\n    for x in tqdm(data):\n        loss = model(x).sum()\n        loss.backward()\n\n"
        "def main():\n    model = Net().to('cpu')\n    step = torch.compile(f, dynamic=True)\n    step(model, [])\n"
    )
    run = recorded(text, "GB0007", "for x", "step(model")
    main = location(text, 8, "main")
    (call,) = run.compile_calls
    run = replace(run, compile_calls=(replace(call, location=main),))
    found = {advice.slug: advice for one in build(run).findings for advice in one.fix}["compile-called"]
    assert found.before == "step = torch.compile(f, dynamic=True)"
    assert found.after.splitlines() == ["model.compile(dynamic=True)", "step = f"]


def test_why_nothing_is_established_stays_beside_an_idea():
    run = recorded(f"def f(x, n, m):\n    if n.norm() > m:\n        x = x / 2\n    return x\n\n{RUNS}\n", BRANCH, "if ")
    (finding,) = build(run).findings
    assert "No change is established: " in finding.why


def failed_run(*, symbols):
    """A function of which one version was compiled and the second, with a symbol for a size, failed."""
    text = "def f(x, log):\n    return torch.stft(x, 64)\n\nstep = torch.compile(f)\nout = step(x, log)\n"
    run = recorded(text, OTHER, "return torch")
    first, second = (
        replace(run.frames[0], id=name, outcome=outcome, key=CompileKey(0, 0, 0, at), stack=(location(text, 5, "<module>"),))
        for at, (name, outcome) in enumerate((("f0", "compiled"), ("f1", "failed")))
    )
    second = replace(second, error="BackendCompilerFailed: s9 is not tracked")
    known = (Symbol(frame="f1", symbol="s9", source="x.size(0)", value="64"),) if symbols else ()
    return replace(run, breaks=(), frames=(first, second), symbols=known)


@pytest.mark.parametrize("symbols", [True, False])
def test_fixed_sizes_are_advised_where_only_a_version_with_symbols_fails(symbols):
    (finding,) = [one for one in build(failed_run(symbols=symbols)).findings if one.code == "DF10"]
    found = [advice.after for advice in finding.fix if advice.slug == "fixed-sizes"]
    assert found == ["step = torch.compile(f, dynamic=False)"] * symbols
    assert failed_dynamic(failed_run(symbols=symbols)) == ({"f1"} if symbols else set())


def test_a_function_that_is_tried_in_vain_again_and_again_is_named():
    run = recorded(f"def f(x, log):\n    print(x)\n    return x\n\n{RUNS}\n", OTHER, "print")
    frames = [replace(run.frames[0], id=f"f{at}", outcome="skipped", key=CompileKey(0, 0, 0, at)) for at in range(4)]
    assert failed_attempts(replace(run, frames=tuple(frames))) == {"f": 4}
    assert failed_attempts(replace(run, frames=(*frames, replace(frames[0], id="f9", outcome="compiled")))) == {}
    assert failed_attempts(replace(run, frames=tuple(frames[:2]))) == {}


def test_no_module_is_compiled_apart_where_gradients_are_differentiated():
    text = (
        "def f(model, data):\n    loss = model(data[0]).sum()\n    g = torch.autograd.grad(loss, data, create_graph=True)\n"
        "    g.backward()\n\n"
        "def main():\n    model = Net()\n    step = torch.compile(f)\n    step(model, [])\n"
    )
    run = recorded(text, OTHER, "g = torch", "step(model")
    (call,) = run.compile_calls
    run = replace(run, compile_calls=(replace(call, location=location(text, 8, "main")),))
    assert "compile-called" not in {advice.slug for one in build(run).findings for advice in one.fix}


def test_what_a_worse_finding_has_told_comes_second():
    text = (
        "def f(model, log):\n    loss = model(log[0]).sum()\n    log.append(loss.item())\n    print(loss.item())\n    loss.backward()\n\n"
        "def main():\n    model = Net()\n    step = torch.compile(f)\n    step(model, [])\n"
    )
    run = recorded(text, READ, "log.append", "step(model")
    (call,), (event,) = run.compile_calls, run.breaks
    second = replace(event, stack=(event.stack[0], location(text, 4, "f")), torch_frame=location(text, 4, "f"))
    run = replace(run, compile_calls=(replace(call, location=location(text, 9, "main")),), breaks=(event, second))
    first = [finding.fix[0].slug for finding in build(run).findings if finding.fix]
    assert first[0] == "compile-called"
    assert first.count("compile-called") == 1


class Counted(tuple):
    """A tuple that counts how often somebody goes through it."""

    def __new__(cls, entries):
        made = super().__new__(cls, entries)
        made.rounds = 0
        return made

    def __iter__(self):
        self.rounds += 1
        return super().__iter__()


def test_as_many_findings_as_breaks_look_through_the_breaks_once():
    run = recorded(TEXT_OF_MANY, READ, "n = x.sum().item()")
    event = run.breaks[0]
    places = [replace(event.stack[-1], line=100 + at, code=f"n = x{at}.item()") for at in range(40)]
    moved = [replace(event, stack=(*event.stack[:-1], place), torch_frame=place) for place in places]
    report = build(replace(run, breaks=tuple(moved)))
    findings = [finding for finding in report.findings if finding.severity != "note"]
    assert len(findings) == len(report.graph_breaks) == 40
    breaks, recompiles, transitions = Counted(report.graph_breaks), Counted(report.recompiles), Counted(report.transitions)
    assert len(list(with_ideas(findings, Parts.of(breaks, recompiles, transitions), report.run))) == 40
    assert (breaks.rounds, recompiles.rounds, transitions.rounds) == (1, 1, 1)


TEXT_OF_MANY = """import torch

def f(x):
    n = x.sum().item()
    return x * n

step = torch.compile(f)
out = step(x)"""


def test_what_python_draws_is_no_condition_of_a_selection():
    text = f"def f(x, log):\n    if random.random() < 0.5:\n        x = x + 1\n    return x\n\n{RUNS}\n"
    found = ideas(text, BRANCH, "if ", "out = step")
    assert "select-both" not in found
    assert "before-call" in found


@pytest.mark.parametrize("rest", ["if m > 10:\n        y = range(m)\n    return x", "log.append(m)\n    return x", "return x[:m]"])
def test_capturing_a_number_is_no_idea_where_python_needs_it(rest):
    run = recorded(f"def f(x, log):\n    m = x.abs().mean().item()\n    {rest}\n\n{RUNS}\n", READ, "m = x")
    assert "capture-idea" not in {advice.slug for one in build(run).findings for advice in one.fix}


def test_a_result_that_is_returned_in_a_tuple_is_not_returned_twice():
    body = "    y = x + 1\n    loss = y.sum()\n    log.append(loss.item())\n    return y, loss\n"
    text = f"def f(x, log):\n{body}\n{RUNS.replace('out =', 'out, e =')}\n"
    found = ideas(text, READ, "log.append", "out, e")["defer-effect"]
    assert found.after == "out, e = step(x, log)\nlog.append(e.item())"


def test_a_method_called_with_what_a_module_gave_is_no_module():
    text = (
        "class Net:\n    def forward(self, x):\n        h = self.enc(x)\n        print(h)\n        return h\n"
        "    def decode(self, h):\n        return h.sin().cos()\n\n"
        "def f(x):\n    y = net.decode(net.forward(x))\n    return y\n\nstep = torch.compile(f)\nout = step(x)\n"
    )
    run = recorded(text, OTHER, "print(h)")
    walk = smaller_calls._Walk(run)
    assert not walk._is_defined("net", FILE) and walk._is_defined("net.decode", FILE)
    inner = Location(FILE, 4, "Net.forward")
    assert smaller_calls._is_called("net", inner, is_function=False)
    assert not smaller_calls._is_called("net.decode", inner, is_function=True)
    assert "net.decode.enc" not in "".join(f"{idea.text} {idea.after}" for finding in build(run).findings for idea in finding.fix)


def test_what_a_part_of_a_function_appends_is_done_behind_the_call_though_a_break_made_the_part():
    text = 'def f(x):\n    y = x[x > 0]\n    stats["loss"].append(y.sum())\n    return y\n\nstep = torch.compile(f)\nout = step(x)\n'
    run = recorded(text, SHAPE, "y = x[")
    part = replace(run.frames[0], id="f1", name="torch_dynamo_resume_in_f_at_2", line=2, callers=run.breaks[0].stack[:1])
    row = varied("len(stats['loss'])", "length", ("1", "2"), frame_name=part.name)
    first, *rest = recompile_ideas([row], part, replace(run, frames=(run.frames[0], part)))
    assert first.slug == "defer-effect" and "stats" in first.text
    assert [idea.slug for idea in rest] == ["cure-break-first"]


COUNTED = """@torch.compile(backend="eager")
def f(x):
    for _ in range(cfg.steps):
        x = x * scale
    return x

f(x)
"""


def test_a_loop_that_a_changing_number_counts_stays_in_python():
    run = recorded(COUNTED, OTHER, "for _")
    frame = replace(run.frames[0], line=1, callers=run.breaks[0].stack[:1])  # code begins at its first decorator
    found = next(iter(recompile_ideas([varied("cfg.steps", "value", ("2", "3", "4"))], frame, run)))
    assert found.slug == "plain-loop"
    assert found.after == '@torch.compile(backend="eager")\ndef one_iteration(x):\n    x = x * scale\n    return x'


@pytest.mark.parametrize(
    ("row", "slug", "words"),
    [
        (varied("self.attn.depth", "value", ("7",)), "number-in-buffer", "`self.attn.depth = torch.tensor(7)`"),
        (varied("x.size(0)", "size", ("12", "20")), "size-kept-static", "`dynamic=False`"),
        (varied("x.size(0)", "size", ("12", "20"), became_dynamic=True), None, ""),
        (varied("x.size(0)", "size", ("1", "20")), None, ""),
        (varied("a reason that torch does not name", "unexpected", ()), "call-before-threads", "before the threads start"),
    ],
)
def test_what_varies_without_a_line_that_shows_why_has_what_to_look_for(row, slug, words):
    run = recorded("def f(x):\n    return x + 1\n\nstep = torch.compile(f)\nout = step(x)\n", OTHER, "return")
    found = list(recompile_ideas([row], run.frames[0], run))
    assert [idea.slug for idea in found] == ([] if slug is None else [slug])
    assert all(words in idea.text and idea.how_sure == "idea" for idea in found)


@pytest.mark.parametrize(
    ("body", "broken", "words"),
    [
        ("    y = x + 1\n    t = tables[i]\n    return y @ t", "t = ", "`i` comes from outside as it is"),
        ("    parts = [x[: int(n)] for n in lengths]\n    return parts", "parts", "give `f` that number as a list, `.tolist()`,"),
        ("    i = i + 1\n    t = tables[i]\n    return t", "t = ", None),
        ("    n = x.sum().item()\n    return x[:n]", "n = ", None),
    ],
)
def test_a_number_of_an_argument_is_read_where_it_comes_from(body, broken, words):
    text = f"def f(x, i, lengths):\n{body}\n\nstep = torch.compile(f)\nout = step(x, i, n)\n"
    found = ideas(text, READ, broken).get("before-call")
    assert (found is None) if words is None else (words in found.text and "train.py:" in found.text)


def test_a_loop_that_dynamo_leaves_to_python_has_its_iteration_compiled():
    text = "def f(x):\n    out = []\n    for i in range(3):\n        x = x.sin() + i\n        out.append(log(x))\n    return x, out\n\n"
    run = recorded(f"{text}step = torch.compile(f)\nout = step(x)\n", "GB0098", "out.append")
    for outcome, expected in (("skipped", "def one_iteration(i, x):\n    x = x.sin() + i\n    return x"), ("broke", None)):
        skipped = replace(run, frames=(replace(run.frames[0], outcome=outcome),))
        (finding,) = [finding for finding in build(skipped).findings if finding.severity != "note"]
        found = next((advice.after for advice in finding.fix if advice.slug == "plain-loop"), None)
        assert found == expected if expected is None else found is not None and expected in found


def test_what_the_atlas_has_for_a_line_is_an_idea_for_its_other_breaks():
    run = recorded("def f(x):\n    return g(x)\n\nstep = torch.compile(f)\nstep(x)\n", OTHER, "return")
    finding = build(run).findings[0]
    cure = Advice(slug="library-cure", text="Leave `k` out", entry="entmax/sparsemax-k")
    elsewhere = replace(finding, where=replace(finding.where, line=40))
    given = [replace(finding, fix=()), replace(finding, fix=(cure,)), replace(elsewhere, fix=()), replace(finding, where=None, fix=())]
    found = list(with_ideas(given, Parts.of((), (), ()), Run(info=RunInfo())))
    assert [[(advice.slug, advice.how_sure) for advice in one.fix] for one in found] == [
        [("library-cure", "idea")],
        [("library-cure", "established")],
        [],
        [],
    ]
