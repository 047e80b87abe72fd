import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.fx.source_text import SymbolNote, TensorNote, parse_annotation, split_sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[4, 8][8, 1]cuda:0", TensorNote("float32", ("4", "8"), ("8", "1"), "cuda:0")),
        ("f32[][]cpu", TensorNote("float32", (), (), "cpu")),
        ("f32[5, 5]", TensorNote("float32", ("5", "5"), None, None)),
        ("f8e4m3fn[2][1]cpu", TensorNote("float8_e4m3fn", ("2",), ("1",), "cpu")),
        ("c64[s0, (s1//2)][Max(1, (s1//2)), 1]cpu", TensorNote("complex64", ("s0", "(s1//2)"), ("Max(1, (s1//2))", "1"), "cpu")),
        ("Parameter(f32[3][1]cpu)", TensorNote("float32", ("3",), ("1",), "cpu", "Parameter")),
        ("DTensor(f32[3, 4][4, 1]cuda:0, S(0))", TensorNote("float32", ("3", "4"), ("4", "1"), "cuda:0", "DTensor")),
        ("Sym(2*s0)", SymbolNote("2*s0")),
        ("torch.SymInt", None),
        ("q9[4]", None),
        ("", None),
        (None, None),
    ],
)
def test_annotation_is_taken_apart(text, expected):
    assert parse_annotation(text) == expected


@given(st.text(max_size=60))
def test_any_text_is_an_annotation_or_none(text):
    assert parse_annotation(text) is None or parse_annotation(text) is not None
    assert all(part.strip() for part in split_sizes(text))
