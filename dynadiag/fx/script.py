"""A rebuilt graph as one Python file that needs nothing but torch: it makes the inputs, builds the module, runs it, prints the outputs.

The file is written from the rebuilt graph (allowed functions, checked constants), never from the text of the log; what is written is
checked again as a whole (`dynadiag.fx.written`).
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynadiag.dotted_names import lies_in
from dynadiag.errors import NotRebuildableError
from dynadiag.fx import allowed
from dynadiag.fx import spelling as spelled
from dynadiag.fx.building import ANNOTATION, TARGET
from dynadiag.fx.inputs import FILLINGS, Filling, InputSpec, contiguous_stride, elements
from dynadiag.fx.rebuild import Rebuilt
from dynadiag.fx.written import checked
from dynadiag.torch_compat.dispatch.functions import DATA_OF, spelling
from dynadiag.torch_compat.dispatch.operators import printed_name

HELPERS = '''
def strided(shape, stride, dtype, device="cpu", storage=None, offset=0, positive=False, integer=0, boolean=True):
    """A tensor of this layout with made-up values; `storage` is a tensor whose memory it shares."""
    if storage is not None:
        return torch.empty(0, dtype=dtype, device=device).set_(storage.untyped_storage(), offset, shape, stride)
    count = offset + (0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride)))
    if dtype == torch.bool:
        flat = torch.full((count,), boolean, device=device)
    elif dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        flat = (torch.rand if positive else torch.randn)((count,), dtype=wide, device=device).to(dtype)
    else:
        flat = torch.full((count,), integer, dtype=dtype, device=device)
    return torch.empty(0, dtype=dtype, device=device).set_(flat.untyped_storage(), offset, shape, stride)


def describe(name, value):
    """Print the type, dtype and shape of each output."""
    if isinstance(value, torch.Tensor):
        print(f"{name}: {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} on {value.device}")
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            describe(f"{name}[{position}]", item)
    else:
        print(f"{name}: {value!r}")
'''

LOWER_VERSION = '''
def lower_version_count_by_1(x):
    """What `x.data = y` does to the version of x."""
    torch._C._autograd._unsafe_set_version_counter((x,), (max(x._version - 1, 0),))
    return x
'''

NOT_A_LEAF = '''
class NotALeaf(torch.autograd.Function):
    """The tensor itself, as if it had been computed: no leaf, so that it may be written in place."""

    @staticmethod
    def forward(ctx, value, leaf):
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient.sum()


def computed(value):
    """The value as a tensor that requires grad and is no leaf, in the same memory."""
    own = torch.empty(0, dtype=value.dtype, device=value.device)
    own.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())
    return NotALeaf.apply(own, torch.zeros((), dtype=value.dtype, device=value.device, requires_grad=True))
'''

GROUPS = '''
def make_process_groups(sizes):
    """Process groups that communicate with nobody: shapes are right, values of collectives are not."""
    import torch.distributed as dist
    from torch._C import _distributed_c10d as c10d
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=max(sizes.values()))
    for name, size in sizes.items():
        try:
            c10d._unregister_process_group(name)
        except (RuntimeError, ValueError):
            pass
        c10d._register_process_group(name, dist.new_group(list(range(size)), backend="fake"))


'''

FOOTER = """
if __name__ == "__main__":
    main()
"""


_SYMBOLS = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.pow: "{} ** {}",
    operator.matmul: "{} @ {}",
    operator.lshift: "{} << {}",
    operator.rshift: "{} >> {}",
    operator.and_: "{} & {}",
    operator.or_: "{} | {}",
    operator.xor: "{} ^ {}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.is_: "{} is {}",
    operator.is_not: "{} is not {}",
    operator.getitem: "{}[{}]",
    operator.neg: "-{}",
    operator.pos: "+{}",
    operator.invert: "~{}",
    operator.not_: "not {}",
}
_TAKEN = frozenset({"torch", "math", "operator", "self", "main", "strided", "describe"})
_WIDTH = 120
TRUSTED = (HELPERS, LOWER_VERSION, NOT_A_LEAF, GROUPS, FOOTER)
"""The fixed parts of a script, which are written as they stand here."""
_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)\n\s*(?P<code>.*)')


def write_script(rebuilt: Rebuilt, *, title: Sequence[str] = (), filling: Filling = FILLINGS[0]) -> str:
    """The source of the script, checked; `title` are its first lines, as comments.

    Raises NotRebuildableError for a value without a spelling.
    """
    writer = _Writer()
    classes = writer.classes(rebuilt.graph_module, "GraphModule")
    body = [*_inputs(rebuilt.inputs, filling), "", *_main(rebuilt)]
    head = [*(f"# {spelled.comment(line, 200)}" for line in title), *sorted(writer.imports | {"import torch"}), "", ""]
    groups = GROUPS.splitlines() if rebuilt.groups else []
    helpers = [*HELPERS.strip("\n").splitlines(), "", "", *_rare_helpers(rebuilt, writer)]
    return checked("\n".join([*head, *helpers, *classes, "", *groups, *body, FOOTER.strip("\n"), ""]), trusted=TRUSTED)


def pieces(rebuilt: Rebuilt, specs: Sequence[InputSpec], filling: Filling) -> tuple[set[str], list[str]]:
    """The import lines and the source of `strided`, the class `GraphModule`, `make_inputs()` to these specs, and `make_module()`.

    For another script that calls the graph. Raises NotRebuildableError for a value without a spelling, or for process groups.
    """
    if rebuilt.groups:
        raise NotRebuildableError("it needs process groups")
    writer = _Writer()
    classes = writer.classes(rebuilt.graph_module, "GraphModule")
    helpers = [*HELPERS.partition("def describe")[0].strip("\n").splitlines(), "", "", *_rare_helpers(rebuilt, writer)]
    module = ["def make_module():", "    module = GraphModule()", *(f"    {line}" for line in _attributes(rebuilt.attributes))]
    body = [*helpers, *classes, "", "", *_inputs(specs, filling), "", *module, "    return module", "", ""]
    return writer.imports | {"import torch"}, body


def _rare_helpers(rebuilt: Rebuilt, writer: _Writer) -> list[str]:
    """Definitions that few graphs need."""
    lowers = "lower_version_count_by_1" in writer.functions
    computed = any(_is_computed(spec) for spec in rebuilt.inputs)
    parts = [part for part, wanted in ((LOWER_VERSION, lowers), (NOT_A_LEAF, computed)) if wanted]
    return [line for part in parts for line in (*part.strip("\n").splitlines(), "", "")]


def _is_computed(spec: InputSpec) -> bool:
    return spec.kind == "tensor" and bool(spec.requires_grad) and not spec.leaf and _has_gradients(spec)


def _has_gradients(spec: InputSpec) -> bool:
    dtype = spelled.dtype(spec.dtype)
    return bool(dtype.is_floating_point or dtype.is_complex)


def module_source(module: GraphModule, name: str) -> tuple[list[str], set[str]]:
    """The lines of the classes of a graph and its sub graphs, the outermost called `name`, and the import lines that they need.

    Raises NotRebuildableError for a function or value without a spelling.
    """
    writer = _Writer()
    return writer.classes(module, name), set(writer.imports)


def _main(rebuilt: Rebuilt) -> list[str]:
    lines = ["def main():", "    torch.manual_seed(0)"]
    if rebuilt.groups:
        lines.append(f"    make_process_groups({group_sizes_text(rebuilt.groups)})")
    if rebuilt.grad is not None:
        lines.append(f"    torch.set_grad_enabled({rebuilt.grad})")
    lines.append("    module = GraphModule()")
    lines += [f"    {line}" for line in _attributes(rebuilt.attributes)]
    return [*lines, "    outputs = module(*make_inputs())", '    describe("output", outputs)', "", ""]


def group_sizes_text(groups: Mapping[str, int]) -> str:
    """The argument of `make_process_groups`."""
    return "{" + ", ".join(f"{spelled.constant(name)}: {spelled.whole(size)}" for name, size in groups.items()) + "}"


def _attributes(specs: Sequence[InputSpec]) -> list[str]:
    return [f"module.{spelled.path(spec.name)} = {_make(spec, FILLINGS[0])}" for spec in specs]


def _inputs(specs: Sequence[InputSpec], filling: Filling) -> list[str]:
    shared = _shared(specs)
    lines = ["def make_inputs():"]
    for storage, members in shared.items():
        size = max((elements(spec) + spec.offset) * spelled.dtype(spec.dtype).itemsize for spec in members)
        first = members[0]
        count = -(-size // spelled.dtype(first.dtype).itemsize)
        lines.append(f"    storage_{storage} = {_strided((count,), (1,), first, filling)}")
    lines.append("    return [")
    for spec in specs:
        owner = f"storage_{spec.storage}" if spec.storage in shared else None
        lines.append(f"        {_make(spec, filling, owner)},  # {spelled.comment(spec.source or spec.name, 120)}")
    return [*lines, "    ]", ""]


def _shared(specs: Sequence[InputSpec]) -> dict[int, list[InputSpec]]:
    groups: dict[int, list[InputSpec]] = {}
    for spec in specs:
        if spec.kind == "tensor" and spec.storage is not None:
            groups.setdefault(spec.storage, []).append(spec)
    return {storage: members for storage, members in groups.items() if len(members) > 1}


def _make(spec: InputSpec, filling: Filling, owner: str | None = None) -> str:
    if spec.kind == "rng_state":
        return "torch.get_rng_state()"
    if spec.kind != "tensor":
        return spelled.constant(spec.value)
    assert spec.shape is not None
    stride = spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
    made = _strided(spec.shape, stride, spec, filling, owner)
    if _is_computed(spec):
        return f"computed({made})"
    return f"{made}.requires_grad_()" if spec.requires_grad and _has_gradients(spec) else made


def _strided(shape: Sequence[int], stride: Sequence[int], spec: InputSpec, filling: Filling, owner: str | None = None) -> str:
    parts = [f"{spelled.sizes(shape)}, {spelled.sizes(stride)}, {spelled.dtype_text(spec.dtype)}"]
    if (spec.device or "cpu") != "cpu":
        parts.append(f"device={spelled.device_text(spec.device)}")
    if owner is not None:
        parts.append(f"storage={owner}")
    if spec.offset and len(shape) + len(stride) > 0:
        parts.append(f"offset={spelled.whole(spec.offset)}")
    if filling != FILLINGS[0]:
        parts.append(f"positive={filling.positive}, integer={filling.integer}, boolean={filling.boolean}")
    return f"strided({', '.join(parts)})"


class _Writer:
    """Writes classes for a graph module and its sub graphs; `imports` collects what they need, `functions` what they call."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.functions: set[str] = set()
        self._used: set[str] = set()

    def classes(self, module: GraphModule, name: str) -> list[str]:
        self._used.add(name)
        children = {child: sub for child, sub in module.named_children() if isinstance(sub, GraphModule)}
        names = {child: self._class_name(child) for child in children}
        lines: list[str] = []
        for child, sub in children.items():
            lines += [*self.classes(sub, names[child]), "", ""]
        lines.append(f"class {name}(torch.nn.Module):")
        if names:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += [f"        self.{spelled.identifier(child)} = {_instance(module, child, of)}" for child, of in names.items()]
            lines.append("")
        return [*lines, *self._forward(module)]

    def _class_name(self, wanted: str) -> str:
        base = "".join(part.capitalize() for part in re.sub("[^0-9a-zA-Z]+", "_", wanted).split("_")) or "Sub"
        name = base if not base[0].isdigit() else f"Graph{base}"
        count = 1
        while name in self._used:
            count += 1
            name = f"{base}{count}"
        self._used.add(name)
        return name

    def _forward(self, module: GraphModule) -> list[str]:
        nodes = list(module.graph.nodes)
        lines = _signature([_name(node) for node in nodes if node.op == "placeholder"])
        previous = None
        for node in nodes:
            if node.op == "placeholder":
                continue
            comment = _comment(node)
            if comment is not None and comment != previous:
                lines.append(f"        # {comment}")
                previous = comment
            lines.append(f"        {self._statement(node)}")
        return lines

    def _statement(self, node: Node) -> str:
        if node.op == "output":
            return f"return {self._value(node.args[0])}"
        if node.op == "get_attr":
            return f"{_name(node)} = self.{spelled.path(str(node.target))}"
        note = node.meta.get(ANNOTATION)
        tail = f"  # {spelled.comment(note, 100)}" if isinstance(note, str) else ""
        return f"{_name(node)} = {self._expression(node)}{tail}"

    def _expression(self, node: Node) -> str:
        arguments = [self._value(argument) for argument in node.args]
        named = [f"{spelled.identifier(key)}={self._value(value)}" for key, value in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{allowed.method(str(node.target))}({', '.join(arguments[1:] + named)})"
        if node.op == "call_module":
            return f"self.{spelled.path(str(node.target))}({', '.join(arguments + named)})"
        if node.target in _SYMBOLS and not named:
            return _SYMBOLS[node.target].format(*arguments)
        if node.meta.get(TARGET) == DATA_OF and len(arguments) == 1:
            return f"{arguments[0]}.data"
        if node.target is getattr and len(arguments) == 2:
            return f"{arguments[0]}.{allowed.attribute(str(node.args[1]))}"
        return f"{self._function(node)}({', '.join(arguments + named)})"

    def _function(self, node: Node) -> str:
        printed = node.meta.get(TARGET)
        if isinstance(printed, str):
            return self._spelled(printed)
        name = getattr(node.target, "__name__", "")
        if getattr(operator, name, None) is node.target:
            self.imports.add("import operator")
            return f"operator.{name}"
        if node.target is getattr:
            return "getattr"
        raise NotRebuildableError(f"the function of the node {node.name} cannot be written as source")

    def _spelled(self, printed: str) -> str:
        text = spelling(printed)
        self.functions.add(text)
        for module in ("math", "operator"):
            if f"{module}." in text:
                self.imports.add(f"import {module}")
        parts = text.split("(")[0].split(".")
        for length in range(len(parts), 1, -1):
            prefix = ".".join(parts[:length])
            if parts[0] == "torch" and parts[1] != "ops" and prefix in sys.modules:
                self.imports.add(f"import {prefix}")
                break
        if lies_in(text, "torch.ops"):
            self._import_registration(parts[2])
        return text

    def _import_registration(self, namespace: str) -> None:
        modules = {"higher_order": "torch._higher_order_ops.map", "prims": "torch._inductor.inductor_prims", "torchvision": "torchvision"}
        if namespace in modules:
            self.imports.add(f"import {modules[namespace]}")

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            return _name(value)
        if isinstance(value, tuple):
            return "(" + "".join(f"{self._value(item)}, " for item in value).removesuffix(" " if len(value) == 1 else ", ") + ")"
        if isinstance(value, list):
            return "[" + ", ".join(self._value(item) for item in value) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{spelled.constant(key)}: {self._value(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        if isinstance(value, torch.device):
            return f"torch.device({spelled.device_text(str(value))})"
        if isinstance(value, type):
            return "type(None)" if value is type(None) else spelled.identifier(value.__name__)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format | torch.qscheme):
            return str(value)
        return printed_name(value) or spelled.constant(value)


def _signature(arguments: Sequence[str]) -> list[str]:
    line = f"    def forward({', '.join(['self', *arguments])}):"
    if len(line) <= _WIDTH:
        return [line]
    return ["    def forward(", *(f"        {argument}," for argument in ["self", *arguments]), "    ):"]


def _instance(module: GraphModule, child: str, class_name: str) -> str:
    """How the parent makes a sub graph: traced where the operator that runs it looks at its FX graph, plain elsewhere."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target == child and any(_wants_graph(user) for user in node.users):
            return f"torch.fx.symbolic_trace({class_name}())"
    return f"{class_name}()"


def _wants_graph(node: Node) -> bool:
    return any(name in str(node.target) for name in ("activation_checkpoint", "autograd_function_apply"))


def _name(node: Node) -> str:
    return spelled.identifier(f"{node.name}_" if node.name in _TAKEN else node.name)


def _comment(node: Node) -> str | None:
    """The user line of a node, from the innermost frame of its stack trace, fit for a comment."""
    trace = node.meta.get("stack_trace")
    found = list(_FRAME.finditer(trace)) if isinstance(trace, str) else []
    if not found:
        return None
    frame = found[-1]
    return spelled.comment(f"{frame['file']}:{frame['line']} in {frame['function'].strip()}: {frame['code'].strip()}", 200)
