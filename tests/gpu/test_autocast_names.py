"""What `torch.autocast` computes in another type on a GPU has the mark in the table of torch's names."""

import pytest
import torch

from dynadiag.source.torch_names import AUTOCAST, TORCH_NAMES
from tests.with_torch.source.test_torch_names import computed_type

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_what_autocast_computes_in_another_type_has_the_mark():
    asked = [
        row.name
        for row in TORCH_NAMES.values()
        if row.gives == "tensor" and row.memory != "own" and row.name not in AUTOCAST and "attribute" not in row.marks
    ]
    types = {name: [computed_type(name, "cuda", autocast=each) for each in (False, True)] for name in asked}
    assert [name for name, (plain, cast) in types.items() if plain != cast] == []
