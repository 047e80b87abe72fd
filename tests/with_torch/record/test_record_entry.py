"""Each compilation of a frame says from where the frame was entered, down to the very line that called it."""

PROGRAM = """
import contextlib, torch

namespace = {}
exec(compile("def call(f, x):\\n    return f(x)\\n", "generated.py", "exec"), namespace)

class Box(torch.nn.Module):
    def forward(self, x):
        return x + 1

class Everything(contextlib.ContextDecorator):
    def __enter__(self):
        return self
    def __exit__(self, *raised):
        return False

def leaf(x):
    return x * 2

@torch.compile(backend="eager")
def plain(x):
    y = x + 1
    torch._dynamo.graph_break()  # plain resumes
    return y + 2

@torch.compile(backend="eager")
def nested(x):
    torch._dynamo.graph_break()  # nested resumes
    return plain(x) + 3  # calls nested plain

@torch.compile(backend="eager")
def skipped(x):
    for _ in range(1):
        torch._dynamo.graph_break()
        x = leaf(x)  # calls leaf
    return x

@Everything()
@torch.compile(backend="eager")
def decorated(x):
    return x - 4

def deep(f, depth):
    return deep(f, depth - 1) if depth else f(torch.ones(3))  # calls deep

plain(torch.ones(2))  # calls plain
torch._dynamo.reset()
module = torch.compile(Box(), backend="eager")
module(torch.ones(2))  # calls module
nested(torch.ones(2))  # calls nested
skipped(torch.ones(2))  # calls skipped
decorated(torch.ones(2))  # calls decorated
namespace["call"](torch.compile(leaf, backend="eager"), torch.ones(5))
deep(torch.compile(lambda x: x / 2, backend="eager"), 150)
"""


PLAIN, NESTED = "plain(torch.ones(2))  # calls plain", "nested(torch.ones(2))  # calls nested"
PLAIN_RESUMES, NESTED_RESUMES = (f"torch._dynamo.graph_break()  # {name} resumes" for name in ("plain", "nested"))
INNER = "return plain(x) + 3  # calls nested plain"
DEEP = "return deep(f, depth - 1) if depth else f(torch.ones(3))  # calls deep"
ENTERED = [
    ("plain", [PLAIN]),
    ("torch_dynamo_resume_in_plain", [PLAIN, PLAIN_RESUMES]),
    ("forward", ["module(torch.ones(2))  # calls module"]),
    ("nested", [NESTED]),
    ("torch_dynamo_resume_in_nested", [NESTED, NESTED_RESUMES]),
    ("plain", [NESTED, NESTED_RESUMES, INNER]),
    ("torch_dynamo_resume_in_plain", [NESTED, NESTED_RESUMES, INNER, PLAIN_RESUMES]),
    ("torch_dynamo_resume_in_nested", [NESTED, NESTED_RESUMES, INNER]),
    ("skipped", ["skipped(torch.ones(2))  # calls skipped"]),
    ("leaf", ["skipped(torch.ones(2))  # calls skipped", "x = leaf(x)  # calls leaf"]),
    ("decorated", ["decorated(torch.ones(2))  # calls decorated"]),
    ("leaf", ['namespace["call"](torch.compile(leaf, backend="eager"), torch.ones(5))']),
    ("<lambda>", [DEEP] * 100),
]


def test_a_frame_tells_the_line_that_called_it(run_here, tmp_path):
    outcome = run_here(PROGRAM, tmp_path / "run")
    entries = entered(outcome)
    assert [(name.partition("_at_")[0], own_lines(stack)) for name, stack in entries] == ENTERED
    assert entries[10][1][-1]["function"] == "ContextDecorator.__call__.<locals>.inner", "contextlib is a caller too"
    assert {**entries[11][1][-1]} == {"file": "generated.py", "line": 2, "function": "call", "code": None}
    assert not any("_dynamo" in stack[-1]["file"] or "dynadiag/" in place["file"] for _, stack in entries for place in stack)


def entered(outcome):
    """The name of each compiled frame and its callers; every compilation has them."""
    starts = [record for record in outcome.records if "dynamo_start" in record.header]
    entries = outcome.named("dynadiag_entry")
    assert [ids(record) for record in starts] == [ids(record) for record in entries]
    return [
        (start.header["dynamo_start"]["stack"][-1]["name"], entry.content["stack"]) for start, entry in zip(starts, entries, strict=True)
    ]


def ids(record):
    return [record.header.get(key) for key in ("frame_id", "frame_compile_id", "attempt")]


def own_lines(stack):
    return [place["code"] for place in stack if place["file"].endswith("script.py")]
