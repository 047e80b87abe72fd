"""What the picture of a captured graph shows, and that it fits a bug report."""

import re
import time
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.render.drawing import drawn
from dynadiag.render.graph_picture import INPUTS_AT_MOST, ROWS_AT_MOST, bytes_text, graph_picture
from dynadiag.render.graph_view import tensor
from dynadiag.render.operator_classes import operator_class, short_name
from dynadiag.render.picture import Row, describe
from dynadiag.render.recorded_graph import RecordedGraph

SHAPE = "f32[4, 128][128, 1]cpu"


def node(name, target="torch.relu", args=(), op="call_function", line=None, modules=(), annotation=SHAPE):
    place = None if line is None else Location("/home/me/proj/model.py", line, "forward", f"line {line}")
    return Node(name=name, op=op, target=target, args=tuple(args), location=place, modules=tuple(modules), annotation=annotation)


def made(nodes, **options):
    recorded = {key: options.pop(key) for key in ("labels", "classes", "writes") if key in options}
    return graph_picture(RecordedGraph(nodes=nodes, **recorded), title="g0", **options)


def chain(length, ops=("torch.sin", "torch.cos", "torch.exp"), **options):
    first = [node("x", op="placeholder", target="L_x_")]
    body = [
        node(f"a{i}", ops[i % len(ops)], ("x" if i == 0 else f"a{i - 1}",), **{key: value(i) for key, value in options.items()})
        for i in range(length)
    ]
    return [*first, *body, node("output", op="output", args=(f"a{length - 1}",))]


def layers(count, first="L['self'].layer"):
    """Each layer: linear, gelu, linear, add with the input of the layer, layer_norm; then a head."""
    nodes, last = (
        [node("x", op="placeholder", target="L_x_"), node("emb", "torch.embedding", ("x",), modules=("L['self']", "L['self'].emb"))],
        "emb",
    )
    for i in range(count):
        inside = ("L['self']", f"{first}.{i}")
        for step, (target, extra) in enumerate(
            [("torch.linear", ()), ("torch.gelu", ()), ("torch.linear", ()), ("operator.add", (last,)), ("torch.layer_norm", ())]
        ):
            nodes.append(node(f"n{i}_{step}", target, (f"n{i}_{step - 1}" if step else last, *extra), modules=inside))
        last = f"n{i}_4"
    return [
        *nodes,
        node("head", "torch.linear", (last,), modules=("L['self']", "L['self'].head")),
        node("output", op="output", args=("head",)),
    ]


def size(text):
    root = ElementTree.fromstring(text)
    return float(root.get("width")), float(root.get("height"))


def names(picture):
    return [row.name for row in picture.rows]


def links(picture):
    return {(link.tail, link.head) for link in picture.links}


def test_a_small_graph_is_drawn_as_it_is():
    picture = made(chain(6))
    assert names(picture) == ["x", "sin", "cos", "exp", "sin", "cos", "exp"]
    assert links(picture) == {(i, i + 1) for i in range(6)}
    assert picture.rows[-1].ends and not picture.rows[0].ends
    assert picture.summary == ("6 calls",)


def test_what_is_drawn_and_what_the_headline_counts_are_told_apart():
    assert made(chain(6), operators=9).summary == ("6 calls, which run 9 operators",)
    assert made(layers(12), operators=1).summary == ("62 calls, which run 1 operator, 1 repeated block drawn once",)


def test_repeated_layers_are_drawn_once_with_their_class_and_count():
    picture = made(layers(12), classes={"L['self'].layer.0": "Block"})
    (panel,) = picture.panels
    assert (panel.title, panel.tag) == ("layer.0 … 11", "×12 Block, 5 calls")
    assert names(picture) == ["x", "embedding", "linear", "gelu", "linear", "add", "layer_norm", "linear"]
    assert links(picture) == {(0, 1), (1, 2), (1, 5), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)}
    assert picture.summary == ("62 calls, 1 repeated block drawn once",)


def test_a_block_begins_where_its_module_begins_also_where_the_one_before_ends_with_the_same_operator():
    nodes, last = [node("x", op="placeholder", target="L_x_"), node("emb", op="placeholder", target="L_emb_")], "x"
    for i in range(6):
        inside = ("L['self']", f"L['self'].blocks.{i}")
        siblings = [node(f"n{i}_{name}", "torch.linear", (f"n{i}_add",), modules=(*inside, f"{inside[-1]}.{name}")) for name in "qkv"]
        attention = node(f"n{i}_att", "torch.attention", [one.name for one in siblings], modules=inside)
        first = node(f"n{i}_add", "operator.add", (last, "emb"), modules=inside)
        nodes += [first, *siblings, attention, node(f"n{i}_res", "operator.add", (last, f"n{i}_att"), modules=inside)]
        last = f"n{i}_res"
    picture = made([*nodes, node("output", op="output", args=(last,))], classes={f"L['self'].blocks.{i}": "Block" for i in range(6)})
    assert [(one.title, one.tag) for one in picture.panels] == [("blocks.0 … 5", "×6 Block, 6 calls")]
    assert names(picture)[-4:] == ["add", "linear ×3", "attention", "add"]


def test_what_repeats_inside_one_module_is_not_called_that_module():
    inside = ("L['self']", "L['self'].attention")
    nodes = [node("x", op="placeholder")]
    for part in range(10):
        for step, target in enumerate(("torch.linear", "view", "transpose")):
            nodes.append(node(f"n{part}_{step}", target, (f"n{part}_{step - 1}" if step else "x",), modules=inside))
    (panel,) = made(nodes, classes={"L['self'].attention": "Attention"}).panels
    assert (panel.title, panel.tag) == ("in attention", "×10, 3 calls")


def test_a_block_without_modules_is_called_by_its_function():
    place = [Location("/env/site-packages/torch/optim/adam.py", 400 + i, "_single_tensor_adam", "") for i in range(4)]
    nodes = [
        Node(name=f"n{p}_{i}", op="call_method", target=("mul_", "add_", "sqrt", "addcdiv_")[i], args=(f"p{p}",), location=place[i])
        for p in range(42)
        for i in range(4)
    ]
    (panel,) = made([*(node(f"p{p}", op="placeholder", target=f"P_{p}") for p in range(42)), *nodes]).panels
    assert (panel.title, panel.tag) == ("Adam update of one parameter", "×42, 4 calls")


def test_modules_are_panels_two_deep_under_their_own_names():
    def module(i):
        path = ("encoder", "decoder")[i >= 20], ("attention", "mlp")[i % 20 >= 10]
        return ("L['self']", f"L['self'].{path[0]}", f"L['self'].{path[0]}.{path[1]}")

    picture = made(chain(40, ops=[f"torch.op{i}" for i in range(40)], modules=module))
    assert [panel.title for panel in picture.panels] == ["encoder", "attention", "mlp", "decoder", "attention", "mlp"]
    deep = {(picture.panels[row.outer].title, picture.panels[row.inner].title) for row in picture.rows if row.outer is not None}
    assert len(deep) == 4


def test_a_panel_is_called_by_the_one_module_that_all_its_operators_are_in():
    deep = ("L['self']", "L['self'].a", "L['self'].a.b", "L['self'].a.b.c")
    nodes = [*chain(9, modules=lambda i: deep if i < 6 else ("L['self']", "L['self'].d"))]
    assert [panel.title for panel in made(nodes).panels] == ["a.b.c", "d"]


def test_equal_operators_in_a_row_share_a_box():
    nodes = [
        node("x", op="placeholder"),
        *(node(f"a{i}", "torch.relu", ("x",)) for i in range(1000)),
        node("s", "torch.cat", ("a1", "a999")),
    ]
    assert names(made(nodes)) == ["x", "relu ×1,000", "cat"]


@pytest.mark.parametrize(
    ("op", "target", "kind"),
    [
        ("call_function", "torch._C._nn.linear", "matrix"),
        ("call_function", "torch.ops.aten.addmm.default", "matrix"),
        ("call_function", "torch._C._nn.scaled_dot_product_attention", "attention"),
        ("call_function", "torch.ops.aten._scaled_dot_product_flash_attention.default", "attention"),
        ("call_function", "torch.nn.functional.layer_norm", "normalisation"),
        ("call_function", "operator.add", "pointwise"),
        ("call_function", "operator.and_", "pointwise"),
        ("call_method", "sum", "reduction"),
        ("call_method", "transpose", "view"),
        ("call_function", "operator.getitem", "view"),
        ("call_method", "add_", "write"),
        ("call_function", "operator.setitem", "write"),
        ("call_function", "torch.ops._c10d_functional.all_reduce.default", "collective"),
        ("call_function", "torch.nonzero", "dependent"),
        ("call_method", "item", "dependent"),
        ("placeholder", "linear", "input"),
        ("call_function", "my.own.thing", "pointwise"),
    ],
)
def test_classes_of_operators(op, target, kind):
    assert operator_class(op, target) == kind


def test_the_name_of_an_operator_is_that_of_the_text():
    targets = ["torch.ops.aten.add.Tensor", "torch._C._nn.linear", "operator.add", "view"]
    assert [short_name(target) for target in targets] == ["add", "linear", "add", "view"]


def test_a_new_size_that_only_values_tell_is_data_dependent_where_it_arises():
    nodes = [
        node("x", op="placeholder"),
        node("a", "torch.own", ("x",), annotation="f32[u0, 4][4, 1]cpu"),
        node("b", "torch.sin", ("a",), annotation="f32[u0, 4][4, 1]cpu"),
    ]
    assert [row.kind for row in made(nodes).rows] == ["input", "dependent", "pointwise"]


def test_the_written_buffer_is_named_where_it_is_written():
    nodes = [
        node("l_b_", op="placeholder", target="L_b_", annotation="f32[64][1]cpu"),
        node("v", "view", ("l_b_",), op="call_method"),
        node("w", "mul_", ("v", "0.9"), op="call_method", annotation="f32[64][1]cpu"),
        node("i", "index_copy_", ("l_b_", "0"), op="call_method"),
        node("own", "torch.sin", ("x",)),
        node("mine", "add_", ("own",), op="call_method"),
    ]
    rows = {row.name: row for row in made(nodes, labels={"l_b_": "self.running_mean"}).rows}
    assert rows["mul_"].below == ("writes self.running_mean · 256 B",) and rows["mul_"].alarm
    assert rows["index_copy_"].below == ("writes self.running_mean",)  # how much it writes, nobody knows
    assert rows["add_"].kind == "write" and rows["add_"].below == ()


def test_a_write_that_only_the_probe_saw_is_named():
    nodes = [node("x", op="placeholder"), node("bn", "torch.batch_norm", ("x",))]
    (_, row) = made(nodes, writes={"bn": ["self.bn.running_mean", "self.bn.running_var"]}).rows
    assert (row.kind, row.below) == ("write", ("writes self.bn.running_mean, self.bn.running_var",))


def test_many_written_buffers_are_counted():
    nodes = [node(f"p{i}", op="placeholder") for i in range(42)]
    nodes += [node(f"w{i}", "add_", (f"p{i}",), op="call_method", annotation="f32[][]cpu") for i in range(42)]
    assert made(nodes).rows[-1].below == ("writes p0 and 41 more · 168 B",)


def test_edges_say_bytes_and_the_change_of_dtype_where_all_agree():
    nodes = [
        node("x", op="placeholder"),
        node("a", "torch.sin", ("x",)),
        node("b", "to", ("a",), op="call_method", annotation="bf16[4, 128][128, 1]cpu"),
        node("c", "torch.cos", ("b",), annotation="bf16[s0, 128][128, 1]cpu"),
        node("d", "torch.exp", ("c",), annotation=None),
    ]
    assert [link.label for link in made(nodes).links] == ["", "f32 → bf16 · 2 KiB", "1 KiB", ""]


@pytest.mark.parametrize(
    ("annotation", "text", "count"),
    [
        ("f32[4, 128][128, 1]cpu", "f32[4,128]", 2048),
        ("f32[][]cpu", "f32[]", 4),
        ("b8[3][1]cuda:0", "b8[3]", 3),
        ("bf16[0, 5][5, 1]", "bf16[0,5]", 0),
        ("c64[2]", "c64[2]", 16),
        ("f8e4m3fn[4]", "f8e4m3fn[4]", 4),
        ("f32[s0, 4][4, 1]cpu", "f32[s0,4]", None),
        ("Sym(s0)", None, None),
        ("i64[9999999999999999999999]", "i64[9999999999999999999999]", None),
        (None, None, None),
    ],
)
def test_tensors(annotation, text, count):
    found = tensor(annotation)
    assert (found.text if found else None, found.size if found else None) == (text, count)


def test_bytes_are_written_for_people():
    assert [bytes_text(count) for count in (0, 256, 1536, 2048, 12 << 20, 3 << 40)] == [
        "0 B",
        "256 B",
        "1.5 KiB",
        "2 KiB",
        "12 MiB",
        "3 TiB",
    ]


def test_many_inputs_are_one_box_and_parameters_none():
    nodes = [node(f"x{i}", op="placeholder") for i in range(INPUTS_AT_MOST + 1)]
    nodes += [node("l_self_modules_fc_parameters_weight_", op="placeholder"), node("primals_3", op="placeholder")]
    nodes += [node("y", "torch.own", tuple(one.name for one in nodes))]
    rows = made(nodes).rows
    assert [row.name for row in rows] == ["9 inputs", "own"]
    assert "uses x0, x1, x2, x3 and 7 more" in rows[1].tip


def test_the_break_that_ended_the_graph_stands_behind_its_outputs():
    picture = made(chain(3), ending=Row(kind="break", name="loss.backward()"))
    assert picture.rows[-1].name == "loss.backward()"
    assert [(link.tail, link.head) for link in picture.links if link.strong] == [(3, 4)]
    assert ("break", "graph break") in picture.legend
    alone = made([node("x", op="placeholder")], ending=Row(kind="break", name="b0"))
    assert names(alone) == ["b0"] and not alone.links


def test_a_graph_without_operators_is_a_picture_too():
    picture = made([])
    assert names(picture) == ["no calls: inputs and output only"]
    assert drawn(picture, "columns").text.startswith("<svg")


def test_what_a_reduction_keeps_is_in_colour_inside_the_grey_original():
    nodes = chain(60, ops=("torch.matmul", "torch.sin"))
    picture = made(nodes, kept={("a30", "torch.matmul"), ("a31", "torch.sin")})
    assert [row.kind for row in picture.rows] == ["gone", "gone", "kept", "kept", "gone"]  # an input, and a repeated block on either side
    assert ("kept", "kept") in picture.legend
    first = made(nodes, kept={("a0", "torch.matmul")})
    assert [row.kind for row in first.rows][:3] == ["kept", "kept", "gone"]
    assert "2 kept" in picture.summary[0] and ("gone", "removed") in picture.legend


def test_a_renamed_operator_is_not_taken_for_a_kept_one():
    assert "0 kept" in made(chain(3), kept={("a1", "torch.relu")}).summary[0]


@pytest.mark.parametrize(
    "picture", [made(chain(3)), made(layers(12)), made(chain(300)), made(chain(200, ops=[f"torch.op{i}" for i in range(200)]))]
)
def test_pictures_fit_and_their_text_is_readable(picture):
    text = drawn(picture, "columns").text
    width, _ = size(text)
    assert width <= 860
    assert text == drawn(picture, "columns").text
    sizes = [float(found) for found in re.findall(r"(\d+(?:\.\d+)?)px", text)]
    assert min(sizes) >= 9
    boxes = [element for element in ElementTree.fromstring(text).iter() if element.tag.endswith("rect")]
    assert all(float(one.get("x")) + float(one.get("width")) <= width for one in boxes)
    for one in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text"):
        if one.get("text-anchor") is None:
            assert float(one.get("x")) + 5.5 * len(one.text) <= width, one.text


def test_a_long_chain_wraps_into_two_columns_of_about_one_height():
    text = drawn(made(chain(70, ops=[f"torch.op{i}" for i in range(70)])), "columns").text
    width, height = size(text)
    assert width == 860 and height < 70 * 44 * 0.6


def test_the_picture_says_itself_to_a_screen_reader_and_follows_the_readers_ground():
    text = drawn(made(layers(3)), "columns").text
    root = ElementTree.fromstring(text)
    assert [child.tag.rpartition("}")[2] for child in root][:3] == ["title", "desc", "style"]
    assert root.get("role") == "img" and "linear, gelu" in root[1].text
    assert "prefers-color-scheme:dark" in root[2].text


def test_the_text_form_has_every_row_and_link():
    text = describe(made(layers(12)))
    assert "[layer.0 … 11 | ×12, 5 calls]" in text
    assert "  2 [matrix] linear | f32[4,128] -> 3" in text


HOSTILE = [
    '"}<script>x</script>',
    "</style><svg onload=alert(1)>",
    "&lt;b&gt;",
    "a\x00b\ufffe\u202e",
    "]]>",
    "url(http://evil.example)",
    "🙂" * 400,
]


@pytest.mark.parametrize("bad", HOSTILE)
def test_no_text_of_a_log_becomes_markup_or_style(bad):
    place = Location(bad, 3, bad, bad)
    nodes = [Node(name=bad, op="placeholder", target=bad, annotation=f"f32[{bad}]")]
    nodes += [
        Node(
            name=f"{bad}{i}",
            op="call_function",
            target=bad,
            args=(bad, f"{bad}{i - 1}"),
            annotation=bad,
            location=place,
            modules=(bad, f"{bad}.{i // 5}"),
        )
        for i in range(40)
    ]
    text = drawn(made(nodes, labels={bad: bad}, classes={bad: bad, f"{bad}.0": bad}, writes={f"{bad}3": [bad]}, summary=[]), "columns").text
    root = ElementTree.fromstring(text)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg",
        "title",
        "desc",
        "style",
        "g",
        "rect",
        "path",
        "polygon",
        "text",
    }
    assert not [
        name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name or name in ("id", "style")
    ]
    assert len(root.findall("{http://www.w3.org/2000/svg}style")) == 1 and "evil" not in root[2].text
    assert "\u202e" not in text and "\x00" not in text
    assert size(text)[0] <= 860


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 8), st.integers(0, 3), st.integers(0, 5)), max_size=300))
def test_no_graph_exceeds_the_limits_or_gets_a_backward_arrow(spec):
    ops = ("torch.relu", "torch.matmul", "operator.getitem", "torch.sum", "add_", "torch.layer_norm")
    nodes = [
        node(f"a{i}", ops[op], (f"a{back % (i + 1)}", f"a{i - 1}"), line=line or None, modules=("m", f"m.{module}", f"m.{module}.{op}"))
        for i, (back, line, module, op) in enumerate(spec)
    ]
    picture = made(nodes)
    assert len(picture.rows) <= ROWS_AT_MOST + INPUTS_AT_MOST
    assert all(link.tail < link.head for link in picture.links)
    assert size(drawn(picture, "columns").text)[0] <= 860


def test_a_graph_of_many_modules_without_repeats_is_cut_into_windows_named_by_their_modules():
    picture = made(chain(5000, ops=[f"torch.op{i * i % 997}" for i in range(997)], modules=lambda i: ("m", "m.l", f"m.l.{i // 3}")))
    assert 40 < len(picture.rows) <= ROWS_AT_MOST + 1
    assert (picture.rows[1].name, picture.rows[1].note) == ("l.0 … l.20", "63 calls")


def test_fifty_thousand_operators_are_a_picture_in_seconds():
    nodes = chain(50_000, ops=[f"torch.op{i * i % 1009}" for i in range(1009)], line=lambda i: i % 700)
    begun = time.process_time()
    text = drawn(made(nodes), "columns").text
    assert time.process_time() - begun < 20
    assert len(text) < 1 << 20
