"""Recompiles that a library causes: what is said of them, and that the named cures do what they say (transformers)."""

import pytest

from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.trace import load
from tests.recorded_here import recorded_here

SCRIPT = """
import torch
from transformers import BertConfig, BertForSequenceClassification, DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

torch.manual_seed(0)
small = dict(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=32, vocab_size=50)
llama = LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **small)).eval()
results = {}


@torch.no_grad()
def generate(static):
    torch.manual_seed(1)
    torch._dynamo.reset()
    compiled = torch.compile(llama.forward, backend="eager")
    fixed = StaticCache(config=llama.config, max_cache_len=32)
    seen = []
    for prompt in (5, 9):
        fixed.reset()
        cache = fixed if static else DynamicCache(config=llama.config)
        ids = torch.randint(0, 50, (1, prompt))
        for _ in range(4):
            logits = compiled(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1]
            seen.append(logits)
            ids = logits.argmax(-1, keepdim=True)
    return torch.stack(seen)


def classify(known):
    torch.manual_seed(1)
    torch._dynamo.reset()
    bert = BertForSequenceClassification(BertConfig(**small)).eval()
    if known:
        bert.config.problem_type = "single_label_classification"
    compiled = torch.compile(bert, backend="eager")
    ids, labels = torch.ones(2, 7, dtype=torch.long), torch.tensor([0, 1])
    return torch.stack([compiled(input_ids=ids, labels=labels).loss.detach() for _ in range(3)])


assert torch.allclose(generate(False), generate(True), atol=1e-5)
assert torch.equal(classify(False), classify(True))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "use.py").write_text(SCRIPT)
    recorded_here(folder / "use.py", folder / "run")
    return load(folder / "run")


def test_the_named_cures_leave_fewer_recompiles(run):
    counts = {}
    for event in run.recompiles:
        epoch = run.frame(event.frame).key.epoch
        counts[epoch] = counts.get(epoch, 0) + 1
    assert [counts.get(epoch, 0) for epoch in sorted({frame.key.epoch for frame in run.frames})] == [3, 2, 1, 0]


def test_the_library_causes_are_named_and_nothing_of_its_own_is_to_be_edited(run):
    findings = find_recompiles(run).findings
    slugs = {advice.slug for finding in findings for advice in finding.fix}
    assert {"static-cache", "problem-type"} <= slugs
    assert slugs <= {"static-cache", "problem-type", "mark-dynamic"}
    edits = [advice.after for finding in findings for advice in finding.fix if advice.before]
    assert not any("cache" in edit and "layers" in edit for edit in edits)
