"""The changes for the causes of a cold start, as texts of the program; that they help is shown by starting it (tests/with_torch/start)."""

from pathlib import Path

import pytest

from dynadiag.changes.edits import applied
from dynadiag.diff.result import Side, SourceLine
from dynadiag.errors import EditError
from dynadiag.start.cures import changes_of
from dynadiag.start.repeated_blocks import Blocks, one_block_edit
from dynadiag.start.result import CacheAnswer, Cause, Compilation, StartResult
from dynadiag.start.setting_lines import Source

FILE = Path("/project/train.py")
SIDE = Side(path="run", program="train.py", torch="2.15.0", device=None, incomplete=None)
AT = SourceLine(file="train.py", line=3)


def change_for(kind, text, variables=None, *, late=False, **fields):
    """The one change for a cause of this kind, and the rows that it brings."""
    causes = () if late else (Cause(kind=kind, what="something", **fields),)
    compilation = Compilation(
        id="f0",
        function="step",
        place=AT,
        rank=None,
        call=1,
        answers=(CacheAnswer(cache="fx_graph", result="miss"),),
        compile_s=1.0,
        first_s=1.0,
        causes=causes,
        late=late,
    )
    result = StartResult(old=SIDE, new=SIDE, compilations=(compilation,), missed=1, first_s=1.0, second_s=1.0, steps={})
    changes = changes_of(result, [Source("train.py", text, FILE)], variables or {})
    if not changes:
        return None, []
    (change,) = changes
    was = text.split("\n")
    return change, [row for row in change.texts.get(FILE, text).split("\n") if row not in was]


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        ("for name in NAMES: pass", "for name in sorted(NAMES): pass"),
        ("order = list({1, 2} | other)", "order = list(sorted({1, 2} | other))"),
        ("y = [a for a in frozenset(b)]", "y = [a for a in sorted(frozenset(b))]"),
    ],
)
def test_what_walks_through_a_set_takes_it_sorted(row, changed):
    change, rows = change_for("hash_order", f"NAMES = {{'a', 'b'}}\nLIST = ['a']\nfor one in LIST: pass\n'a' in NAMES\n{row}\n")
    assert (change.kind, rows) == ("sort_set", [changed])


def test_where_no_set_is_found_the_hash_seed_is_fixed():
    change, rows = change_for("hash_order", "import torch\n")
    assert (change.kind, dict(change.variables), rows) == ("fixed_hash_seed", {"PYTHONHASHSEED": "0"}, [])


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        ("config.post_grad_custom_post_pass = tidy", "config.post_grad_custom_post_pass = CachedPass(tidy)"),
        ("config.patch(joint_custom_pre_pass=lambda graph: None)", "config.patch(joint_custom_pre_pass=CachedPass(lambda graph: None))"),
        ('g = torch.compile(f, options={"post_grad_custom_pre_pass": tidy})', None),
    ],
)
def test_a_pass_of_the_file_gets_a_uuid(row, changed):
    change, rows = change_for("custom_pass", f"import torch\n\ndef tidy(graph):\n    pass\n\n{row}\n")
    assert change.kind == "pass_uuid" and "        return get_hash_for_files((__file__,))" in rows
    assert rows[-1] == (changed or 'g = torch.compile(f, options={"post_grad_custom_pre_pass": CachedPass(tidy)})')


def test_a_pass_of_another_file_gets_none_since_its_text_is_not_that_of_the_file():
    assert change_for("custom_pass", "import torch\nfrom passes import tidy\nconfig.post_grad_custom_post_pass = tidy\n") == (None, [])


def test_caches_that_the_program_or_its_start_switches_off_stay_on():
    text = 'os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"\ntorch._inductor.config.fx_graph_cache = False\n'
    change, rows = change_for("caches_off", text, {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"})
    assert rows == ['os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "0"', "torch._inductor.config.fx_graph_cache = True"]
    assert dict(change.variables) == {"TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}


def test_a_cache_folder_of_one_start_is_not_set():
    change, _ = change_for("entry_gone", 'import os\nos.environ["TORCHINDUCTOR_CACHE_DIR"] = mkdtemp()\nprint()\n')
    assert change.texts[FILE] == "import os\nprint()\n"


@pytest.mark.parametrize(
    ("name", "value", "row", "changed"),
    [
        ("rate", "0.3", "fast(x, random.random())", "fast(x, torch.as_tensor(random.random(), dtype=torch.float64))"),
        ("rate", "0.3", "fast(x, rate=draw())", "fast(x, rate=torch.as_tensor(draw(), dtype=torch.float64))"),
        ("self.rate", "0.3", "        self.rate = rate", "        self.rate = torch.as_tensor(rate, dtype=torch.float64)"),
        ("SEED", "7", "SEED = os.getpid()", "SEED = torch.as_tensor(os.getpid())"),
    ],
)
def test_a_number_of_one_process_is_given_as_a_tensor(name, value, row, changed):
    own = ["class Model:", "    def __init__(self, rate):", row] if row.startswith(" ") else [row]
    text = "\n".join(["import torch", "def step(x, rate):", "    return x * rate", "fast = torch.compile(step)", "fast(x, 2.0)", *own, ""])
    change, rows = change_for("per_process", text, name=name, new=value)
    assert (change.kind, rows) == ("number_as_tensor", [changed])


def test_a_number_that_is_a_tensor_by_its_name_is_one_as_an_argument():
    text = "import torch\ndef step(x, rate):\n    return x * rate\nfast = torch.compile(step)\nrate = draw()\nfast(x, rate)\n"
    _, rows = change_for("per_process", text, name="rate", new="0.3")
    assert rows == ["rate = torch.as_tensor(draw(), dtype=torch.float64)"]


def test_a_number_without_a_name_is_left():
    assert change_for("per_process", "import torch\nf(time.time())\n", new="0.3") == (None, [])


def test_what_compiles_after_the_warm_up_is_compiled_for_dynamic_sizes():
    change, rows = change_for("input", "import torch\n\n@torch.compile\ndef step(x):\n    return x\n", late=True)
    assert (change.kind, rows) == ("dynamic_sizes", ["@torch.compile(dynamic=True)"])


def test_a_file_that_cannot_be_parsed_is_left():
    assert change_for("custom_pass", "import torch\nconfig.post_grad_custom_post_pass = lambda: (\n") == (None, [])


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        (
            'fast = torch.compile(model, mode="max-autotune")',
            ["for block in model.net.layers:", "    block.compile(mode='max-autotune')", "fast = model"],
        ),
        ("self.model.compile()", ["for block in self.model.net.layers:", "    block.compile()"]),
    ],
)
def test_one_block_is_compiled_for_all(row, changed):
    text = f"import torch\n{row}\n"
    assert applied(text, one_block_edit(text, 2, "net.layers", "train.py"))[0].split("\n")[1:-1] == changed


@pytest.mark.parametrize(
    "row", ["fast = torch.compile(Model())", "run(torch.compile(model))", "fast = other(model)", "@torch.compile\ndef f(): pass"]
)
def test_what_is_compiled_in_another_way_is_left(row):
    with pytest.raises(EditError):
        one_block_edit(f"import torch\n{row}\n", 2, "layers", "train.py")


def test_the_name_of_the_loop_is_a_new_one():
    text = "import torch\nblock = 3\nfast = torch.compile(model)\n"
    assert "for layer in model.layers:" in applied(text, one_block_edit(text, 3, "layers", "train.py"))[0]


@pytest.mark.parametrize(
    ("classes", "alike"), [(("Block",) * 4, True), (("Block",) * 3, False), (("Block", "Block", "Block", "Head"), False)]
)
def test_blocks_are_of_one_class_and_enough(classes, alike):
    assert Blocks("layers", dict(enumerate(classes))).are_alike is alike
