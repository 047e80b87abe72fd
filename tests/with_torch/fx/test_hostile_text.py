"""A log is never executed: every way to run code that a printed graph might try leaves no trace, and is refused or harmless."""

import contextlib
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynadiag.errors import NotRebuildableError
from dynadiag.fx.rebuild import rebuild
from dynadiag.fx.running import try_run

SIGNATURE = 'x: "f32[4][1]cpu"'
ATTACKS = [
    "y = __import__('os').system('touch CANARY')",
    "y = open('CANARY', 'w')",
    "y = eval(\"open('CANARY', 'w')\")",
    "y = exec(\"open('CANARY', 'w')\")",
    "y = compile('1', 'CANARY', 'exec')",
    "import os; y = os.system('touch CANARY')",
    "y = (lambda: open('CANARY', 'w'))()",
    "y = [open('CANARY', 'w') for i in (1,)]",
    "y = {k: open('CANARY', 'w') for k in (1,)}",
    "y = f\"{open('CANARY', 'w')}\"",
    "y = x if open('CANARY', 'w') else x",
    "y = x and open('CANARY', 'w')",
    "y = (z := open('CANARY', 'w'))",
    "y = torch.add(x, open('CANARY', 'w'))",
    "y = torch.add(x, other=open('CANARY', 'w'))",
    "y = torch.add(*[x, open('CANARY', 'w')])",
    "y = torch.add(x, **{'other': open('CANARY', 'w')})",
    "y = x[open('CANARY', 'w')]",
    "y = x[open('CANARY', 'w'):2]",
    "x[open('CANARY', 'w')] = 1; y = x",
    "x += open('CANARY', 'w'); y = x",
    "assert open('CANARY', 'w'); y = x",
    "del x; y = open('CANARY', 'w')",
    "raise open('CANARY', 'w')",
    "with open('CANARY', 'w') as y: pass",
    "def y(a=open('CANARY', 'w')): pass",
    "class y(open('CANARY', 'w')): pass",
    "for y in open('CANARY', 'w'): pass",
    "while open('CANARY', 'w'): pass",
    "try:\n            y = open('CANARY', 'w')\n        finally: pass",
    "return (open('CANARY', 'w'),)",
    "y = yield open('CANARY', 'w')",
    "y = getattr(x, '__class__')",
    "y = getattr(torch, 'load')",
    "y = getattr(self, '__class__')",
    "y = getattr(self, 'forward')",
    "y = self.__class__.__init__.__globals__",
    "y = self.__dict__",
    "y = x.__class__.__subclasses__()",
    "y = x.__reduce_ex__(2)",
    "y = x.__setstate__(())",
    "y = x.numpy().tofile('CANARY')",
    "y = x.untyped_storage().from_file('CANARY', True, 16)",
    "y = x.apply_(print)",
    "y = x.register_hook(print)",
    "y = x.share_memory_()",
    "y = torch.load('CANARY')",
    "y = torch.save(x, 'CANARY')",
    "y = torch.serialization.save(x, 'CANARY')",
    "y = torch.from_file('CANARY', shared = True, size = 4)",
    "y = torch.ops.aten.from_file('CANARY', True, 4)",
    "y = torch.ops.aten.from_file.default('CANARY', True, 4)",
    "y = torch._C._VariableFunctions.from_file('CANARY', shared = True, size = 4)",
    "y = torch.ops.aten.save(x, 'CANARY')",
    "y = torch.ops.aten.save.default(x, 'CANARY')",
    "y = torch.ops.load_library('CANARY')",
    "y = torch.ops.debugprims.load_tensor('CANARY', [4], [1], dtype = torch.float32, device = device('cpu'))",
    "y = torch.ops.torch.ops.aten.add",
    "y = torch.ops.aten.__class__",
    "y = torch.ops.aten.add.__class__.__init__",
    "y = torch.hub.load('CANARY', 'x')",
    "y = torch.jit.load('CANARY')",
    "y = torch.jit.save(x, 'CANARY')",
    "y = torch.utils.cpp_extension.load_inline('a', 'CANARY')",
    "y = torch.classes.load_library('CANARY')",
    "y = torch.package.PackageExporter('CANARY')",
    "y = torch._dynamo.config.patch",
    "y = torch.os.system('touch CANARY')",
    "y = torch.sys.modules",
    "y = torch.functional.torch.os.system('touch CANARY')",
    "y = torch.nn.functional.torch.save(x, 'CANARY')",
    "y = math.sys",
    "y = operator.attrgetter('__class__')(x)",
    "y = _operator_methodcaller('tofile', 'CANARY')(x)",
    "y = torch__dynamo_utils_wrapped_save('CANARY', x)",
    "y = torch__dynamo_utils_wrapped_tofile(x, 'CANARY')",
    "y = torch__dynamo_utils_wrapped___class__(x)",
    "y = torch.Tensor.tofile(x, 'CANARY')",
    "y = torch.Tensor.__reduce_ex__(x, 2)",
    "y = torch.device(open('CANARY', 'w'))",
    "y = torch.Size([open('CANARY', 'w')])",
    "y = slice(open('CANARY', 'w'))",
    "y = torch.sym_not.__globals__",
    "y = torch.float32.__class__",
    "y = b'CANARY'",
    "y = print(x, file=open('CANARY', 'w'))",
]


@pytest.fixture
def canary(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "CANARY"


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_refused_and_leaves_nothing(printed, canary, attack):
    with pytest.raises(NotRebuildableError) as refused:
        rebuild(printed(SIGNATURE, attack, "return (y,)"))
    assert not canary.exists() and os.listdir(canary.parent) == []
    assert "\n" not in refused.value.message and len(refused.value.message) < 400


@pytest.mark.parametrize(
    "text",
    [
        "@open('CANARY', 'w')\nclass GraphModule(torch.nn.Module):\n    def forward(self, x): return (x,)\n",
        "class GraphModule(open('CANARY', 'w')):\n    def forward(self, x): return (x,)\n",
        "class GraphModule(torch.nn.Module):\n    open('CANARY', 'w')\n    def forward(self, x): return (x,)\n",
        "class GraphModule(torch.nn.Module):\n    @open('CANARY', 'w')\n    def forward(self, x): return (x,)\n",
        "class GraphModule(torch.nn.Module):\n    def forward(self, x=open('CANARY', 'w')): return (x,)\n",
        "class GraphModule(torch.nn.Module):\n    def forward(self, x: open('CANARY', 'w')): return (x,)\n",
        "class GraphModule(torch.nn.Module):\n    def forward(self, x: \"Sym(open('CANARY', 'w'))\"): return (x,)\n",
        "class GraphModule(torch.nn.Module):\n    def forward(self, x: \"f32[open('CANARY', 'w')]\"): return (x,)\n",
        "class open('CANARY', 'w')(torch.nn.Module):\n    def forward(self, x: \"f32[__import__('os')]\"): return (x,)\n",
        "open('CANARY', 'w')\nclass GraphModule(torch.nn.Module):\n    def forward(self, x): return (x,)\n",
    ],
)
def test_attack_outside_the_statements_is_refused(canary, text):
    with pytest.raises(NotRebuildableError):
        rebuild(text)
    assert not canary.exists()


@pytest.mark.parametrize("statement", ["y: open('CANARY', 'w') = x", "y: \"open('CANARY', 'w')\" = x", "\"open('CANARY', 'w')\"; y = x"])
def test_annotation_and_text_are_never_evaluated(printed, canary, statement):
    assert try_run(rebuild(printed(SIGNATURE, statement, "return (y,)"))).runnable
    assert not canary.exists()


def test_comment_is_never_code(printed, canary):
    text = printed(SIGNATURE, "# File: a.py:1 in f, code: x\rimport os; os.system('touch CANARY')", "y = x + 1", "return (y,)")
    rebuild(text).graph_module.print_readable(print_output=False)
    assert not canary.exists()


def test_names_from_a_log_do_not_replace_parts_of_the_module(printed):
    for name in ("forward", "graph", "_parameters", "training", "__call__", "register_buffer"):
        with pytest.raises(NotRebuildableError):
            rebuild(printed(SIGNATURE, f'y: "f32[4][1]cpu" = self.{name}', "return (y,)"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        ["torch.add", "torch.ops.aten.add.Tensor", "x.add", "getattr", "self.a", "torch.zeros", "open", "math_sqrt", "torch.load"]
    ),
    arguments=st.lists(
        st.sampled_from(
            ["x", "1", "'a'", "[1]", "(x,)", "open('CANARY','w')", "self", "torch", "None", "lambda: 1", "x.data", "torch.float32", "*x"]
        ),
        max_size=3,
    ),
)
def test_any_call_is_built_or_refused_and_runs_nothing(printed, canary, name, arguments):
    text = printed(SIGNATURE, f"y = {name}({', '.join(arguments)})", "return (y,)")
    with contextlib.suppress(NotRebuildableError):
        try_run(rebuild(text))
    assert not canary.exists()
