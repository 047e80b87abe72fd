"""A number that the program needs as a number is not told to stay a tensor."""

import pytest

from dynadiag.advice.graph_breaks import break_advice
from dynadiag.model.run import BreakEvent, CompileKey, Frame, Location, Process, Run, RunInfo

FILE = "/home/me/train.py"
OPTIONS = frozenset({"capture_scalar_outputs", "capture_dynamic_output_shape_ops"})


def advice(gb_id, block, other=None):
    code = block.partition("\n")[0].strip()
    frame = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="f", file=FILE, line=1, outcome="broke")
    breaks = () if other is None else (at("GB0170", other),)
    run = Run(
        info=RunInfo(),
        processes=(Process(index=0, log="a.log", torch="2.15.0", option_names={"dynamo": OPTIONS}),),
        frames=(frame,),
        blocks={(FILE, 3): block},
        breaks=breaks,
    )
    return {one.slug: one for one in break_advice(at(gb_id, code), run)}


def at(gb_id, code):
    own = Location(FILE, 3, "f", code)
    return BreakEvent(frame="f0", attempt=0, gb_id=gb_id, gb_type="?", explanation="", hints=(), context="", stack=(own,), torch_frame=own)


def test_words_of_a_vocabulary_are_not_indexed_as_a_tensor():
    found = advice("GB0124", "self.text += VOCAB[tok.item()]")["item-index-select"]
    assert found.after is None
    assert "look it up in `VOCAB` after the compiled call" in found.text


@pytest.mark.parametrize(
    "block",
    [
        "for tok in set(ids[0].tolist()):\n    logits[0, tok] /= 1.2",
        "for b, t in zip(beams.tolist(), toks.tolist()):\n    seq = seqs[b] + [t]",
        "for x in t.tolist():\n    seen.add(x)",
        "for x in t.tolist():\n    if x > 3:\n        n = n + 1",
        "ids = t.tolist()\nreturn ids",
        "return sorted(t.tolist())",
        "texts = [names[i] for i in t.tolist()]",
        'line = f"{t.tolist()}"',
    ],
)
def test_a_list_that_needs_numbers_is_taken_outside(block):
    found = advice("GB0033", block)
    assert "tolist-unbind" not in found
    assert found["tolist-outside"].after is None


def test_every_list_of_the_line_is_unbound():
    found = advice("GB0033", "for a, b in zip(x.tolist(), y.tolist()):\n    total = total + a * b")["tolist-unbind"]
    assert found.after == "for a, b in zip(x.unbind(), y.unbind()):"


@pytest.mark.parametrize(
    "later",
    [
        "keep.append(i)",
        "word = words[i]",
        "self.count[name] = i\nlog(i)",
        "return x, i",
        'print(f"{i}")',
        "y = x.new_zeros(3)\nz = math.exp(i)",
    ],
)
def test_a_number_that_is_collected_or_looked_up_does_not_stay_a_tensor(later):
    found = advice("GB0124", f"i = order[0].item()\n{later}")
    assert "item-keep-tensor" not in found
    assert found


@pytest.mark.parametrize(
    "later", ["y = x * i", "y = torch.clamp(x, max=i)", "y = x.clamp(max=i)", "y = x[0] - i * 2\nreturn y", "return x * i"]
)
def test_a_number_that_is_only_computed_with_stays_a_tensor(later):
    assert advice("GB0124", f"i = order[0].item()\n{later}")["item-keep-tensor"].after == "i = order[0].detach()"


def test_a_returned_number_is_read_after_the_call():
    found = advice("GB0124", "return a.item(), b")["item-return-tensor"]
    assert found.after == "return a.detach(), b"
    assert "`.item()` where the result is used" in found.text
    assert "item-keep-tensor" in advice("GB0124", "return x * x.sum().item()")


def test_a_line_that_breaks_anyway_is_not_where_a_break_moves():
    block = "gain = x.mean().item()\nfeats = x * gain\nif feats.max() > 5:\n    feats = feats / 5"
    assert "only moves the break to `if feats.max() > 5:`" in advice("GB0124", block)["item-capture"].text
    assert "moves" not in advice("GB0124", block, "if feats.max() > 5:")["item-capture"].text
