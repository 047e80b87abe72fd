"""The table of torch's names is well-formed; `tests/with_torch/source` compares it with torch."""

from dynadiag.source import torch_names
from dynadiag.source.torch_names import TORCH_NAMES

COLUMNS = {
    "gives": {"tensor", "truth", "integer", "tensors", "number", "answer", "size"},
    "memory": {"new", "view", "shared", "own", "-"},
    "shape": {"each", "with_numbers", "pair", "two", "reduce", "product", "make", "like", "arrange", "values", "other"},
    "raises": {"never", "empty", "some"},
    "gradient": {"finite", "infinite", "none"},
}
MARKS = {"tensors_only", "attribute", "sizes", "unknown_sizes", "autocast", "casts", "random", "asks_finite", "values_alone"}


def test_every_row_has_known_values():
    for row in TORCH_NAMES.values():
        assert all(getattr(row, column) in values for column, values in COLUMNS.items()), row
        assert row.marks <= MARKS, row
        assert (row.memory == "own") == (row.name.endswith("_")), row


def test_every_name_has_one_row_in_the_order_of_the_alphabet():
    names = [line.split()[0] for line in torch_names._TABLE.strip().splitlines()]
    assert names == sorted(set(names), key=lambda name: (name.lower(), name))


def test_what_a_set_of_a_container_does_is_not_taken_for_a_tensors():
    assert {"add", "sort", "split"} <= torch_names.ON_CONTAINERS
    assert not torch_names.ON_CONTAINERS & torch_names.TENSOR_METHODS


def test_a_name_says_that_a_tensor_is_written_in_place():
    written = ("add_", "torch.relu_", "__iadd__", "torch.Tensor.__setitem__")
    assert all(map(torch_names.has_in_place_name, written))
    assert not any(map(torch_names.has_in_place_name, ("add", "torch.relu", "__len__", "torch.Tensor.__add__", "__int__")))
