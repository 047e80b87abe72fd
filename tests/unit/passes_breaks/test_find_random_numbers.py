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
