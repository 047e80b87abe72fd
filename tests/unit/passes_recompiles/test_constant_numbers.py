"""A size that Python needs to know is a constant again: the line that needs it is named, not only the tensor whose guard fails."""

from dynadiag.model.compiled import ShapeFact
from dynadiag.model.location import Location
from dynadiag.passes.find_recompiles import find_recompiles

STACK = (
    Location("/home/me/project/train.py", 11, "attend", "return mask(x.shape[0]) @ x"),
    Location("/home/me/project/train.py", 4, "mask", "if n not in CACHE:"),
)


def test_the_line_that_needs_the_size_is_named(builders):
    events = [[f"0/{i}: tensor 'x' size mismatch at index 0. expected {i + 2}, actual {i + 3}"] for i in range(3)]
    facts = tuple(
        ShapeFact(kind="specialized", frame=f"f{i}", attempt=0, text="s7", sources=("L['x'].size()[0]",), value=str(i + 2), stack=STACK)
        for i in range(1, 4)
    )
    run = builders.replace(builders.recompiled(*events), shape_facts=facts)
    (finding,) = find_recompiles(run).findings
    assert "`x.size(0)`: 2 -> 3 -> 4 -> 5, made a constant at train.py:4 (`if n not in CACHE:`)" in finding.why


def test_without_such_a_record_no_line_is_named(builders):
    (finding,) = find_recompiles(builders.recompiled(["0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"])).findings
    assert "made a constant" not in finding.why
