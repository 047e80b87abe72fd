"""What torch's functions and methods do, by name: the one table that everything asks which reads a user's source.

Source shows a name and no object, so a row holds for the method of a tensor and for the function of `torch` or `torch.nn.functional` with
that name. `tests/with_torch/source/test_torch_names.py` calls every row on each supported torch and compares. A name that has no row is
unknown, and an unknown name is never taken to do nothing.

The columns of the table:

* gives: `tensor` (numbers of the type of its operands), `truth` (a tensor of bools), `integer` (a tensor of integers), `tensors` (several),
  `number` (what Python reads out of the values: numbers, lists, arrays), `answer` (a Python bool, read out of the values),
  `size` (sizes and other properties, for which no value is read).
* memory: `new`, `view` (of the first operand), `shared` (that of the first operand, or new), `own` (the operand itself, which is written),
  `-` for what has none.
* shape: `each` (element by element, of one tensor), `with_numbers` (the same, and it takes numbers), `pair` (element by element, of two
  tensors or of a tensor and a number), `two` (of two tensors), `reduce` (one element, where nothing but the tensor is given), `product` (of
  matrices), `make` (made from sizes), `like` (made after a tensor), `arrange` (the same elements at other places), `values` (how many
  elements depends on their values), `other`.
* raises: `never`, for shapes that the program has anyway; `empty`, for a tensor without elements; `some`, for other values or sizes.
* gradient: `finite`; `infinite`, where it is infinite or NaN for some finite operands; `none`, where none flows.
* marks: `tensors_only` (everyday code calls it on nothing but tensors, and it gives a tensor or what only tensors have), `attribute` (is
  not called), `sizes` (its integers are sizes, places or counts), `unknown_sizes` (a size that a graph does not know is no break there),
  `autocast` (computed in another type under `torch.autocast`), `casts` (gives another type), `random` (draws random numbers),
  `asks_finite` (asks for values that are not finite), `values_alone` (the shape depends on the values where one operand is given).
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

_TABLE = """
abs               tensor   new     each         never  finite    tensors_only
acos              tensor   new     each         never  infinite  autocast
acosh             tensor   new     each         never  infinite
add               tensor   new     pair         never  finite
add_              tensor   own     pair         never  finite
addcmul           tensor   new     other        some   finite    autocast
addmm             tensor   new     other        some   finite    autocast
all               truth    new     reduce       never  none      tensors_only
allclose          answer   -       other        some   none
amax              tensor   new     reduce       empty  finite    tensors_only
amin              tensor   new     reduce       empty  finite    tensors_only
any               truth    new     reduce       never  none      tensors_only
arange            tensor   new     make         some   none      sizes unknown_sizes
argmax            integer  new     reduce       empty  none      tensors_only
argmin            integer  new     reduce       empty  none      tensors_only
argsort           integer  new     other        some   none      tensors_only
as_strided        tensor   view    arrange      some   finite    sizes
asin              tensor   new     each         never  infinite  autocast
asinh             tensor   new     each         never  finite
atan              tensor   new     each         never  finite
atanh             tensor   new     each         never  infinite
bfloat16          tensor   shared  each         never  finite    tensors_only casts
bmm               tensor   new     product      never  finite    tensors_only autocast
bool              truth    shared  each         never  none      casts
broadcast_to      tensor   view    arrange      some   finite    sizes
cat               tensor   new     other        some   finite    autocast
ceil              tensor   new     each         never  finite
cholesky          tensor   new     other        some   finite    autocast
chunk             tensors  view    arrange      some   finite    sizes
clamp             tensor   new     with_numbers never  finite    tensors_only
clamp_            tensor   own     with_numbers never  finite
clamp_max         tensor   new     pair         never  finite    tensors_only
clamp_min         tensor   new     pair         never  finite    tensors_only
clip              tensor   new     with_numbers never  finite
clone             tensor   new     each         never  finite    tensors_only
contiguous        tensor   shared  each         never  finite    tensors_only
copy_             tensor   own     other        some   finite
cos               tensor   new     each         never  finite    tensors_only
cosh              tensor   new     each         never  infinite  autocast
count_nonzero     integer  new     reduce       never  none
cumprod           tensor   new     other        some   finite    tensors_only autocast
cumsum            tensor   new     other        some   finite    tensors_only autocast
data              tensor   view    each         never  none      attribute
data_ptr          size     -       other        never  none
det               tensor   new     other        some   finite
detach            tensor   view    each         never  none      tensors_only
device            size     -       other        never  none      attribute tensors_only
diagonal          tensor   view    arrange      some   finite
diff              tensor   new     other        some   finite    tensors_only
dim               size     -       other        never  none      tensors_only
div               tensor   new     pair         never  infinite
div_              tensor   own     pair         never  infinite
double            tensor   shared  each         never  finite    tensors_only casts
dropout           tensor   shared  other        some   finite    random
dtype             size     -       other        never  none      attribute tensors_only
einsum            tensor   shared  product      some   finite    autocast
elu               tensor   new     each         never  finite
empty             tensor   new     make         some   none      sizes unknown_sizes
empty_like        tensor   new     like         never  none
eq                truth    new     pair         never  none
equal             answer   -       other        some   none
erf               tensor   new     each         never  finite
erfc              tensor   new     each         never  finite
exp               tensor   new     each         never  infinite  tensors_only autocast
expand            tensor   view    arrange      some   finite    tensors_only sizes unknown_sizes
expand_as         tensor   view    arrange      some   finite    tensors_only
expm1             tensor   new     each         never  infinite  autocast
eye               tensor   new     make         some   none      sizes unknown_sizes
fill_             tensor   own     other        some   finite
finfo             size     -       other        never  none
flatten           tensor   shared  arrange      never  finite    tensors_only
flip              tensor   new     arrange      never  finite    sizes
float             tensor   shared  each         never  finite    tensors_only casts
floor             tensor   new     each         never  finite
fmod              tensor   new     pair         some   finite
full              tensor   new     make         some   none      sizes unknown_sizes
full_like         tensor   new     like         never  none
gather            tensor   new     other        some   finite    tensors_only
ge                truth    new     pair         never  none
gelu              tensor   new     each         never  finite
grad              tensor   view    each         never  none      attribute tensors_only
gt                truth    new     pair         never  none
H                 tensor   view    arrange      some   finite    attribute
half              tensor   shared  each         never  finite    tensors_only casts
hardsigmoid       tensor   new     each         never  finite
hardswish         tensor   new     each         never  finite
hardtanh          tensor   new     each         never  finite
iinfo             size     -       other        never  none
imag              tensor   view    arrange      some   finite    attribute
index_add         tensor   new     other        some   finite    tensors_only
index_add_        tensor   own     other        some   finite
index_copy_       tensor   own     other        some   finite
index_fill_       tensor   own     other        some   finite
index_select      tensor   new     other        some   finite    tensors_only
int               integer  shared  each         never  none      casts
interpolate       tensor   new     other        some   finite    sizes autocast
inverse           tensor   new     other        some   finite    autocast
isclose           truth    new     other        some   none
isfinite          truth    new     each         never  none      tensors_only asks_finite
isin              truth    new     other        never  none
isinf             truth    new     each         never  none      asks_finite
isnan             truth    new     each         never  none      tensors_only asks_finite
isneginf          truth    new     each         never  none      asks_finite
isposinf          truth    new     each         never  none      asks_finite
item              number   -       other        never  none      tensors_only
kthvalue          tensors  new     other        some   finite    sizes
layer_norm        tensor   new     other        some   finite    sizes autocast
le                truth    new     pair         never  none
leaky_relu        tensor   new     each         never  finite
lerp_             tensor   own     other        some   finite
linear            tensor   new     other        some   finite    autocast
linspace          tensor   new     make         some   none      sizes unknown_sizes
log               tensor   new     each         never  infinite  tensors_only autocast
log10             tensor   new     each         never  infinite  autocast
log1p             tensor   new     each         never  infinite  tensors_only autocast
log2              tensor   new     each         never  infinite  autocast
log_softmax       tensor   new     other        never  finite    tensors_only autocast
logical_and       truth    new     two          never  none
logical_not       truth    new     each         never  none
logical_or        truth    new     two          never  none
logical_xor       truth    new     two          never  none
logit             tensor   new     each         never  infinite
logsigmoid        tensor   new     each         never  finite
logsumexp         tensor   new     other        some   finite    autocast
long              integer  shared  each         never  none      tensors_only casts
lt                truth    new     pair         never  none
masked_fill       tensor   new     other        some   finite    tensors_only
masked_fill_      tensor   own     other        some   finite
masked_select     tensor   new     values       some   finite
matmul            tensor   new     product      never  finite    tensors_only autocast
max               tensor   new     reduce       empty  finite
maximum           tensor   new     two          never  finite
mean              tensor   new     reduce       never  finite    tensors_only autocast
median            tensor   new     reduce       never  finite
mH                tensor   view    arrange      some   finite    attribute
min               tensor   new     reduce       empty  finite
minimum           tensor   new     two          never  finite
mm                tensor   new     product      never  finite    autocast
moveaxis          tensor   view    arrange      some   finite
movedim           tensor   view    arrange      some   finite
mT                tensor   view    arrange      some   finite    attribute
mul               tensor   new     pair         never  finite
mul_              tensor   own     pair         never  finite
nan_to_num        tensor   new     each         never  finite
narrow            tensor   view    arrange      some   finite    sizes unknown_sizes
ndim              size     -       other        never  none      attribute
ne                truth    new     pair         never  none
neg               tensor   new     each         never  finite
neg_              tensor   own     each         never  finite
new_empty         tensor   new     make         some   none      sizes unknown_sizes
new_full          tensor   new     make         some   none      sizes
new_ones          tensor   new     make         some   none      sizes unknown_sizes
new_zeros         tensor   new     make         some   none      sizes unknown_sizes
nonzero           integer  new     values       never  none
norm              tensor   new     reduce       never  finite    tensors_only autocast
normalize         tensor   new     other        never  finite    autocast
numel             size     -       other        never  none      tensors_only
numpy             number   view    other        some   none
one_hot           integer  new     other        some   none      sizes
ones              tensor   new     make         some   none      sizes unknown_sizes
ones_like         tensor   new     like         never  none
pad               tensor   new     other        some   finite    sizes
permute           tensor   view    arrange      never  finite    tensors_only
pow               tensor   new     pair         never  infinite  tensors_only autocast
prod              tensor   new     reduce       never  finite    tensors_only autocast
rand              tensor   new     make         some   none      sizes unknown_sizes random
rand_like         tensor   new     like         never  none      random
randint           integer  new     make         some   none      sizes random
randn             tensor   new     make         some   none      sizes unknown_sizes random
randn_like        tensor   new     like         never  none      random
ravel             tensor   shared  arrange      never  finite
real              tensor   view    arrange      some   finite    attribute
reciprocal        tensor   new     each         never  infinite  autocast
relu              tensor   new     each         never  finite    tensors_only
relu6             tensor   new     each         never  finite
relu_             tensor   own     each         never  finite
remainder         tensor   new     pair         some   finite
repeat            tensor   new     other        some   finite    sizes unknown_sizes
requires_grad     size     -       other        never  none      attribute tensors_only
reshape           tensor   shared  arrange      some   finite    tensors_only sizes unknown_sizes
resize_           tensor   own     other        some   none      sizes
roll              tensor   new     arrange      never  finite    sizes
round             tensor   new     each         never  finite    tensors_only
rsqrt             tensor   new     each         never  infinite  autocast
scatter           tensor   new     other        some   finite
scatter_          tensor   own     other        some   finite
scatter_add       tensor   new     other        some   finite    tensors_only autocast
scatter_add_      tensor   own     other        some   finite
select            tensor   view    arrange      some   finite    sizes
selu              tensor   new     each         never  finite
shape             size     -       other        never  none      attribute tensors_only
sigmoid           tensor   new     each         never  finite    tensors_only
sigmoid_          tensor   own     each         never  finite
sign              tensor   new     each         never  finite
silu              tensor   new     each         never  finite
sin               tensor   new     each         never  finite    tensors_only
sinh              tensor   new     each         never  infinite  autocast
size              size     -       other        never  none      tensors_only
softmax           tensor   new     other        never  finite    tensors_only autocast
softplus          tensor   new     each         never  finite    autocast
solve             tensor   new     other        some   finite    autocast
sort              tensors  new     other        some   finite
split             tensors  view    arrange      some   finite    sizes
sqrt              tensor   new     each         never  infinite  tensors_only
square            tensor   new     each         never  finite    tensors_only autocast
squeeze           tensor   view    arrange      never  finite    tensors_only
stack             tensor   new     other        some   finite    autocast
std               tensor   new     reduce       never  infinite  tensors_only autocast
stride            size     -       other        never  none
sub               tensor   new     pair         never  finite
sub_              tensor   own     pair         never  finite
sum               tensor   new     reduce       never  finite    tensors_only autocast
swapaxes          tensor   view    arrange      some   finite
swapdims          tensor   view    arrange      some   finite
T                 tensor   view    arrange      never  finite    attribute
t                 tensor   view    arrange      never  finite
tan               tensor   new     each         never  finite    autocast
tanh              tensor   new     each         never  finite    tensors_only
tanh_             tensor   own     each         never  finite
tensor            tensor   new     other        never  none
tensor_split      tensors  view    arrange      some   finite    sizes
tile              tensor   new     other        some   finite    sizes
to                tensor   shared  each         some   finite    tensors_only casts
tolist            number   -       other        never  none      tensors_only
topk              tensors  new     other        some   finite    sizes
transpose         tensor   view    arrange      never  finite    tensors_only
tril              tensor   new     each         some   finite
triu              tensor   new     each         some   finite
trunc             tensor   new     each         never  finite
type_as           tensor   shared  each         never  finite    tensors_only casts
unbind            tensors  view    arrange      some   finite
unflatten         tensor   view    arrange      some   finite    sizes
unfold            tensor   view    arrange      some   finite    sizes
unique            tensor   new     values       some   none
unsqueeze         tensor   view    arrange      never  finite    tensors_only
var               tensor   new     reduce       never  infinite  tensors_only autocast
view              tensor   view    arrange      some   finite    tensors_only sizes unknown_sizes
view_as           tensor   view    arrange      some   finite    tensors_only
where             tensor   new     other        never  finite    values_alone
zero_             tensor   own     each         never  none
zeros             tensor   new     make         some   none      sizes unknown_sizes
zeros_like        tensor   new     like         never  none
"""


class TorchName(NamedTuple):
    """What the function or method of one name does: a row of the table, whose columns the module describes."""

    name: str
    gives: str
    memory: str
    shape: str
    raises: str
    gradient: str
    marks: frozenset[str]


def _read_row(row: str) -> TorchName:
    name, gives, memory, shape, raises, gradient, *marks = row.split()
    return TorchName(name, gives, memory, shape, raises, gradient, frozenset(marks))


TORCH_NAMES: Mapping[str, TorchName] = MappingProxyType({row.name: row for row in map(_read_row, _TABLE.strip().splitlines())})
"""Every row by its name."""


def torch_function(name: str | None) -> str | None:
    """The name of a function of torch or of its functional module that has a row or may have one: `relu` for `torch.nn.functional.relu`.

    Names are canonical (`source/imports`). None for every other one, as `torch.cuda.synchronize`.
    """
    owner, _, last = (name or "").rpartition(".")
    return last if owner in _FUNCTIONS else None


def is_torch_function(name: str | None) -> bool:
    """Whether a canonical name is in one of torch's modules of functions on tensors, so that it runs no code of the program."""
    return (name or "").rpartition(".")[0] in _FUNCTIONS | _MORE_FUNCTIONS


def has_in_place_name(name: str) -> bool:
    """Whether what has this name writes its tensor, as torch's names say: `add_`, `torch.relu_`, `__iadd__`; `__len__` does not."""
    return name.endswith("_") and (not name.endswith("__") or name.rpartition(".")[2] in _WRITING_OPERATORS)


def is_of_torch(name: str | None) -> bool:
    """Whether a canonical name is one in torch, of whatever kind: `torch.where`, `torch.nn.Linear`, `torch.distributed.all_reduce`."""
    return (name or "").partition(".")[0] == "torch" != name


_FUNCTIONS = frozenset(("torch", "torch.nn.functional"))
_MORE_FUNCTIONS = frozenset(("torch.autograd", "torch.fft", "torch.linalg", "torch.nn.init", "torch.special"))
# `__iadd__` for `__add__`, and so on.
_WRITING_OPERATORS = frozenset(("__setitem__", *(f"__i{name[2:]}" for name in dir(operator) if hasattr(operator, f"__i{name[2:]}"))))


def names_with(
    *,
    gives: tuple[str, ...] = (),
    memory: tuple[str, ...] = (),
    shape: tuple[str, ...] = (),
    raises: tuple[str, ...] = (),
    gradient: tuple[str, ...] = (),
    mark: str | None = None,
) -> frozenset[str]:
    """The names whose rows have one of the values in each column that is given."""
    asked = (("gives", gives), ("memory", memory), ("shape", shape), ("raises", raises), ("gradient", gradient))
    found = list(TORCH_NAMES.values()) if mark is None else [row for row in TORCH_NAMES.values() if mark in row.marks]
    for column, values in asked:
        if values:
            value_of = attrgetter(column)
            found = [row for row in found if value_of(row) in values]
    return frozenset([row.name for row in found])


_TENSORS = ("tensor", "truth", "integer")
_CONTAINERS = (str, bytes, list, tuple, dict, set, frozenset, deque, int, float, complex)
_ATTRIBUTES = names_with(mark="attribute")

TENSOR_METHODS = names_with(gives=_TENSORS, mark="tensors_only") - _ATTRIBUTES
"""Methods that only tensors have, and that give a tensor."""
TENSOR_ATTRIBUTES = names_with(mark="tensors_only") - TENSOR_METHODS
"""Other attributes and methods that only tensors have."""
TRUTHS = names_with(gives=("truth",))
"""What gives a tensor of bools."""
INTEGERS = names_with(gives=("integer",))
"""What gives a tensor of integers."""
REDUCTIONS = names_with(gives=("tensor", "integer"), shape=("reduce",))
"""What gives one element of a tensor, where nothing but the tensor is given."""
IN_PLACE = names_with(memory=("own",))
"""Methods that write the tensor that they are called on, and give it."""
TAKES_NUMBER = names_with(gives=("tensor",), shape=("pair",))
"""Methods that compute with a number as they do with a tensor of no dimensions."""
EACH = names_with(shape=("each", "like")) - IN_PLACE - _ATTRIBUTES
"""What gives a tensor of the shape of its one operand: a single element of a single one."""
ELEMENTWISE = (
    names_with(gives=("tensor",), shape=("each", "like", "pair", "with_numbers")) - IN_PLACE - _ATTRIBUTES - names_with(mark="casts")
)
"""What gives a tensor of the shape and, of floats, of the type of its operand, where the others are numbers."""
INFINITE_GRADIENT = names_with(gradient=("infinite",))
"""What has an infinite or no gradient for some operands: `torch.where` makes NaN of it where it is not chosen."""
NO_GRADIENT = names_with(gradient=("none",))
"""What no gradient goes through."""
ASKS_FINITE = names_with(mark="asks_finite")
"""What asks for values that are not finite."""
PROPERTIES = names_with(gives=("size",))
"""Sizes and other properties, for which no value is read."""
HOST_READS = names_with(gives=("number", "answer"))
"""What reads values into Python."""
ANSWERS = names_with(gives=("answer",))
"""What gives a Python bool of the values of tensors."""
SPLITS = names_with(gives=("tensors",), memory=("view",))
"""What gives a tuple of views, whose length Python has to know."""
DATA_DEPENDENT = names_with(shape=("values",)) | HOST_READS
"""What a graph breaks at without an option: the result, or its shape, depends on values."""
VALUES_ALONE = names_with(mark="values_alone")
"""What depends on values as those do where it is given one operand."""
PRODUCTS = names_with(shape=("product",))
"""Products of matrices."""
FACTORIES = names_with(shape=("make",))
"""What makes a tensor from sizes."""
TAKES_SIZES = names_with(mark="sizes")
"""What takes sizes, places or counts in other arguments than the tensor."""
TAKES_UNKNOWN_SIZES = names_with(mark="unknown_sizes")
"""What a graph can give a size that it does not know."""
NEW_MEMORY = names_with(memory=("new",))
"""What gives a tensor that shares memory with no other one."""
SHARED_MEMORY = names_with(memory=("view", "shared"))
"""What may give a view of its operand, or the operand itself."""
AUTOCAST = names_with(mark="autocast")
"""What `torch.autocast` computes in another type."""
PURE = frozenset(TORCH_NAMES) - IN_PLACE - names_with(mark="random")
"""What has no effect but its value; some of it may raise an error."""
COMPUTABLE = PURE & names_with(raises=("never", "empty"))
"""What may be computed although the program would not have computed it, on the same shapes."""
ON_CONTAINERS = frozenset(name for name in TORCH_NAMES if any(hasattr(kind, name) for kind in _CONTAINERS))
"""Names of methods that Python's own containers, texts and numbers have too: such a call shows no tensor."""
MATH_FUNCTIONS = frozenset(name for name in names_with(gives=("tensor",), shape=("each",)) if hasattr(math, name)) - {
    "ceil",
    "floor",
    "trunc",
}
"""What Python's `math` and torch compute alike, from one number to one number; `math.ceil`, `floor` and `trunc` give integers."""
