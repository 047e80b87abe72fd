"""Advice does not depend on the names by which a program knows torch, its functional module and `math`."""

import re

import pytest

from dynadiag.advice.graph_breaks import advised
from dynadiag.advice.imports import with_imports
from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, CompileCall, CompileKey, Frame, Process, Run, RunInfo
from dynadiag.source.function import parse_function
from dynadiag.source.imports import USUAL, parse_imports, spelled
from dynadiag.source.line import parse_line

FILE = "/home/me/train.py"
KEPT = {"stride": None, "device": "cpu", "requires_grad": False, "is_leaf": True, "is_parameter": False, "storage": None}
PLAIN = "import torch\nimport torch.nn.functional as F\nimport math\nimport numpy as np"
# The imports of a file, and by which texts it names what the plain file does.
STYLES = {
    "aliases": (
        "import torch as th\nimport torch.nn.functional as fn\nimport math as m\nimport numpy as N",
        {r"\btorch\.": "th.", r"\bF\.": "fn.", r"\bmath\.": "m.", r"\bnp\.": "N."},
    ),
    "functions": (
        "from torch import relu as rl, isnan, where, exp, mean, stack, nonzero\nfrom torch.nn.functional import relu as frelu\n"
        "from torch.nn.functional import silu\nfrom math import floor as fl, sqrt, exp as mexp\n"
        "from numpy import asarray",
        {
            r"\bmath\.exp\b": "mexp", r"\btorch\.relu\b": "rl", r"\bF\.relu\b": "frelu", r"\bF\.silu\b": "silu", r"\bnp\.": "",
            r"\bmath\.floor\b": "fl", r"\bmath\.sqrt\b": "sqrt", r"\btorch\.(isnan|where|exp|mean|stack|nonzero)\b": r"\1",
        },
    ),
    "modules": ("import torch as th\nfrom torch.nn import functional as fn\nimport math", {r"\btorch\.": "th.", r"\bF\.": "fn."}),
}  # fmt: skip
# By name the id of a break, the statements of its function, which of them breaks, and what is advised.
PROGRAMS = {
    "choice": ("GB0170", ["y = x * 2", "if torch.isnan(x).any():", "    y = torch.relu(y)", "return y"], 1, "if-where"),
    "functional": ("GB0170", ["y = F.silu(x) if x.sum() > 0 else torch.relu(x)", "return y"], 0, "if-where"),
    "math in a condition": ("GB0170", ["y = x * 2", "if math.exp(x.sum().item()) > 3:", "    y = F.silu(y)", "return y"], 1, "if-where"),
    "number kept": ("GB0124", ["n = torch.mean(x).item()", "return torch.relu(x) * n"], 0, "item-keep-tensor"),
    "number of math": ("GB0124", ["return x * math.exp(-torch.mean(x).item())"], 0, None),
    "root of a sum": ("GB0124", ["return torch.relu(x * math.sqrt(F.relu(x).sum().item()))"], 0, "item-math"),
    "sizes": ("GB0036", ["i = torch.nonzero(x)", "return torch.relu(x[i])"], 0, "shape-capture"),
    "sizes of numpy": ("GB0036", ["i = torch.nonzero(x)", "return np.asarray(i)"], 0, None),
    "floor": ("GB0124", ["n = math.floor(torch.mean(x).item())", "return x * n"], 0, None),
}


def found_in(name, imports, change):
    gb_id, body, at, _ = PROGRAMS[name]
    rows = [change(f"    {row}") for row in body]
    own = Location(FILE, 11 + at, "f", rows[at].strip())
    event = BreakEvent(frame="f0", attempt=0, gb_id=gb_id, gb_type="?", explanation="", hints=(), context="", stack=(own,), torch_frame=own)
    run = Run(
        info=RunInfo(),
        compile_calls=(CompileCall(process=0, location=None, target="f", backend="eager"),),
        processes=(Process(index=0, log="a.log"),),
        frames=(Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="f", file=FILE, line=10, outcome="broke"),),
        traced_inputs=(TracedInput(frame="f0", source="L['x']", shape=(4,), dtype="torch.float32", **KEPT),),
        blocks={(FILE, 1): imports, (FILE, 10): "\n".join(["def f(x):", *rows])},
    )
    return advised(event, run), run, own


def advice_of(name, imports, change):
    (found, reason), *_ = found_in(name, imports, change)
    return [(advice.slug, advice.before, advice.after) for advice in found], reason


def advice_with_imports(name, style):
    imports, words = STYLES[style]
    found, run, own = found_in(name, imports, lambda row: changed(row, words))
    return [with_imports(advice, own, run) for advice in found[0]]


def changed(text, words):
    for before, after in words.items():
        text = re.sub(before, after, text)
    return text


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_is_advised_by_whatever_names_the_program_knows_torch(name, style):
    imports, words = STYLES[style]
    plain, why = advice_of(name, PLAIN, lambda row: row)
    found, reason = advice_of(name, imports, lambda row: changed(row, words))
    assert [slug for slug, *_ in plain] == [slug for slug in PROGRAMS[name][-1:] if slug]
    assert [slug for slug, *_ in found] == [slug for slug, *_ in plain], reason
    assert reason == (None if why is None else changed(why, words))
    for (_, before, after), (_, plain_before, plain_after) in zip(found, plain, strict=True):
        assert before == (None if plain_before is None else changed(plain_before, words))
        assert changed(after or "", words) == changed(plain_after or "", words)  # new code may name torch itself


@pytest.mark.parametrize(
    "imports", ["import torchvision.transforms.functional as F", "from . import functional as F", "from mine import functional as F"]
)
def test_a_module_of_another_name_is_not_taken_for_torchs(imports):
    function = parse_function("def f(x):\n    return F.relu(x)", parse_imports(f"import torch\n{imports}"))
    assert "torch" not in {name.partition(".")[0] for name in function.index.reads}


@pytest.mark.parametrize("text", ["def f(x, where):\n    return where(x)", "def f(x):\n    where = x.item\n    return where(x)"])
def test_a_name_that_the_function_binds_is_its_own(text):
    function = parse_function(text, parse_imports("from torch import where"))
    assert "torch.where" not in function.index.reads


def test_imports_inside_a_function_count():
    function = parse_function("def f(x):\n    import torch as th\n    from torch.nn.functional import silu\n    return silu(th.relu(x))")
    assert {"torch.relu", "torch.nn.functional.silu"} <= set(function.index.reads)


def test_new_code_calls_torch_what_its_file_calls_it():
    (advice,) = advice_with_imports("choice", "aliases")
    assert (advice.after, advice.imports) == ("y = th.where(th.isnan(x).any(), th.relu(y), y)", ())
    (advice,) = advice_with_imports("choice", "functions")
    assert (advice.after, advice.imports) == ("y = torch.where(isnan(x).any(), rl(y), y)", ("import torch",))


def test_a_line_is_spelled_as_its_program_spells_it():
    line = parse_line("y = fn.relu(where(x > 0, x, np.inf))", parse_imports("import torch.nn.functional as fn\nfrom torch import where"))
    assert [call.func.attr for call in line.methods("relu", "where")] == ["relu", "where"]
    assert next(line.calls("torch.nn.functional.relu"), None) is not None
    assert spelled(line.tree) == line.code
    assert line.text(next(line.calls("torch.where"))) == "where(x > 0, x, np.inf)"


def test_what_cannot_be_parsed_or_lies_beside_the_file_is_left_out():
    assert parse_imports("from torch import (\nimport torch as\nfrom .torch import where\nfrom mine import exp") == USUAL


def test_a_deep_expression_is_no_error():
    parse_function("def f(x):\n    return " + " + ".join(["F.relu(x)"] * 600))
