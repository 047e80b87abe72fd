"""Each clause becomes one sentence, and nobody needs to read it back: what is claimed is in its class and fields."""

import pytest

from dynadiag.model import clauses as c
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, distinct_advice
from dynadiag.model.sentences import capital, sentence, sentences

PLACES = (Location("/lib/core.py", 70, "f"), Location("/lib/core.py", 90, "g"))
SAID = {
    c.Counted(3, "break event", 2, who="ranks 0, 1"): "3 break events at 2 sites on ranks 0, 1.",
    c.Counted(1, "break event", 1, named=("`a()` (x.py:1)",)): "1 break event at 1 site: `a()` (x.py:1).",
    c.StoppedAt(PLACES): "Dynamo stops inside the call, at core.py:70, core.py:90.",
    c.StoppedAt(PLACES[:1], inside=False): "Dynamo stops where it is called, at core.py:70.",
    c.LeftEager(("two",), "graph break in loop"): "Because of this, two is not compiled (graph break in loop).",
    c.LeftEager(("f", "g")): "Because of this, f, g are not compiled.",
    c.GraphsAround(("g0",), ()): "Graphs before it: g0; after it: none.",
    c.GraphsAround(("g0",), ("g1", "g0"), between=True): "Graphs between them: g0, g1.",
    c.ResumedIn(2, 1): "Continues in 2 compiled resume functions; 1 resume function not compiled.",
    c.ResumedIn(0, 2): "2 resume functions not compiled.",
    c.CompiledApart(("n2",), curable=True): "It is compiled as a function of its own because of graph break n2: cure that first.",
    c.CompiledApart(("n2", "n3"), curable=False): "It is compiled as a function of its own because of graph breaks n2, n3.",
    c.CompileSeconds(1.5, 1): "This recompile took 1.50 s of compile time (measured).",
    c.VersionsUsed(3, 8): "It has 3 of at most 8 compiled versions.",
    c.VersionsUsed(3, None): "It has 3 compiled versions; the recompile limit is not in the log.",
    c.VersionsUsed(8, 8, refused=1, raised=True): "Under `fullgraph=True` the next variant raised an error instead of running eagerly.",
    c.EndedProgram(): "This exception ended the program.",
    c.Unadvised("it has no clock"): "Nothing is advised: it has no clock.",
    c.Unadvised("it has no clock", of="the line itself"): "Nothing is advised for the line itself: it has no clock.",
    c.Unadvised("it has no clock", but_ideas=True): "No change is established: it has no clock.",
    c.Settled("it is dynamic now"): "No change is needed: it is dynamic now.",
    c.Settled(enough=True): "Nothing has to change while there are fewer versions than the limit.",
    c.EndsRecompiles(2, 2): "This ends both recompiles, as far as torch names their causes.",
    c.EndsRecompiles(1, 3, at_least=True): "This ends at least 1 of these 3 recompiles.",
    c.SameFor(("a.py:3",)): "The same for a.py:3.",
    c.StillBreaks("the branch itself (GB0170)"): "The branch itself (GB0170) still breaks the graph.",
    c.OnProcesses("ranks 0, 1"): "On ranks 0, 1.",
    c.Quoted("no kernel for cos!", by="f"): "f: no kernel for cos!",
    c.Happened("It ran."): "It ran.",
    c.Cause("two versions"): "two versions.",
    c.Effect("x"): "x.",
    c.Basis("y"): "y.",
    c.Doubt("z"): "z.",
}


@pytest.mark.parametrize(("clause", "said"), SAID.items())
def test_a_clause_is_one_sentence(clause, said):
    assert sentence(clause) == said


def test_every_class_of_clauses_has_a_sentence_here():
    classes = {value for value in vars(c).values() if isinstance(value, type) and issubclass(value, c.Clause) and value is not c.Clause}
    assert {type(clause) for clause in SAID} == classes


def test_an_empty_clause_says_nothing_and_names_keep_their_letters():
    assert sentences((c.Happened(""), c.Effect("It goes on"))) == "It goes on."
    assert [capital(text) for text in ("the rest", "torch refused", "torch.compile was", "`x`: 1", "")] == [
        "The rest", "torch refused", "torch.compile was", "`x`: 1", ""
    ]  # fmt: skip


def test_what_is_claimed_of_an_advice_follows_its_change_and_equal_changes_are_one():
    plain = Advice(slug="a", text="Mark the size", after="mark(x)")
    assert plain.words == "Mark the size"
    claimed = Advice(slug="a", text="Mark the size", after="mark(x)", clauses=(c.EndsRecompiles(2, 2), c.SameFor(("a.py:3",))))
    assert claimed.words == "Mark the size. This ends both recompiles, as far as torch names their causes. The same for a.py:3."
    other = Advice(slug="b", text="Mark it in line 9", after="mark(x)")
    assert distinct_advice((claimed, other, Advice(slug="b", text="Move it"))) == (claimed, Advice(slug="b", text="Move it"))
