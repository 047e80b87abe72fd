"""Recompile advice: only what the recorded lines establish, as code that can be pasted."""

from dataclasses import fields, replace

import pytest

from dynadiag.advice.recompile_reasons import reason, split_off, split_reason
from dynadiag.advice.recompiles import recompile_advice
from dynadiag.changes.recompile_cause import Calls, Cause, CompiledCode, PrintedGuard, Split
from dynadiag.facts.guard_sources import dimension
from dynadiag.facts.lookups import is_in_compiled_function
from dynadiag.model.location import Location
from dynadiag.model.run import CompileKey, Frame, Run, RunInfo
from dynadiag.source.call_arguments import the_call
from dynadiag.source.changed_objects import changed_beside, counts_attribute
from dynadiag.source.function import parse_function
from dynadiag.source.line import parse_line

FILE = "/home/me/train.py"
EMPTY = Run(info=RunInfo())


def cause(kind, source, *, code=None, text=None, printed="", **facts):
    function = None if text is None else replace(parse_function(text), parts=frozenset({"lin"}))
    lines = () if code is None else tuple(Location(FILE, 9 + n, "main", one) for n, one in enumerate(code.split("\n")))
    facts = {"function": function, "parameters": None if function is None else function.parameters, "raw_source": source} | facts

    def of(part):
        return {item.name: facts.pop(item.name) for item in fields(part) if item.name in facts}

    calls, guard = Calls(entered=lines, **of(Calls)), PrintedGuard(text=printed, **of(PrintedGuard))
    compiled = CompiledCode(process=0, calls=calls, **({"name": "step"} | of(CompiledCode)))
    return Cause(kind=kind, source=source, code=compiled, guard=guard, **facts)


def caused(kind, source, *, run=EMPTY, **facts):
    return recompile_advice(cause(kind, source, **facts), run)


def resized(source="x.size(1)", *, run=EMPTY, **facts):
    """The advice for one size that became dynamic with its first change."""
    varying = facts.pop("varying", (dimension(source),))
    return recompile_advice(cause("size", source, **({"values": ("8", "12"), "dynamic": True, "varying": varying} | facts)), run)


def mark(*names):
    return "".join(f"torch._dynamo.maybe_mark_dynamic({name}, 1)\n" for name in names)


@pytest.mark.parametrize(
    ("code", "before"),
    [
        ("y = f(x)  # each batch", mark("x")),
        ("y = f(x=tokens)", mark("tokens")),
        ("y = f(x=batch['ids']).loss", mark("batch['ids']")),
        ("loss = f(x).pow(2).mean()", mark("x")),
        ("y = f(batch)", None),  # the parameters of the function are not known
        ("loss = criterion(f(h), x)", None),  # which of them is compiled is not known
        ("while f(x) > 0:", None),
        ("ys = [f(x) for x in xs]", None),
        ("y = f(*x)", None),
        ("y = f(**batch)", None),
        (None, None),
    ],
)
def test_a_tensor_is_marked_by_the_name_it_has_at_the_call(code, before):
    advice = resized(code=code)
    line = (code or "").partition("  #")[0]
    assert [(one.slug, one.before, one.after) for one in advice] == ([] if before is None else [("mark-dynamic", line, before + line)])


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("y = f(x=h[rows])", "x_marked = h[rows]\n" + mark("x_marked") + "y = f(x=x_marked)"),
        ("y = f(x=batch.ids).loss", "x_marked = batch.ids\n" + mark("x_marked") + "y = f(x=x_marked).loss"),  # a property may make it anew
        ("y = f(x=next(batches))", "x_marked = next(batches)\n" + mark("x_marked") + "y = f(x=x_marked)"),
        ("y = f(next(keys), x=next(batches))", None),  # the second comes after the first
        ("y = f(x=next(batches)) if ready else None", None),
    ],
)
def test_a_tensor_without_a_name_gets_one(code, after):
    """Each evaluation makes a new tensor: a mark on it would be lost."""
    assert [one.after for one in resized(code=code)] == ([] if after is None else [after])


@pytest.mark.parametrize(
    ("code", "source", "inputs", "name"),
    [
        ("loss = model(input_ids=ids, labels=labels).loss", "kwargs['input_ids']", (), "ids"),
        ("loss = model(input_ids=batch['ids']).loss", "kwargs['input_ids']", (), "batch['ids']"),
        ("out = model(ids)", "kwargs['input_ids']", (), None),
        ("out = model(**batch)", "kwargs['input_ids']", (), 'batch["input_ids"]'),
        ("out = model(**batch)", "input_ids", ("input_ids", "self"), 'batch["input_ids"]'),
        ("out = model(**batch)", "table", ("input_ids",), None),  # no input of the function
        ("out = model(mask, **batch)", "input_ids", ("input_ids",), None),  # `mask` may be it
        ("out = model(mask, **batch)", "kwargs['input_ids']", (), 'batch["input_ids"]'),
        ("out = model(**batch, **more)", "kwargs['input_ids']", (), None),  # which of them is not known
        ("out = model(input_ids=ids, **more)", "input_ids", ("input_ids",), "ids"),
        ("out = model(**tokenizer(text))", "kwargs['input_ids']", (), None),
        ("out = model(images, targets)", "args[0]", (), "images"),
        ("out = model(images, targets)", "args[1]", (), None),  # with `self` in `args` it is the first
        ("out = model(batch)", "x", ("x", "self"), "batch"),
        ("out = model(batch)", "x", ("x", "table"), None),  # one of them comes from a closure
        ("out = model(batch)", "self", ("self",), None),
        ("loss = torch.nn.functional.mse_loss(model(batch).flatten(1), y.flatten())", "x", ("x",), "batch"),
        ("out = model(batch, mask)", "x", ("x",), None),
    ],
)
def test_the_tensor_has_its_name_at_the_call_only_where_that_is_certain(code, source, inputs, name):
    advice = resized(f"{source}.size(1)", code=code, inputs=frozenset(inputs))
    assert [one.after for one in advice] == ([] if name is None else [f"{mark(name)}{code}"])


def test_the_parameters_of_the_function_tell_which_argument_it_is():
    method = "def forward(self, tokens, lengths):\n    return tokens"
    (advice,) = resized("lengths.size(1)", code="out = model(ids, sizes)", text=method)
    assert advice.after == "torch._dynamo.maybe_mark_dynamic(sizes, 1)\nout = model(ids, sizes)"
    assert not resized("table.size(1)", code="out = model(ids, table)", text=method)  # a global of that name


def test_nothing_is_marked_where_the_mark_ends_nothing_or_costs_another_recompile():
    assert resized(code="y = f(x)", passed_before=frozenset({"other"}))
    assert not resized(code="y = f(x)", passed_before=frozenset({"x"}))
    assert not resized(code="y = f(x)", stays=1)
    assert resized(code="y = f(x)", stays=1, recompiles=2)


def test_all_sizes_that_vary_are_marked_or_none():
    """Followed on a classifier with an optional mask: a mark on the ids alone ended nothing, they are as long as the mask."""
    text, varying = "def step(ids, mask):\n    return ids", (("mask", 1), ("ids", 0), ("ids", 1))
    (advice,) = resized("ids.size(1)", code="y = f(a, b)", text=text, varying=varying)
    assert advice.after is not None and advice.after.count("maybe_mark_dynamic") == 3
    assert "that dimension 0 of `a`, dimension 1 of `a` and dimension 1 of `b` vary, so" in advice.text
    assert not resized("ids.size(1)", code="y = f(a, self.masks(1))", text=text, varying=(("other", 0), *varying))
    assert not resized("ids.size(1)", code="y = f(a, b)", text=text, varying=())


def test_every_line_that_calls_gets_the_mark_or_none():
    (advice,) = resized(code="loss = net(x).sum()\nout = net(x)")
    assert "before each of the calls at train.py:9, train.py:10" in advice.text
    assert not resized(code="loss = net(x).sum()\nout = net(held_out)", inputs=frozenset({"x"}))


def test_no_mark_is_put_into_code_that_is_compiled_itself():
    frame = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="main", file=FILE, line=3, outcome="broke")
    assert is_in_compiled_function(Location(FILE, 9, "main"), Run(info=RunInfo(), frames=(frame,)))
    assert not resized(code="y = f(x)", compiled=True)
    assert not resized(code="y = f(x)", resumed=True)


@pytest.mark.parametrize("facts", [{"dynamic": False}, {"dynamic": None}, {"values": ("1", "12")}])
def test_what_torch_did_not_make_dynamic_is_not_marked(facts):
    assert not resized(code="y = f(x)", **facts)


def test_dynamic_false_is_left_out_where_several_sizes_came():
    facts = {"text": "def step(x, k):\n    n = x.shape[0] // 2\n    return x[:n].view(n, -1) * k", "dynamic_false": True}
    assert [one.slug for one in caused("size", "x.size(0)", values=("4", "8", "9"), **facts)] == ["drop-dynamic-false"]
    assert not caused("size", "x.size(0)", values=("4", "8"), **facts)
    assert [one.slug for one in caused("value", "k", values=("4", "8", "9"), **facts)] == ["drop-dynamic-false"]
    assert not caused("value", "k", values=("0.5", "1.5", "2.5"), **facts)
    assert not caused("size", "x.size(0)", values=("4", "8", "9"), dynamic_false=True)  # the source is not known
    assert caused("size", "x.size(0)", values=("4", "8", "9"), dynamic_false=True, name="<lambda>")


@pytest.mark.parametrize(
    "body",
    [
        "for t in range(x.size(1)):\n        x = self.lin(x)\n    return x",
        "q, r = divmod(x.shape[0], k)\n    return x[: q * k]",
        "n = x.shape[0]\n    return {f'n{n}': x.sum()}",
        "return [row.sum() for row in x]",
        "n = len(x)\n    return x + self.table(n)",
        "n = x.size(0)\n    return x + self.cache[n]",
        "for _ in range(int(math.log2(x.shape[0]))):\n        x = x * 2\n    return x",
    ],
)
def test_dynamic_false_stays_where_python_needs_the_size(body):
    """Each size was compiled anew as before; with `divmod` nothing was compiled any more (2.11 and 2.15)."""
    facts = {"text": f"def step(self, x, k):\n    {body}", "dynamic_false": True}
    assert not caused("size", "x.size(0)", values=("4", "8", "9"), **facts)


def test_dynamic_false_stays_where_python_needs_the_number():
    text = "def step(x, k):\n    for _ in range(k):\n        x = x * 2\n    return x"
    assert not caused("value", "k", values=("4", "8", "9"), dynamic_false=True, text=text)


COUNTS = "def forward(self, x):\n    self.calls += 1\n    return x * 2"
SCALES = "def forward(self, x):\n    return x * self.calls"
HINT = "allow_unspec_int_on_nn_module"


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        (COUNTS, True),
        (SCALES, True),
        ("def forward(self, x):\n    self.calls += 1\n    return x * self.calls if self.calls > 3 else x", False),
        ("def forward(self, x):\n    self.calls += 1\n    return x / max(self.calls, 4)", True),
        ("def forward(self, x):\n    self.calls += x.numel()\n    return x", True),  # followed: 5 -> 1
        ("def forward(self, x):\n    self.calls += x.shape[0] * len(x)\n    return x", True),  # followed: 8 -> 2
        ("def forward(self, x):\n    self.calls += x.max().item()\n    return x", False),
        ("def forward(self, x):\n    self.calls += x.shape[self.calls]\n    return x", False),
        ("def forward(self, x):\n    for i in range(self.calls):\n        x = x + 1\n    return x", False),
        ("def forward(self, x):\n    return x[: self.calls]", False),
        ("def forward(self, x):\n    self.calls += 1\n    self.w = min(1.0, self.calls / 9)\n    return x.sum() + self.w * x", True),
        ("def forward(self, x):\n    self.w = self.calls / 9\n    return x * 2 if self.w > 1 else self.w * x", False),
        ("def forward(self, x):\n    self.calls += 1\n    return x * 2 if self.calls in self.steps else x", False),
        ("def forward(self, x):\n    self.calls += 1\n    return self.late(x)", False),  # a method that may read it
        (None, False),
    ],
)
def test_an_integer_of_a_module_becomes_dynamic_only_where_nothing_needs_its_value(text, advised):
    found = caused("value", "self.calls", values=("1", "2"), hint=HINT, text=text)
    assert [one.slug for one in found] == (["unspec-int-on-module"] if advised else [])
    assert not caused("value", "self.calls", values=("1", "2"), hint=HINT, text=text, dynamic_false=True)  # where nothing becomes dynamic


def test_an_integer_of_a_module_becomes_dynamic_also_in_code_that_a_break_split_off():
    """No break makes it change: the count behind a branch hit the limit, and the same count without the branch had the advice."""
    split = Split("`forward`", Location(FILE, 9, "forward", "if x.sum() > 0:"), "GB0170")
    (advice,) = caused("value", "self.calls", values=("1", "2"), hint=HINT, text=COUNTS, split=split)
    assert advice.slug == "unspec-int-on-module"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def step(l):\n    return l[0] + 1", "`step` reads only `l[0]` of this list"),
        ("def step(l, x):\n    y = l[0] * x\n    return y + l[2] + l[0]", "`step` reads only `l[0]` and `l[2]` of this list"),
        ("def step(l):\n    return l[-1] + 1", None),  # another item for each length
        ("def step(l, i):\n    return l[i] + 1", None),
        ("def step(l):\n    return l[0] + len(l)", None),
        ("def step(l):\n    l[0] = l[0] + 1\n    return l[0]", None),
        ("def step(l):\n    l = l + l\n    return l[0]", None),
        ("def step(x):\n    return x + l[0]", None),  # no argument
    ],
)
def test_of_a_list_only_the_items_that_are_read_are_passed(text, told):
    found = caused("length", "len(l)", values=("1", "2", "3"), text=text)
    assert [one.slug for one in found] == (["pass-items"] if told else [])
    assert told is None or found[0].text.startswith(told)


@pytest.mark.parametrize(
    ("text", "facts", "advised"),
    [
        ("def forward(self, x):\n    self.t += 0.5\n    return x * self.t", {}, True),
        ("def forward(self, x):\n    self.t += 0.5\n    return x * self.t", {"float32": False}, False),
        ("def forward(self, x):\n    self.t += 0.5\n    return x * self.t", {"name": "step"}, False),
        ("def forward(self, x):\n    self.t = 0.5\n    return x * self.t", {}, False),  # a module refuses a float where it has a buffer
        ("def forward(self, x):\n    self.t += 0.5\n    return x if self.t > 2 else x * self.t", {}, False),
        ("def forward(self, x):\n    self.t += 0.5\n    return x * math.sin(self.t)", {}, False),
    ],
)
def test_a_float_that_a_module_adds_to_is_kept_in_a_buffer(text, facts, advised):
    facts = {"float32": True, "name": "forward", "made_constant": True} | facts
    found = caused("value", "self.t", values=("0.0", "0.5", "1.0"), text=text, **facts)
    assert [one.slug for one in found] == (["float-in-buffer"] if advised else [])
    assert not advised or 'self.register_buffer("t", torch.tensor(0.0), persistent=False)' in found[0].text


@pytest.mark.parametrize(
    ("key", "slugs"), [("['betas'][0]", ["constant-momentum"]), ("['momentum']", ["constant-momentum"]), ("['eps']", [])]
)
def test_a_momentum_that_a_scheduler_cycles(key, slugs):
    """AdamW with a tensor as its rate under `OneCycleLR`: each step had another beta and a version of its own (2.15)."""
    found = caused("value", f"self.param_groups[0]{key}", values=("0.95", "0.9497"), name="step")
    assert [one.slug for one in found] == slugs
    assert not slugs or "`cycle_momentum=False`" in found[0].text


def test_nothing_is_put_behind_a_line_that_goes_on():
    """`s = f(s); print(len(hist))`: what was appended behind the line came too late for its second statement."""
    assert the_call(parse_line("s = f(s)")) is not None and the_call(parse_line("s = f(s); print(len(hist))")) is None


def test_what_is_only_counted_is_counted_behind_the_call():
    text = "def step(x):\n    STATE['n'] += 1\n    return x * 2"
    facts = {"values": ("1", "2", "3"), "raw_source": "G['STATE']['n']", "text": text, "origin": Location("train.py", 4, "step")}
    (advice,) = caused("value", "STATE['n']", code="y = step(x)", **facts)
    assert advice.after == "y = step(x)\nSTATE['n'] += 1" and "Delete `STATE['n'] += 1` there" in advice.text
    for code in ("return step(x)", "print(step(x), STATE['n'])"):  # that line would read the count before it is added to
        assert not caused("value", "STATE['n']", code=code, **facts)
    for other in ("    if x.shape[0] > 3:\n        STATE['n'] += 1\n", "    STATE['n'] += 1\n    y = STATE['n']\n"):
        assert not caused("value", "STATE['n']", code="y = step(x)", **{**facts, "text": f"def step(x):\n{other}    return x * 2"})


def test_the_learning_rate_is_a_tensor_wherever_it_is_read():
    source = "self.param_groups[0]['lr']"
    split = Split("`train`", Location(FILE, 9, "train", "opt.step()"), "GB0007")
    (advice,) = caused("value", source, values=("0.1", "0.05"), dynamic=True, library=True, split=split, one_group=True)
    assert advice.slug == "lr-as-tensor" and not caused("value", source, values=("0.1", "0.05"), dynamic=True, library=True)
    for other in ("self.param_groups[0]['betas'][1]", "cfg.lr"):
        assert not caused("value", other, values=("0.1", "0.05"), library=True)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("t.mul_(k).add_(s, alpha=1 - k)", "t.mul_(k).add_(s * (1 - k))"),
        ("y = torch.sub(x, x + 1, alpha=k)", "torch.sub(x, (x + 1) * k)"),
        ("y = torch._foreach_add(xs, ys, alpha=k)", None),
        ("y = x.add(x, alpha=k) + x.add(x, alpha=k)", None),
    ],
)
def test_a_number_that_alpha_makes_a_constant_is_a_factor(line, after):
    found = caused(
        "value", "k", values=("0.5", "0.25"), dynamic=False, made_constant=True, text=f"def step(x, k):\n    {line}\n    return x"
    )
    assert [one.after for one in found] == ([] if after is None else [after])


def test_a_list_is_stacked_before_the_call_only_where_the_function_does_nothing_else_with_it():
    text = "def step(xs):\n    return torch.stack(xs).sum(0)"
    (advice,) = caused("length", "len(xs)", code="y = f(parts)", values=("2", "3"), text=text)
    assert advice.after == "xs_joined = torch.stack(parts)\ntorch._dynamo.maybe_mark_dynamic(xs_joined, 0)\ny = f(xs_joined)"
    assert "Write `xs` for `torch.stack(xs)`" in advice.text
    assert not caused("length", "len(xs)", code="y = f(parts)", values=("1", "3"), text=text)
    assert not caused(
        "length", "len(xs)", code="y = f(parts)", values=("2", "3"), text="def step(xs):\n    return torch.stack(xs) / len(xs)"
    )


GROWS = "def forward(self, x):\n    h = self.lin(x)\n    self.seen.append(h.detach())\n    return h * 2"


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        (GROWS, True),
        (GROWS.replace("return h * 2", "return sum(self.seen)"), False),
        (GROWS.replace("    self.seen", "    if self.training:\n        self.seen"), False),
        (GROWS.replace("    self.seen", "    for _ in range(2):\n        self.seen"), False),
        (GROWS.replace("    return", "    h = h + 1\n    return"), False),  # what is handed out would be another value
        (GROWS.replace("    return", "    x.add_(1)\n    return"), False),
        (GROWS.replace("    return", "    self.note(x)\n    return"), False),  # a method that may read it
        (GROWS.replace("    h =", "    if x is None:\n        return x\n    h ="), False),
        (None, False),
    ],
)
def test_what_is_appended_is_handed_out_only_where_nothing_reads_the_list(text, advised):
    """Followed on a sampler: the append was taken out, and each length was compiled as before, since a sum reads them all."""
    facts = {"values": ("0", "1", "2"), "raw_source": "len(L['self'].seen)", "name": "forward"}
    found = caused("length", "len(self.seen)", code="y = model(x)", text=text, **facts)
    assert [one.after for one in found] == (["y, appended = model(x)\nmodel.seen.append(appended)"] if advised else [])
    assert not advised or "write `return h * 2, h.detach()` for `return h * 2`" in found[0].text
    assert not caused("length", "len(self.seen)", code="loss = criterion(model(x), y)", text=text, **facts)
    assert not caused("length", "len(self.seen)", code="y = model(x)", text=text, **facts, beside=("step += 1",))


@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        ((("G['seen']", "seen.append(x)"),), ()),
        ((("G['seen']", "seen.append(x)"), ("G['step']", "step += 1")), ("step += 1",)),
        ((("self", "self.last = x"), ("self", "self.out: Tensor = x * 2")), ()),  # no later call finds these in its way
        ((("self", "self.n = self.n + 1"),), ("self.n = self.n + 1",)),
        ((("self._buffers", "self.mean = self.mean + x"), ("___stack0", "y.append(x)")), ()),
    ],
)
def test_what_else_a_call_leaves_changed_is_known_by_its_lines(changes, beside):
    """Followed on a train loop (2.11): the list went, and the global count that grew with it took one version for each call as before."""
    assert changed_beside("len(G['seen'])", frozenset(changes)) == beside
    assert changed_beside("self.n", frozenset({("self", "self.n += 1"), ("self", "self.nn += 2")})) == ("self.nn += 2",)
    assert changed_beside("self.n", frozenset({("self", "self.mu = 0.9 * self.mu + m")}), frozenset({"mu"})) == ()
    assert counts_attribute("self.nn += 2") and not counts_attribute("step += 1") and not counts_attribute("self.t += dt")


def math_outside(*body, origin=None, **facts):
    """The advice for a function of these lines, of which the first asked for the guard."""
    text = "\n    ".join(("def forward(self, x, sigma):", *body))
    line = Location(FILE, 12, "forward", origin or body[0])
    given = {"values": ("(0.001 + sigma) == 4.55",), "text": text, "code": "y = model(x, 0.5)", "float32": True} | facts
    return caused("condition", "sigma", origin=line, printed="(0.001 + sigma) == 4.55", **given)


def test_a_number_that_only_math_takes_is_computed_before_the_call_where_torch_names_its_value():
    """`math.exp(lr)` of a float: each value fails as a value, not as a condition (torch 2.15)."""
    line = Location(FILE, 12, "forward", "return x * math.exp(sigma)")
    given = {"values": ("0.1", "0.2", "0.3"), "code": "y = model(x, 0.5)", "float32": True, "dynamic": False}
    text = "def forward(self, x, sigma):\n    return x * math.exp(sigma)"
    found = caused("value", "sigma", origin=line, text=text, printed="sigma == 0.1", **given)
    assert [one.slug for one in found] == ["math-outside"] and "`torch.tensor(math.exp(sigma))`" in found[0].text


def test_an_append_is_told_without_an_edit_where_the_call_is_a_part_of_a_statement():
    line = Location(FILE, 12, "step", 'history.append("step")')
    text = 'def step(x):\n    history.append("step")\n    return x + 1'
    given = {"values": ("0", "1", "2"), "code": "for _ in range(3): step(torch.ones(2))", "raw_source": "len(G['history'])"}
    (advice,) = caused("length", "len(history)", origin=line, text=text, **given)
    assert (advice.slug, advice.after) == ("append-outside", None)
    assert 'delete `history.append("step")`' in advice.text and "`history.append(...)` behind the call" in advice.text


def test_a_number_that_math_takes_is_computed_before_the_call():
    angles = ("angles = x * math.log(sigma + 1e-3)", "return angles.sin()")
    (advice,) = math_outside(*angles)
    assert advice.slug == "math-outside" and "`torch.tensor(math.log(sigma + 1e-3))`" in advice.text
    (advice,) = math_outside("return x * math.exp(-sigma) + math.cos(sigma)")  # one of the two alone would end nothing
    assert "use that in place of `math.exp(-sigma)`. Do the same with `math.cos(sigma)`." in advice.text
    assert not math_outside(*angles, parameters=("x",))
    assert not math_outside(*angles, float32=False)  # of float64 the tensor would keep seven digits
    assert not math_outside(*angles, code="y = model(x, 0.5)\nz = model(x, 0.7)")  # each call would have to change


@pytest.mark.parametrize(
    "body",
    [
        ("angles = freqs * table[sigma]", "return angles"),
        ("if math.log(sigma) > 4:", "    x = x * 2", "return x"),
        ("y = x * math.sin(sigma)", "return y * math.log(sigma + 1e-3)"),
        ("k = x * 2 * math.log(sigma)", "if k.sum() > 3:", "    k = k + 1", "return range(k)"),
        ("k = 2 * math.log(sigma)", "if k > 3:", "    x = x * 2", "return x * k"),  # a branch on a tensor breaks the graph
    ],
)
def test_a_number_of_math_that_python_needs_stays(body):
    assert not math_outside(*body)


@pytest.mark.parametrize(
    ("values", "advised"),
    [
        (("<function f at 0x1>", "<function f at 0x2>"), True),
        (("_TorchCompileWrapper(compiler='f', dynamic=None)",), True),
        (("<function f at 0x1>", "<function g at 0x2>"), False),
        ((), False),
    ],
)
def test_a_back_end_that_is_made_anew_is_made_once(values, advised):
    assert [one.slug for one in caused("backend", "backend", values=values)] == (["one-backend-object"] if advised else [])


SPLIT = Split("`forward`", Location("/venv/lib/python3.11/site-packages/kit/model.py", 150, "pad", "if n < 3:"), "GB0170")


def test_code_that_a_break_split_off_gets_no_advice_but_the_break_to_cure():
    """Followed on a decoder whose outer forward broke in its loop: each layer was compiled by itself, and its cache with it."""
    assert not resized(code="y = f(x)", split=SPLIT)
    assert split_off(cause("size", "x", split=SPLIT)) == SPLIT
    assert "GB0170 at model.py:150 ends the graph of `forward`: they go with that break." in split_reason((SPLIT, SPLIT))
    other = Split("`loss`", Location("train.py", 9, "loss", "y.item()"), "GB0124")
    assert split_reason((SPLIT, other)).endswith(
        "only because GB0170 at model.py:150 and GB0124 at train.py:9 end the graphs of `forward` and `loss`: they go with those breaks."
    )
    assert split_off(cause("value", "___stack0.total", resumed=True, split=SPLIT)) is not None
    # What the program keeps itself recompiles the outer code as well: without the break it hit the limit for the same list.
    for kind, source in (("length", "len(self.logged)"), ("value", "name"), ("value", "STEP"), ("contains", "d"), ("identity", "f")):
        assert split_off(cause(kind, source, split=SPLIT)) is None
    own = replace(SPLIT, place=Location("/opt/site-packages/torch/optim/optimizer.py", 78, "_use_grad"))
    assert split_off(cause("size", "x", split=own)) is None  # nobody can cure the break that torch.optim makes on purpose


@pytest.mark.parametrize(
    ("kind", "source", "values", "slug", "words"),
    [
        ("size", "kwargs['past_key_values'].layers[0].keys.size(2)", ("5", "6"), "static-cache", "StaticCache("),
        ("type", "cache.key_cache[0]", ("None", "a Tensor"), "static-cache", "StaticCache("),
        (
            "none",
            "self.config.problem_type",
            ("None", "'single_label_classification'"),
            "problem-type",
            "problem_type = 'single_label_classification'",
        ),
    ],
)
def test_the_commonest_causes_in_libraries_have_a_name(kind, source, values, slug, words):
    (advice,) = caused(kind, source, values=values, library=True, foreign=True)
    assert advice.slug == slug and words in advice.text
    assert not caused(kind, source, values=values)  # an attribute of that name of the user's own


def test_a_model_that_generates_makes_caches_of_its_own():
    """`cache_implementation="static"` left all three recompiles: each prompt had a cache of another length."""
    size = {"values": ("5", "6"), "library": True}
    source = "kwargs['past_key_values'].layers[0].keys.size(2)"
    line = Location(FILE, 9, "main", "out = model.generate(ids, max_new_tokens=5)")
    assert [one.slug for one in caused("size", source, shown=replace(line, code="out = model(ids)"), **size)] == ["static-cache"]
    assert not caused("size", source, shown=line, **size)
    first_use = {"values": ("False", "True"), "library": True}  # of a StaticCache
    assert not caused("value", "cache.layers[0].is_initialized", shown=replace(line, code="out = model(ids)"), **first_use)


@pytest.mark.parametrize("kind", ["size", "value", "length", "condition", "type", "requires_grad"])
def test_what_is_a_librarys_own_gets_no_edit(kind):
    assert not caused(kind, "self.state", values=("2", "3", "4"), library=True, foreign=True, dynamic_false=True)


def test_what_changes_in_lightning_is_said():
    origin = Location("/site-packages/lightning/pytorch/trainer/logger.py", 9, "log", "self._current_fx_name = name")
    told = reason(cause("value", "self._current_fx_name", values=("'a'", "'b'"), origin=origin))
    assert told is not None and "compile the network inside the LightningModule" in told


@pytest.mark.parametrize(
    ("kind", "source", "values", "words"),
    [
        ("value", "m.training", ("True",), "Training and evaluation are two programs"),
        ("value", "k", ("8", "12"), "torch makes a number dynamic once it has changed, unless the code needs to know it"),
        ("value", "k", ("8", "12", "16"), "Each value that the code needs to know takes its own compiled version"),
        ("value", "mode", ("'a'", "'b'"), "Each value that the code needs to know takes its own compiled version"),
        ("none", "mask", ("None", "a Tensor"), "With it and without it (None)"),
        ("size", "x.size(0)", ("4", "1"), "the sizes 0 and 1 separately"),
        ("size", "x.size(0)", ("4", "3"), None),
        ("size", "x.size(1)", ("4", "3"), None),
        ("requires_grad", "x.requires_grad", ("False", "True"), "With and without a gradient"),
        ("length", "len(xs)", ("2", "3"), "Each number of elements"),
        ("size", "x.size(0)", ("4", "8"), None),
        ("unknown", "x", (), None),
    ],
)
def test_what_is_not_cured_has_a_reason(kind, source, values, words):
    told = reason(cause(kind, source, values=values))
    assert (told is None) if words is None else (told is not None and words in told)
    assert not caused(kind, source, values=values, code="y = f(x)")
