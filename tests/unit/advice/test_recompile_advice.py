"""Recompile advice in words and code: only what the user can write where they call the compiled function."""

from dataclasses import replace

import pytest

from dynadiag.advice.function_source import parse_function
from dynadiag.advice.recompile_cause import Cause, Split, Written
from dynadiag.advice.recompile_containers import length_advice
from dynadiag.advice.recompile_values import absent, value_advice
from dynadiag.advice.recompiles import recompile_advice
from dynadiag.model.run import CompileKey, Frame, Location, Run, RunInfo

FILE = "/home/me/train.py"
EMPTY = Run(info=RunInfo())
SCALES = parse_function("def step(self, x, k, cfg):\n    return x * k * self.step * cfg.scale")
JOINS = parse_function("def step(xs):\n    return torch.stack(xs).sum(0)")


def caused(kind, source, *, code=None, values=(), raw="", run=EMPTY, **facts):
    entered = None if code is None else Location(FILE, 9, "main", code)
    return recompile_advice(Cause(kind=kind, source=source, process=0, raw_source=raw, values=values, entered=entered, **facts), run)


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("y = f(x)  # each batch", "torch._dynamo.maybe_mark_dynamic(x, 1)\ny = f(x)"),
        ("y = f(x=tokens)", "torch._dynamo.maybe_mark_dynamic(tokens, 1)\ny = f(x=tokens)"),
        ("y = f(x=batch['ids']).loss", "torch._dynamo.maybe_mark_dynamic(batch['ids'], 1)\ny = f(x=batch['ids']).loss"),
        ("loss = f(x).pow(2).mean()", "torch._dynamo.maybe_mark_dynamic(x, 1)\nloss = f(x).pow(2).mean()"),
        ("y = f(batch)", None),
        ("loss = criterion(f(h), x)", None),  # which of them is compiled is not known
        ("while f(x) > 0:", None),
        ("ys = [f(x) for x in xs]", None),
        ("y = f(x=next(batches))", None),
        ("y = f(x=h[rows])", None),  # a new tensor each time: the mark would be lost
        ("y = f(x=parts[0])", None),
        ("y = f(*x)", None),
        ("y = f(**batch)", None),
        (None, None),
    ],
)
def test_a_tensor_is_marked_by_the_name_it_has_at_the_call(code, after):
    advice = caused("size", "x.size(1)", code=code, values=("8", "12"))[0]
    assert (advice.slug, advice.after) == ("mark-dynamic", after)
    assert advice.before == (None if after is None else code.partition("  #")[0])
    assert after is not None or "(x, 1)` outside the compiled function (by the name that the tensor has there)" in advice.text


@pytest.mark.parametrize(
    ("code", "source", "inputs", "name"),
    [
        ("loss = model(input_ids=ids, labels=labels).loss", "kwargs['input_ids']", (), "ids"),
        ("loss = model(input_ids=batch.ids).loss", "kwargs['input_ids']", (), "batch.ids"),
        ("out = model(ids)", "kwargs['input_ids']", (), None),
        ("out = model(**batch)", "kwargs['input_ids']", (), 'batch["input_ids"]'),
        ("out = model(**batch)", "input_ids", ("input_ids", "self"), 'batch["input_ids"]'),
        ("out = model(**batch)", "table", ("input_ids",), None),  # no input of the function
        ("out = model(**batch)", "table (closure of step)", ("table",), None),
        ("out = model(mask, **batch)", "input_ids", ("input_ids",), None),  # `mask` may be it
        ("out = model(mask, **batch)", "kwargs['input_ids']", (), 'batch["input_ids"]'),
        ("out = model(**batch, **more)", "kwargs['input_ids']", (), None),  # which of them is not known
        ("out = model(input_ids=ids, **more)", "input_ids", ("input_ids",), "ids"),
        ("out = model(**step.batch['text'])", "kwargs['input_ids']", (), "step.batch['text'][\"input_ids\"]"),
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
    advice = caused("size", f"{source}.size(1)", code=code, values=("8", "12"), inputs=frozenset(inputs))[0]
    assert advice.after == (None if name is None else f"torch._dynamo.maybe_mark_dynamic({name}, 1)\n{code}")
    assert name is None or f"of `{name}` varies" in advice.text


def test_another_line_than_the_shown_one_is_told():
    advice = caused("size", "x.size(1)", code="y = f(x)", values=("8", "12"), call=Location(FILE, 30, "main", "generate()"))[0]
    assert "before the first call (at train.py:9)" in advice.text


def test_a_value_behind_a_break_may_be_computed():
    advice = caused("size", "h.size(1)", code="y = f(h)", values=("8", "12"), resumed=True)[0]
    assert advice.after is None
    assert "`h`, or of the argument that it is computed from, varies" in advice.text


def test_a_flag_of_a_librarys_object_is_not_the_users_to_change():
    assert caused("value", "kwargs['cache'].is_updated[0]", values=("False", "True"), library=True, foreign=True) == ()
    assert caused("value", "kwargs['training']", values=("False", "True"), library=True)


def test_no_mark_is_put_into_code_that_is_compiled_itself():
    frame = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="main", file=FILE, line=3, outcome="broke")
    advice = caused("size", "x.size(1)", code="y = f(x)", values=("8", "12"), run=Run(info=RunInfo(), frames=(frame,)))
    assert [one.slug for one in advice] == ["compile-dynamic"]


def test_the_argument_of_a_module_is_not_called_by_torchs_name():
    assert "the first argument" in caused("size", "args[0].size(2)", values=("8", "12"))[0].text


@pytest.mark.parametrize(
    ("kind", "source", "values"),
    [
        ("size", "kwargs['ids'].size(1)", ("8", "12")),
        ("dtype", "kwargs['ids'].dtype", ("torch.float32", "torch.float64")),
        ("device", "kwargs['ids'].device", ("cpu", "cuda")),
        ("stride", "kwargs['ids'].stride(0)", ("1", "4")),
        ("requires_grad", "kwargs['ids'].requires_grad", ("False", "True")),
        ("value", "kwargs['ids']", ("'a'", "'b'")),
        ("value", "kwargs['ids']", ("True", "False")),
        ("none", "kwargs['ids']", ("None", "a Tensor")),
        ("type", "kwargs['ids']", ("an int", "a Tensor")),
        ("function", "kwargs['ids']", ("a function", "another object")),
    ],
)
def test_a_keyword_argument_is_not_called_by_torchs_name(kind, source, values):
    texts = [advice.text for advice in caused(kind, source, values=values)]
    assert any("eyword argument `ids`" in text for text in texts)
    assert not any("kwargs" in text for text in texts)


def test_only_the_first_dimension_is_taken_for_a_batch():
    assert "drop_last" in caused("size", "x.size(0)", values=("1", "12"))[0].text
    advice = caused("size", "kwargs['audio'].size(1)", values=("1", "12"))[0]
    assert advice.text.startswith("torch compiles") and "drop_last" not in advice.text


@pytest.mark.parametrize(
    ("source", "raw", "values", "slugs"),
    [
        ("len(kwargs)", "len(L['kwargs'])", ("6", "7"), ["same-arguments"]),
        ("len(self.history)", "len(L['self'].history)", ("0", "1", "2"), ["read-outside"]),  # nothing compiled was recorded to append
        ("len(self.stages._modules)", "len(L['self'].stages._modules)", ("2", "3", "4"), ["bounded-versions"]),
        ("len(states)", "len(G['states'])", ("0", "1"), ["fill-before"]),
        ("len(states)", "len(G['states'])", ("2", "1"), []),
        ("len(xs)", "len(L['xs'])", ("2", "3"), ["bounded-versions"]),
    ],
)
def test_a_length_is_cured_by_what_it_is_the_length_of(source, raw, values, slugs):
    assert [advice.slug for advice in caused("length", source, raw=raw, values=values)] == slugs


def test_a_list_is_stacked_only_where_the_function_does_nothing_else_with_it():
    looped = parse_function("def step(xs):\n    for x in xs:\n        y = y + x\n    return y")
    for function, slug in ((JOINS, "stack-list"), (looped, "bounded-versions"), (None, "bounded-versions")):
        assert [one.slug for one in caused("length", "len(xs)", raw="len(L['xs'])", values=("2", "3"), function=function)] == [slug]


def test_what_compiled_code_appends_to_is_appended_outside():
    cause = Cause(kind="length", source="len(self.seen)", process=0, raw_source="len(L['self'].seen)", values=("0", "1"))
    cause = replace(
        cause, written=Written("list", None), function=parse_function("def f(self, x):\n    self.seen.append(self.lin(x))\n    return x")
    )
    assert [one.slug for one in length_advice(cause)] == ["append-outside"]


@pytest.mark.parametrize(("kind", "source"), [("dtype", "x.dtype"), ("device", "x.device"), ("stride", "x.stride(0)"), ("rank", "x.dim()")])
def test_a_property_of_a_tensor_that_is_meant_needs_no_change(kind, source):
    assert "no change is needed where they are meant. Else" in caused(kind, source)[0].text
    assert "before the call" not in caused(kind, f"self.lin.weight{source[1:]}", on_parameter=True)[0].text


@pytest.mark.parametrize(
    ("code", "slug"),
    [("if hasattr(self, 'memory'):", "bounded-versions"), ("y = self.memory + x", "set-attribute-always"), (None, "bounded-versions")],
)
def test_an_attribute_that_the_code_asks_for_is_not_set_earlier(code, slug):
    assert [one.slug for one in caused("attribute", "self.memory", origin=Location(FILE, 3, "step", code))] == [slug]


@pytest.mark.parametrize(
    ("line", "slugs"),
    [
        ("y = x.sin() if flag else -x", ["split-by-value", "flag-where"]),
        ("y = a if flag else b", ["split-by-value"]),
        ("if flag:", ["split-by-value"]),
        ("y = net(x) if not flag else x", ["split-by-value"]),
        ("y = x if flag else None", ["split-by-value"]),
    ],
)
def test_a_flag_becomes_a_tensor_only_where_it_chooses_between_two_values(line, slugs):
    function = parse_function(f"def step(x, flag):\n    {line}{' pass' if line.endswith(':') else ''}")
    found = caused("value", "flag", values=("True", "False"), origin=Location(FILE, 2, "step", line), function=function)
    assert [one.slug for one in found] == slugs
    assert len(found) == 1 or found[1].after == "y = torch.where(flag, x.sin(), -x)"


def test_a_tensor_that_torch_made_while_tracing_is_not_marked():
    """The state of the random generator under activation checkpointing (torch 2.15): no name of the program's."""
    slugs = [advice.slug for advice in caused("size", "__meta_utils_unknown_tensor13.size(0)", values=("16", "5056"), there_at_first=True)]
    assert "mark-dynamic" not in slugs
    assert "mark-dynamic" in [one.slug for one in caused("size", "x.size(0)", values=("16", "5056"), there_at_first=True)]


@pytest.mark.parametrize("source", ["kwargs['past'].layers[0].length.item()", "___stack0"])
def test_nothing_is_said_of_a_value_that_has_no_name_in_the_program(source):
    assert caused("value", source, values=("0", "1")) == ()
    assert caused("invalidated", "___stack0") == ()


@pytest.mark.parametrize(("source", "slug"), [("self.step", "attribute-as-tensor"), ("rows.step", "split-by-value")])
def test_a_counter_called_step_is_no_step_of_a_range(source, slug):
    assert caused("value", source, values=("0", "1"), function=SCALES)[0].slug == slug


@pytest.mark.parametrize(
    ("source", "raw", "slug"),
    [
        ("module[0]", "fn._modules['0']", "bounded-versions"),
        ("modules[0]", "modules['0']", "one-type"),  # a variable of the program
        ("x", "x", "one-type"),
    ],
)
def test_a_part_of_a_compiled_module_of_another_class_may_be_another_module(source, raw, slug):
    first = caused("type", source, raw=raw, values=("a Linear",) if slug == "bounded-versions" else ("a float",))[0]
    assert (first.slug, "another compiled module came" in first.text) == (slug, slug == "bounded-versions")


LIBRARY = "/venv/lib/python3.11/site-packages/kit/model.py"
SPLIT = Split("forward", Location(LIBRARY, 150, "pad", "if n < 3:"), "GB0170")


@pytest.mark.parametrize(
    ("kind", "source", "values"),
    [
        ("function", "func", ("function", "another object")),
        ("type", "self.conv", ("a Conv1d", "another value")),
        ("length", "len(self.block._modules)", ("2", "3")),
        ("none", "args[2]", ("None",)),
        ("size", "hidden.size(1)", ("4", "8")),
    ],
)
def test_what_is_a_librarys_own_gets_no_edit_but_the_break_that_split_it(kind, source, values):
    assert caused(kind, source, values=values, library=True, foreign=True) == ()
    (advice,) = caused(kind, source, values=values, library=True, foreign=True, split=SPLIT)
    assert advice.slug == "cure-break"
    assert "the graph break GB0170 at model.py:150" in advice.text and advice.after is None
    # Nobody can cure the break that torch.optim makes on purpose.
    own = replace(SPLIT, place=Location("/opt/site-packages/torch/optim/optimizer.py", 78, "_use_grad"))
    assert caused(kind, source, values=values, library=True, foreign=True, split=own) == ()


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


@pytest.mark.parametrize("folder", ["/venv/lib/python3.11/site-packages/", ""])  # torch's comment has the path from its own folder on
def test_lightnings_own_state_is_not_compiled(folder):
    origin = Location(f"{folder}lightning/pytorch/trainer/connectors/logger.py", 9, "log", "x")
    (advice,) = caused("value", "self._trainer.step", values=("1", "2"), library=True, foreign=True, origin=origin)
    assert advice.slug == "compile-inner-module"


@pytest.mark.parametrize(
    ("facts", "slugs"),
    [
        ({"dynamic": True, "conditioned": True}, ["compile-dynamic"]),
        ({"dynamic": True}, ["compile-dynamic"]),
        ({"dynamic": False}, ["split-by-value"]),  # torch made a constant of it: a tensor would break the graph there
        ({"conditioned": True}, ["compile-dynamic"]),
        ({"origin": Location(FILE, 3, "f", "for i in range(k):")}, ["compile-dynamic"]),
        ({"origin": Location(FILE, 3, "f", "plane = torch.full_like(x, k / 12)")}, ["compile-dynamic"]),
        ({}, ["compile-dynamic"]),  # the source of the function is not known
        ({"function": SCALES, "resumed": True}, ["compile-dynamic"]),
        ({"function": SCALES}, ["compile-dynamic", "number-as-tensor"]),
        ({"dynamic_false": True, "conditioned": True}, ["drop-dynamic-false"]),
    ],
)
def test_a_number_is_made_a_tensor_only_where_that_breaks_nothing(facts, slugs):
    assert [advice.slug for advice in caused("value", "k", values=("2", "3"), **facts)] == slugs


def test_a_size_that_torch_keeps_constant_is_not_marked():
    assert caused("size", "x.size(1)", code="y = f(x)", values=("8", "12"), dynamic=False) == ()


def test_a_count_is_said_to_reach_the_limit():
    assert "keep the count out" in caused("value", "SEEN['n']", values=("0", "1", "2"), dynamic=False, raw="G['SEEN']['n']")[-1].text
    assert "keep the count out" not in caused("value", "SEEN['n']", values=("0", "2", "1"), dynamic=False)[-1].text


def test_the_last_batch_has_a_name():
    for code, slugs in (("y = f(x)", ["mark-dynamic", "compile-dynamic", "drop-last"]), (None, ["mark-dynamic", "compile-dynamic"])):
        assert [advice.slug for advice in caused("size", "x.size(0)", code=code, values=("32", "17"))] == slugs


def test_nothing_is_split_by_the_value_of_what_became_dynamic():
    assert [one.slug for one in caused("value", "self.n", values=("0", "1"), dynamic=True)] == ["compile-dynamic"]
    assert "one function for each" not in caused("value", "self.n", values=("0", "1"), dynamic=False)[-1].text


@pytest.mark.parametrize("values", [("None", "a DynamicCache"), ("None", "'sum'"), ("not None", "None")])
def test_no_tensor_is_asked_for_where_none_was(values):
    assert not any(advice.slug == "always-a-tensor" and "DynamicCache" in values[1] for advice in caused("none", "x", values=values))
    assert caused("none", "self.mask", values=("not None", "None")) == ()


def test_a_tensor_of_an_attribute_is_marked_only_if_it_was_there_at_first():
    """`cache.keys` is None before the first call: to mark it would raise an error."""
    for there, slugs in ((True, ["mark-dynamic", "compile-dynamic"]), (False, ["compile-dynamic"])):
        found = caused("size", "self.cache[0].size(1)", values=("4", "5"), there_at_first=there)
        assert [advice.slug for advice in found] == slugs


@pytest.mark.parametrize(
    ("line", "slug"),
    [
        ("if self.teacher is not None:", "bounded-versions"),  # an earlier value would change what the first calls compute
        ("if self.teacher is None:", "initialise-attribute"),
        ("    if self.inner.teacher is None:", "initialise-attribute"),
        ("if self.teacher:", "bounded-versions"),
    ],
)
def test_an_optional_attribute_is_left_alone(line, slug):
    origin = Location("t.py", 3, "step", code=line)
    cause = Cause(kind="none", source="self.teacher", process=0, raw_source="self.teacher", values=("None", "a Linear"), origin=origin)
    assert [advice.slug for advice in absent(cause)] == [slug]


def test_a_number_that_bounds_a_loop_stays_a_constant():
    origin = Location("t.py", 3, "step", code="for i in range(self.depth + 1):")
    hint = "use torch._dynamo.config.allow_unspec_int_on_nn_module"
    cause = Cause(kind="value", source="self.depth", process=0, values=("0", "1"), hint=hint, origin=origin)
    assert [advice.slug for advice in value_advice(cause)] == ["split-by-value"]
    assert [advice.slug for advice in value_advice(replace(cause, origin=None))][0] == "unspec-int-on-module"


def test_a_captured_number_becomes_a_tensor():
    cause = Cause(kind="value", source="slope (closure of score_mod)", process=0, values=("0.01", "0.02"))
    assert [advice.slug for advice in value_advice(cause)] == ["closure-as-tensor"]
    assert [advice.slug for advice in value_advice(replace(cause, values=("1", "2")))] == ["split-by-value"]


GROWS = "def step(self, x):\n    self.history.append(x)\n    return x"
READS = "def step(self, x):\n    self.history.append(x)\n    return sum(self.history)"
PASSES = "def step(self, x):\n    return self.update(x, self.history)"


@pytest.mark.parametrize(("source", "slug"), [(GROWS, "append-outside"), (READS, "bounded-versions"), (PASSES, "bounded-versions")])
def test_appending_outside_helps_only_where_nothing_reads_the_list(source, slug):
    """Followed on a sampler: the append was taken out, and each length was compiled as before, since a sum reads them all."""
    written = Written("list", Location(FILE, 12, "step", "self.history.append(x)"))
    cause = Cause(
        kind="length", source="len(self.history)", process=0, values=("1", "2", "3"), written=written, function=parse_function(source)
    )
    assert [one.slug for one in length_advice(cause)] == [slug]


def test_nothing_is_added_outside_where_the_function_reads_the_dictionary():
    source = parse_function("def forward(self, x, cache):\n    k = cache.update(self.layer, x)\n    return k")
    cause = Cause(
        kind="length", source="len(cache.keys)", process=0, values=("0", "1", "2"), written=Written("dict", None), function=source
    )
    assert [one.slug for one in length_advice(cause)] == []


def test_only_what_the_program_keeps_is_called_a_count():
    kept = caused("value", "CALLS", raw="G['CALLS']", values=("1", "2", "3"), function=parse_function("def f(x):\n    return x[CALLS]"))
    assert "counts up from call to call" in kept[-1].text
    passed = caused("value", "size", values=("2", "3", "4"), dynamic=False, raw="L['size']")
    assert not any("counts up" in one.text for one in passed)


def test_another_code_object_is_really_another_function():
    """A lambda that is made anew has the code object of the one before: hoisting it changes nothing here."""
    text = "___check_obj_id(loss_fn.__code__, 140154856805744), type=<class 'code'>"
    slugs = [one.slug for one in caused("function", "loss_fn", raw="L['loss_fn'].__code__", text=text)]
    assert slugs == ["bounded-versions"]
    assert [one.slug for one in caused("function", "f", raw="L['f']", text="___check_obj_id(f, 7), type=<class 'function'>")] == [
        "hoist-function"
    ]


def test_a_number_that_math_takes_is_no_branch():
    line = Location(FILE, 12, "forward", "angles = freqs * math.log(sigma + 1e-3)")
    (advice,) = caused("condition", "sigma", values=("(0.001 + sigma) == 4.558873112292889",), text="(0.001 + sigma) == 4.55", origin=line)
    assert advice.slug == "math-outside" and "`math.log(sigma + 1e-3)`" in advice.text
    other = Location(FILE, 12, "forward", "angles = freqs * table[sigma]")
    assert caused("condition", "sigma", values=("(0.001 + sigma) == 4.55",), text="(0.001 + sigma) == 4.55", origin=other) == ()
    branch = Location(FILE, 12, "forward", "if n > 4:")
    assert [one.slug for one in caused("condition", "n", values=("n <= 4",), text="n <= 4", origin=branch)] == ["branch-outside"]


def test_two_optimizers_are_two_versions():
    place = Location("/venv/site-packages/torch/optim/optimizer.py", 549, "wrapper", "self = cast(Optimizer, self)")
    split = Split("step_g", Location(FILE, 26, "step_g", "opt_g.step()"), "GB0007")
    (advice,) = caused("identity", "args[0]", raw="L['args'][0]", values=("SGD", "another object"), origin=place, split=split, foreign=True)
    assert advice.slug == "bounded-versions" and "optimizer" in advice.text


def test_own_code_that_a_break_split_off_gets_the_break_first():
    """Followed on a decoder whose outer forward broke in its loop: each layer was compiled by itself, and its cache with it."""
    split = Split("forward", Location(FILE, 37, "forward", "y = attend(q)"), "GB0112")
    grown = caused("length", "len(cache.keys)", values=("0", "1", "2"), split=split)
    assert [one.slug for one in grown] == ["cure-break"]
    sized = caused("size", "x.size(1)", values=("8", "12"), split=split)
    assert [one.slug for one in sized] == ["cure-break", "mark-dynamic", "compile-dynamic"]
    assert [one.slug for one in caused("size", "boxes.size(0)", values=("1", "11"), split=split)] == ["cure-break"]  # no batch to leave out


@pytest.mark.parametrize("source", ["len(kwargs)", "len(args)"])
def test_a_librarys_function_is_not_always_called_alike(source):
    assert caused("length", source, values=("1", "2"), library=True) == ()
