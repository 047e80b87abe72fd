"""Scripts as candidates: what hangs together when statements go, what each pass proposes, which are none. No torch, nothing run."""

from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.scripts.names import statements_of, undefined_names
from dynadiag.reduce.scripts.passes.arguments import drop_parameters, freezing_arguments
from dynadiag.reduce.scripts.passes.definitions import eager_backend, identity_modules, plain_definitions
from dynadiag.reduce.scripts.passes.names import hoist_expressions, inline_functions, inline_names
from dynadiag.reduce.scripts.passes.statements import drop_parts, executing_only, unwrap_blocks
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.passes.values import few_repeats, parameter_values, plain_tensors, plain_values, small_constants
from dynadiag.reduce.scripts.program import Facts, imported, parsed, read_script, why_it_cannot_run
from dynadiag.reduce.scripts.slicing import Slicer, without_line


def program(text):
    return parsed(textwrap.dedent(text), "script.py")


def kept(text, *wanted):
    """The slice for the statements that start with one of these words."""
    whole = program(text)
    slicer = Slicer(whole)
    statements = {one.number: ast.unparse(one.node) for one in statements_of(whole.tree)}
    return slicer.build(number for number in slicer.items if statements[number].startswith(wanted)).text


MODEL = """
    import torch
    import os

    WIDTH = 4
    names = []

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(WIDTH, WIDTH)
            self.second = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            x = self.first(x)
            x = self.second(x)
            return x

    def unused():
        return os.getcwd()

    model = Net()
    print(model(torch.ones(1, WIDTH)))
"""


def test_a_statement_brings_what_it_needs_and_no_more():
    text = kept(MODEL, "x = self.second", "print(")
    assert "self.second = torch.nn.Linear" in text and "WIDTH = 4" in text and "model = Net()" in text
    assert "self.first" not in text and "unused" not in text and "import os" not in text and "names" not in text
    assert why_it_cannot_run(parsed(text, "cut")) is None


def test_a_function_keeps_what_it_returns_while_statements_are_cut():
    whole = program(MODEL)
    statements = {one.number: ast.unparse(one.node) for one in statements_of(whole.tree)}
    wanted = [number for number in Slicer(whole).items if statements[number].startswith("print(")]
    assert "return" not in Slicer(whole).build(wanted).text
    cut = Slicer(whole, whole_functions=True).build(wanted)
    assert "return x" in cut.text and "super().__init__()" not in cut.text and why_it_cannot_run(cut) is None
    assert "super().__init__()" in kept(MODEL, "self.first"), "a module takes no attributes before"


def test_the_nearest_binding_before_is_taken():
    assert kept("x = 1\nx = 2\nprint(x)\nx = 3\n", "print") == "x = 2\nprint(x)\n"
    assert (
        kept("def f():\n    return later\nlater = 1\nlater = 2\nf()\n", "f()", "return") == "def f():\n    return later\nlater = 1\nf()\n"
    )


def test_globals_and_loops_and_handlers_keep_their_names():
    text = kept("n = 0\ndef f():\n    global n\n    n += 1\nf()\n", "n += 1", "f()")
    assert text == "n = 0\n\ndef f():\n    global n\n    n += 1\nf()\n"
    text = kept("for i in range(3):\n    a = i\n    b = 2\n", "a = i")
    assert text == "for i in range(3):\n    a = i\n"
    text = kept("try:\n    a = 1\nexcept ValueError as e:\n    print(e)\n", "print")
    assert why_it_cannot_run(parsed(text, "cut")) is None and "print(e)" in text


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("print(a)", {"a"}),
        ("[b for b in range(3)]\nprint(__name__, len)", set()),
        ("def f(x, *y, **z):\n    return x, y, z, w", {"w"}),
        ("class A:\n    v = 1\n    def f(self):\n        return v", {"v"}),
        ("from os import *\nprint(getcwd())", set()),
        ("lambda q: q + r", {"r"}),
        ("match 1:\n    case {'k': k, **rest}:\n        print(k, rest)", set()),
        ("with open('f') as h:\n    h.read()\nif (n := 3):\n    print(n)", set()),
    ],
)
def test_names_that_nothing_binds(text, missing):
    assert undefined_names(ast.parse(text)) == missing


@pytest.mark.parametrize(
    "text", ["return 1", "break", "nonlocal q", "print(missing)", "def f():\n    yield\n    x: (yield) = 1\nawait f()"]
)
def test_what_cannot_run_is_known_without_running(text):
    assert why_it_cannot_run(parsed(text, "script.py")) is not None


def test_a_statement_on_a_refused_line_goes_alone():
    text = "import shutil\nif True:\n    a = 1\n    shutil.rmtree('x')\nprint(a)\n"
    cut = without_line(parsed(text, "script.py"), 4)
    assert cut is not None and "rmtree" not in cut.text and "a = 1" in cut.text and "print(a)" in cut.text
    assert without_line(parsed("import shutil\nx = shutil.rmtree('x')\nprint(x)\n", "s"), 2) is None, "needed by another: not cut out"


def seen(values):
    """Facts of any program: these values."""
    return lambda program: Facts(values=values)


PASSES = [
    (unwrap_blocks, "for i in range(3):\n    print(i)", "i = 0\nprint(i)\n"),
    (unwrap_blocks, "with a() as b:\n    print(b)", "b = a()\nprint(b)\n"),
    (unwrap_blocks, "try:\n    f()\nexcept E:\n    g()\n", "g()\n"),
    (hoist_expressions, "y = self.layer(x) + z", "y = x + z\n"),
    (hoist_expressions, "y = self.layer(x) + z", "y = z\n"),
    (drop_parts, "f(a, b=c)", "f()\n"),
    (drop_parts, "from m import a, b", "from m import b\n"),
    (drop_parts, "@d\ndef f():\n    return 1", "def f():\n    return 1\n"),
    (drop_parts, "torch.compile(f, dynamic=True, backend='eager')", "torch.compile(f, backend='eager')\n"),
    (eager_backend, "torch.compile(f, mode='max-autotune')", "torch.compile(f, backend='eager')\n"),
    (eager_backend, "@torch.compile\ndef f():\n    return 1", "@torch.compile(backend='eager')\ndef f():\n    return 1\n"),
    (small_constants, "f(64, 64, 3)", "f(1, 1, 3)\n"),
    (inline_names, "a = 3\nf(a, a)", "f(3, 3)\n"),
    (inline_names, "a = g()\nf(a)", "f(g())\n"),
    (inline_names, "q, k, v = (1, g(), 2)\nf(q, q)", "k, v = (g(), 2)\nf(1, 1)\n"),
    (inline_names, "q, k = (1, g())\nf(q, k, k)", "k = g()\nf(1, k, k)\n"),
    (inline_names, "q, k = (h(), g())\nf(q)", "k = g()\nf(h())\n"),
    (inline_functions, "def main():\n    a = 1\n    print(a)\nmain()", "a = 1\nprint(a)\n"),
    (unwrap_blocks, "for i, x in enumerate(y):\n    f(i)", "f(0)\n"),
    (drop_parameters, "def f(a, b):\n    return a\nf(1, 2)", "def f(a):\n    return a\nf(1)\n"),
    (
        drop_parameters,
        "class A:\n    def __init__(self, a):\n        f()\nclass B:\n    def __init__(self, a):\n        f(a)\nA(1), B(1)",
        "class A:\n\n    def __init__(self):\n        f()\n\nclass B:\n\n    def __init__(self, a):\n        f(a)\n(A(), B(1))\n",
    ),
    (plain_definitions, "class A(M):\n    def forward(self, x):\n        return x\nf(A())", "def A(x):\n    return x\nf(A)\n"),
    (plain_definitions, "a = f()", "f()\n"),
    (plain_tensors, "import torch\nloss = model(batch).loss", "import torch\nloss = torch.ones(2, 2)\n"),
    (
        freezing_arguments({"lr": 0.1}),
        "a = parser.parse_args()\nprint(a.lr)",
        "print(0.1)\n",
    ),
    (
        freezing_arguments({"lr": 0.1}),
        "p = ArgumentParser()\np.add_argument('--lr')\na = p.parse_args()\nuse(a, a.lr)",
        "a = __import__('types').SimpleNamespace(lr=0.1)\nuse(a, 0.1)\n",
    ),
    (parameter_values, "def f(b):\n    return net(b).loss\nf(1)", "def f(b):\n    return next(net.parameters()).sum()\nf(1)\n"),
    (few_repeats, "Net(num_layers=12)\nfor i in range(5):\n    f(7)", "Net(num_layers=1)\nfor i in range(1):\n    f(7)\n"),
    (
        few_repeats,
        "EPOCHS = 3\ndef f(depth=8, width=9):\n    g(depth, EPOCHS)",
        "EPOCHS = 1\n\ndef f(depth=1, width=9):\n    g(depth, EPOCHS)\n",
    ),
    (
        identity_modules,
        "import torch\nclass A:\n    def __init__(self):\n        self.a = B()\n        self.b = B()\nA()",
        "import torch\n\nclass A:\n\n    def __init__(self):\n        self.a = torch.nn.Identity()\n"
        "        self.b = torch.nn.Identity()\nA()\n",
    ),
    (
        plain_values(seen({"for x in loader()": "torch.randn((2, 3))"})),
        "import torch\nfor x in loader():\n    f(x)",
        "import torch\nfor x in [torch.randn((2, 3))]:\n    f(x)\n",
    ),
    (
        plain_values(seen({"y = net(1)": "torch.randn((), requires_grad=True)"})),
        "import torch\nnet = make()\ny = net(1)\ny.f()",
        "import torch\ny = torch.randn(())\ny.f()\n",
    ),
]


RUN = """
    import torch
    def unused():
        return 1
    def half(x):
        if x:
            y = 1
        else:
            y = 2
        try:
            return y
        except ValueError:
            return unused()
    print(half(True))
"""


def test_what_did_not_run_goes_at_once():
    whole = program(RUN)
    ran = [
        number
        for number, line in enumerate(whole.text.splitlines(), start=1)
        if not any(w in line for w in ("= 2", "unused()", "return 1"))
    ]
    facts = Facts(key=whole.key, lines=frozenset(ran))
    proposals = [one.text for one in executing_only(lambda _: facts)(whole)]
    assert proposals[0] == "def half(x):\n    y = 1\n    return y\nprint(half(True))\n"
    other = parsed("f()\n", "s")
    assert not list(executing_only(lambda _: facts)(other)), "lines of one program say nothing of another"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("import os\na = os.getcwd()\nprint(1)", "print(1)\n"),
        ("a = []\na.append(1)\na.b = 2\nprint(1)", "print(1)\n"),
        ("t = Trainer()\nt.fit()", "t = Trainer()\nt.fit()\n"),
        ("def f():\n    f()\nprint(1)", "print(1)\n"),
        (
            "class A:\n    x = 1\n    def f(self):\n        self.y = 2\nA()",
            "class A:\n    x = 1\n\n    def f(self):\n        self.y = 2\nA()\n",
        ),
        ("n = 0\nn += 1\nprint(1)", "n = 0\nn += 1\nprint(1)\n"),
    ],
)
def test_what_nothing_reads_goes(text, left):
    assert without_unused(parsed(text, "s")).text == left


@pytest.mark.parametrize(("reduction", "text", "wanted"), PASSES)
def test_each_pass_proposes(reduction, text, wanted):
    assert wanted in [one.text for one in reduction(program(text))]


@pytest.mark.parametrize(("reduction", "text", "wanted"), PASSES)
def test_what_is_compiled_stays_compiled(reduction, text, wanted):
    text = "import torch\ng = torch.compile(f, backend='eager')\n"
    assert all("torch.compile(" in one.text for one in reduction(parsed(text, "s")) if reduction is not eager_backend)


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 13)))
def test_every_slice_is_a_program_and_no_larger(chosen):
    whole = program(MODEL)
    slicer = Slicer(whole)
    cut = slicer.build(slicer.items[number] for number in chosen if number < len(slicer.items))
    assert cut.measure <= whole.measure and why_it_cannot_run(cut) is None


def test_arguments_stand_in_the_text(tmp_path):
    script = tmp_path / "s.py"
    script.write_text('"""Doc."""\nfrom __future__ import annotations\nimport sys\nprint(sys.argv)\n')
    lines = read_script(script, ["--lr", "1"]).text.splitlines()
    assert lines[:4] == ['"""Doc."""', "from __future__ import annotations", "import sys", "sys.argv[1:] = ['--lr', '1']"]
    assert read_script(script, []).text.count("import sys") == 1


def test_what_is_no_script_is_said_in_one_line(tmp_path):
    for name, content in (("bytes.py", b"\xff\xfe\x00"), ("broken.py", b"def ("), ("nul.py", b"a = 1\x00")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableInputError) as raised:
            read_script(tmp_path / name, [])
        assert "\n" not in raised.value.message
    with pytest.raises(UnreadableInputError, match="cannot read"):
        read_script(tmp_path / "missing.py", [])


def test_imports_are_found_by_their_first_name():
    assert set(imported(program("import a.b\nfrom c.d import e\nfrom . import f\ndef g():\n    import h"))) == {"a", "c", ".", "h"}


def test_a_value_that_is_written_down_is_plainer_than_a_computed_one():
    written, computed = "for x in [torch.randn((2, 3), dtype=torch.half)]:\n    f(x)", "for x in loader:\n    f(x)"
    assert parsed(written, "s").measure < parsed(computed, "s").measure
    assert parsed("f(torch.ones(2))", "s").measure < parsed("f(torch.ones(4))", "s").measure < parsed("f(torch.ones(n))", "s").measure


def test_the_order_prefers_less_compiler_then_fewer_statements():
    full, eager = parsed("f = torch.compile(g)", "s"), parsed("f = torch.compile(g, backend='eager')", "s")
    assert eager.measure < full.measure and parsed("f(1)", "s").measure < parsed("f(2)", "s").measure < parsed("f(2)\nf(2)", "s").measure
