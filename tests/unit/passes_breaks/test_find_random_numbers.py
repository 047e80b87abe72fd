"""`np.random` in compiled code: torch draws the numbers, which the captured graph shows."""

import pytest

from dynadiag.passes.find_random_numbers import find_random_numbers
from dynadiag.trace import load

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f64[3][1]cpu"):
        l_x_ = L_x_

        # File: /home/me/proj/train.py:8 in f, code: noise = np.random.{name}(3)
        noise: "f64[3][1]cpu" = torch__dynamo_utils_wrapped_{name}(3)

        add: "f64[3][1]cpu" = l_x_ + noise;  l_x_ = noise = None
        return (add,)
"""


def logged(tmp_path, name):
    ids = '"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
    lines = [f'{{"dynamo_start": {{"stack": []}}, {ids}}}', f'{{"dynamo_output_graph": {{}}, {ids}, "has_payload": "0"}}']
    text = "\n".join(f"V1121 09:00:00.000000 77 torch/x.py:1] {line}" for line in lines)
    log = tmp_path / "dedicated_log_torch_trace_1.log"
    log.write_text(text + "".join(f"\n\t{row}" for row in GRAPH.format(name=name).splitlines()) + "\n")
    return load(log)


@pytest.mark.parametrize("name", ["rand", "randn", "normal", "choice", "shuffle", "randint"])
def test_a_line_that_draws_with_numpy_is_told(tmp_path, name):
    (finding,) = find_random_numbers(logged(tmp_path, name)).findings
    assert (finding.code, finding.where.line, finding.cost.value) == ("DF12", 8, 1.0)
    assert f"torch's own function takes the place of `np.random.{name}` at train.py:8" in finding.why


def test_other_functions_of_numpy_are_not_told(tmp_path):
    assert find_random_numbers(logged(tmp_path, "sqrt")).findings == ()


EFFECT = """Mutating object of type Random (source name: G['random'].{method}.__self__)

      File "/home/me/proj/train.py", line 40, in <module>
        learn(8)
      File "/home/me/proj/train.py", line 17, in learn
        {line}
"""


def changed(tmp_path, method, line):
    ids = '"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
    head = f'{{"artifact": {{"name": "dynamo_side_effects", "encoding": "string"}}, {ids}, "has_payload": "0"}}'
    text = "\n".join(f"V1121 09:00:00.000000 77 torch/x.py:1] {one}" for one in (f'{{"dynamo_start": {{"stack": []}}, {ids}}}', head))
    log = tmp_path / "dedicated_log_torch_trace_1.log"
    log.write_text(text + "".join(f"\n\t{row}" for row in EFFECT.format(method=method, line=line).splitlines()) + "\n")
    return find_random_numbers(load(log)).findings


@pytest.mark.parametrize(("method", "line"), [("sample", "batch = random.sample(data, n)"), ("shuffle", "random.shuffle(order)")])
def test_a_draw_of_pythons_that_each_call_repeats_is_told(tmp_path, method, line):
    """A replay buffer trained on one batch for ever; torch records that it changes the generator, and at which line."""
    (finding,) = changed(tmp_path, method, line)
    assert (finding.code, finding.where.line, finding.severity) == ("DF13", 17, "warning")
    assert f"`{method}` at train.py:17 was drawn once" in finding.why


@pytest.mark.parametrize("line", ["random.seed(3)", "rng.setstate(state)", "x = random.random()"])
def test_what_sets_the_generator_or_is_drawn_in_each_call_is_not_told(tmp_path, line):
    assert changed(tmp_path, "sample", line) == ()
