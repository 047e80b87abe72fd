"""Questions to a part of a syntax tree."""

import ast

from dynadiag.source import tree

PART = ast.parse("def f(a, *b):\n    c = a.d.e(b)[0]\n    c[1], g.h = 2, lambda i: c\n    return len(c)").body[0]


def test_a_part_tells_what_it_names_reads_and_stores():
    assert tree.names_in(PART) == {"a", "b", "c", "g", "len"}
    assert tree.reads_in(PART) == {"a", "b", "c", "g", "len"}
    assert tree.names_in(None, PART.body[0].targets[0]) == {"c"}
    assert tree.parameters_of(PART) == {"a", "b", "i"}
    assert tree.written_names((PART, None)) == {"c", "g.h"}
    assert tree.mentions({"a.d.e"}, PART) and not tree.mentions({"d", "e"}, PART)


def test_a_part_tells_what_it_calls_and_holds():
    assert {ast.unparse(call.func) for call in tree.calls_in(PART)} == {"a.d.e", "len"}
    assert tree.holds(PART, ast.Lambda, ast.Await) and not tree.holds(PART, ast.Await)
    assert not tree.holds(None, ast.AST)
    parents = tree.parents_in(PART)
    assert parents[PART.body[0]] is PART and PART not in parents
    assert tree.ids_in(PART.body[0]) < tree.ids_in(PART)
