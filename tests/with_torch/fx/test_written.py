"""The gate for written Python: what a log says never becomes code, whichever field says it."""

import ast
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynadiag.errors import NotRebuildableError
from dynadiag.fx import script
from dynadiag.fx import spelling as spelled
from dynadiag.fx.rebuild import rebuild
from dynadiag.fx.script import TRUSTED, pieces, write_script
from dynadiag.fx.written import checked

HEAD = "import torch\n\n\n"
ACTS = 'not __import__("os").system("touch CANARY")'
REFUSED = [
    f"x = torch.float32 if {ACTS} else torch.zeros((4,))",
    "import os",
    "from os import system",
    "import torch as t",
    "import math as os",
    "x = open('CANARY', 'w')",
    "x = torch.load('CANARY')",
    "x = torch.hub.load('a', 'b')",
    "x = torch.ops.load_library('CANARY')",
    "x = torch.ops.aten.from_file.default('CANARY', True, 4)",
    "x = torch.os.system('touch CANARY')",
    "x = torch.serialization.os.system('touch CANARY')",
    "x = torch.Tensor.__class__",
    "x = torch.zeros(1).__class__.__mro__",
    "x = torch.zeros(1).numpy().tofile('CANARY')",
    "x = torch.zeros(1).apply_(print)",
    "x = [torch][0].load('CANARY')",
    "x = getattr(torch, 'load')('CANARY')",
    "x = (lambda: 1)()",
    "x = f'{open(1)}'",
    "x = __builtins__",
    "x: open('CANARY', 'w') = 1",
    "def f(a=open('CANARY', 'w')): pass",
    "def f(a: open('CANARY', 'w')): pass",
    "def f() -> open('CANARY', 'w'): pass",
    "@open\ndef f(): pass",
    "class A(open): pass",
    "class A(torch.nn.Module, metaclass=open): pass",
    "def torch(): pass",
    "def f(open):\n    return open\n\n\nopen('CANARY', 'w')",
    "async def f(): pass",
    "try:\n    pass\nfinally:\n    pass",
    "while True:\n    pass",
    "global x",
    "del torch",
    "raise x",
    "torch.nn.Module.forward = torch.zeros",
    "torch._inductor.config.cpp.cxx = ('touch', 'CANARY')",
    "x = math.os",
    "x = operator.methodcaller('system', 'ls')",
    "x = torch._dynamo.utils.numpy_attr_wrapper(torch.zeros(1), 'tofile')",
    "x = torch._dynamo.utils.numpy_method_wrapper('tofile')(torch.zeros(1), 'CANARY')",
    "x = {**open}",
    "x = print(*[1], **{'file': 1})",
]


@pytest.mark.parametrize("line", REFUSED)
def test_what_no_writer_writes_is_refused(line):
    with pytest.raises(NotRebuildableError):
        checked(f"{HEAD}import math\nimport operator\n{line}\n")


@pytest.mark.parametrize(
    "text",
    [
        "# coding: utf-7\nimport torch\n# +AAo-x = 1\n",
        "#!/x\n# -*- coding=latin-1 -*-\n",
        "# vim: set fileencoding=utf_16 :\n",
        "x = 1\0",
        "def (",
        "\n" + "(" * 5000,
    ],
)
def test_text_that_python_would_read_otherwise_is_refused(text):
    with pytest.raises(NotRebuildableError):
        checked(text)


def test_names_of_a_log_in_the_first_lines_declare_no_encoding(printed):
    rebuilt = rebuild(printed('x: "f32[4][1]cpu"', "return (x,)"))
    source = write_script(rebuilt, title=["dynadiag graph: g0 of coding: utf-7", "coding=utf-7 +AAo-import os"])
    assert source.splitlines()[:2] == ["# dynadiag graph: g0 of coding : utf-7", "# coding =utf-7 +AAo-import os"]


DETAILS = {
    "grad": True,
    "inputs": [
        {
            "name": "x",
            "type": "Tensor",
            "source": "L['x']",
            "shape": [4, 4],
            "stride": [4, 1],
            "dtype": "torch.float32",
            "device": "cpu",
            "offset": 0,
            "storage": 1,
            "storage_bytes": 64,
            "requires_grad": True,
            "is_leaf": True,
            "static": "marked",
        },
        {
            "name": "y",
            "shape": [4, 4],
            "stride": [4, 1],
            "dtype": "float32",
            "device": "cpu",
            "storage": 1,
            "is_leaf": False,
            "requires_grad": True,
        },
        {"name": "s0", "value": 4},
    ],
    "attributes": [{"name": "buffer", "shape": [4], "stride": [1], "dtype": "float32", "device": "cpu"}],
    "operators": {"mylib::op": "op(Tensor x) -> Tensor"},
    "strings": ['  File "a.py", line 1, in f\n    y = x\n', "L['self']"],
    "nodes": [["sin", 1, 0], ["add", 1, 0]],
    "backend": {"backend": "inductor", "registered": True, "options": {}, "mode": None, "dynamic": None},
    "autocast": {"cpu": None},
    "inference": False,
    "deterministic": False,
}
STATEMENTS = (
    'buffer: "f32[4][1]cpu" = self.buffer',
    'sin: "f32[4, 4][4, 1]cpu" = x.sin()',
    'add: "f32[4, 4][4, 1]cpu" = torch.add(sin, y, alpha = s0)',
    "to = add.to(dtype = torch.float64, device = device(type='cpu'))",
    "return (to, buffer)",
)
SIGNATURE = 'x: "f32[4, 4][4, 1]cpu", y: "f32[4, 4][4, 1]cpu", s0: "Sym(s0)"'
HOSTILE = [
    f"float32) if {ACTS} else torch.zeros((4,",
    "float32, __import__('os').system('touch CANARY')",
    "cpu'); __import__('os').system('touch CANARY'); ('",
    "x\n__import__('os').system('touch CANARY')",
    "x\r__import__('os').system('touch CANARY')",
    "\u2028import os",
    "x\x0cimport os",
    '"""\nimport os\n"""',
    "coding: utf-7",
    "load",
    "hub.load",
    "__class__",
    "\\",
    "\x00",
    "\ud800",
    "",
    "cuda:0",
    "x" * 100_000,
]
VALUES = st.one_of(
    st.sampled_from(HOSTILE),
    st.sampled_from([True, False, None, -1, 2**63, -(2**200), 10**400, 0.5, math.nan, math.inf, [], {}, [[]], [1, "x"], {"a": []}]),
    st.text(max_size=40),
    st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=3),
)


def leaves(value, path=()):
    if isinstance(value, dict | list):
        yield path
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.fixture(scope="module")
def recorded(printed_graph):
    return printed_graph(SIGNATURE, *STATEMENTS)


@pytest.fixture(scope="module")
def printed_graph():
    def make(signature, *statements):
        body = "".join(f"        {line}\n" for line in statements)
        return f"class GraphModule(torch.nn.Module):\n    def forward(self, {signature}):\n{body}"

    return make


def written(text, details):
    """What the writers write of the graph, with all that they say to the gate; empty when it is refused in one line."""
    try:
        rebuilt = rebuild(text, details=details)
        imports, body = pieces(rebuilt, rebuilt.inputs, script.FILLINGS[0])
        return [write_script(rebuilt, title=["graph g0"]), "\n".join([*sorted(imports), *body])]
    except NotRebuildableError as error:
        assert len(error.message.splitlines()) == 1
        return []


def test_the_valid_record_is_written(recorded):
    (whole, part) = written(recorded, DETAILS)
    assert "strided((4, 4), (4, 1), torch.float32, storage=storage_1)" in whole and "GraphModule" in part


@pytest.mark.parametrize("text", HOSTILE[:6])
def test_a_dtype_of_a_log_is_a_dtype_or_nothing(recorded, text):
    for place in (
        ("inputs", 0, "dtype"),
        ("inputs", 1, "dtype"),
        ("inputs", 0, "device"),
        ("attributes", 0, "dtype"),
        ("attributes", 0, "device"),
    ):
        assert written(recorded, changed(DETAILS, place, text)) == []


@pytest.mark.any_torch
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_record_says_the_written_text_stays_in_the_allow_list(recorded, data):
    details = changed(DETAILS, data.draw(st.sampled_from(list(leaves(DETAILS)))), data.draw(VALUES))
    for source in written(recorded, details):
        checked(source, trusted=TRUSTED)
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}
        assert not any(part in call for call in calls for part in ("__import__", "system", "open", "exec", "load"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_graph_says_the_written_text_stays_in_the_allow_list(recorded, data):
    at, size = data.draw(st.integers(0, len(recorded))), data.draw(st.integers(0, 12))
    new = data.draw(st.one_of(st.sampled_from([text[:200] for text in HOSTILE]), st.text(max_size=12)))
    for source in written(recorded[:at] + new + recorded[at + size :], DETAILS):
        checked(source, trusted=TRUSTED)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1 + 2j, complex(0, math.nan), -1, True, None, ..., "a'\"\n\\"])
def test_a_constant_is_spelled_so_that_python_reads_it_back(value):
    read = eval(spelled.constant(value))
    assert repr(read) == repr(value)


@pytest.mark.parametrize("value", [10**400 * 2**5000, b"x", [], object(), (1.0).__class__])
def test_what_is_no_plain_constant_has_no_spelling(value):
    with pytest.raises(NotRebuildableError):
        spelled.constant(value)
