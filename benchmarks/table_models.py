"""The models of the tables, as steps for `dynadiag bench`: config-built random weights, synthetic data, nothing downloaded.

The wanted step is named by `DYNADIAG_TABLE`, as in "bert:train:tf32:16:optimize_model" or "resnet18:infer:fp32:32:default".
"""

from __future__ import annotations

import contextlib
import os

import torch

SEQUENCE = 128
MASK_TOKEN = 103
IMAGE_MODELS = (
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "alexnet",
    "mobilenet_v2",
    "mnasnet1_0",
    "squeezenet1_1",
    "vgg16",
    "vit_b_16",
)
LENGTHS = (128, 96, 64, 112, 80)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def wanted() -> tuple[str, str, str, int, str]:
    """Model, "train" or "infer", precision, batch size and variant."""
    model, kind, precision, batch, variant = os.environ["DYNADIAG_TABLE"].split(":")
    return model, kind, precision, int(batch), variant


def precision_setting(precision: str):
    """Sets TF32 and gives the autocast to use; fp16 autocast needs no loss scale here, since losses are of the order of 10."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    if precision == "fp16":
        return lambda: torch.autocast(DEVICE, dtype=torch.float16)
    return contextlib.nullcontext


def bert(batch_size: int, length: int):
    """BERT-base for masked language modelling without dropout, and a batch; DYNADIAG_TINY makes it small."""
    from transformers import BertConfig, BertForMaskedLM

    tiny = {"vocab_size": 512, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(**(tiny if os.environ.get("DYNADIAG_TINY") else {}), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForMaskedLM(config).to(DEVICE)
    return model, bert_batch(batch_size, length, config.vocab_size)


def bert_batch(batch_size: int, length: int, words: int):
    """Random tokens of which 15 % are masked and have to be predicted."""
    labels = torch.randint(MASK_TOKEN + 1, words, (batch_size, length))
    masked = torch.rand(labels.shape) < 0.15
    masked[:, 0] = True
    batch = {
        "input_ids": labels.masked_fill(masked, MASK_TOKEN),
        "attention_mask": torch.ones_like(labels),
        "labels": labels.masked_fill(~masked, -100),
    }
    return {name: value.to(DEVICE) for name, value in batch.items()}


def step():
    """The step that the environment names; the variant "x" is the one that all models have."""
    model_name, kind, precision, batch_size, variant = wanted()
    autocast = precision_setting(precision)
    torch.manual_seed(0)
    if model_name == "bert" and kind == "train" and variant != "x":
        return bert_training(batch_size, autocast, variant)
    model, inputs, loss_of = plain_model(model_name, batch_size)
    return training(model, inputs, loss_of, autocast) if kind == "train" else inference(model, inputs, autocast)


def bert_training(batch_size: int, autocast, variant: str):
    """The variants of the 2022 experiment, and the model compiled together with the optimizer."""
    model, batch = bert(batch_size, SEQUENCE)
    batches = [batch]
    if variant.startswith("dynamic"):
        batches = [bert_batch(batch_size, length, model.config.vocab_size) for length in LENGTHS]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=variant == "model_plus_optimizer" and DEVICE == "cuda")
    run_model, optimize = model, optimizer.step
    if variant in ("optimize_model", "reduce_overhead", "dynamic_optimized", "model_plus_optimizer"):
        options = {"reduce_overhead": {"mode": "reduce-overhead"}, "dynamic_optimized": {"dynamic": True}}.get(variant, {})
        run_model = torch.compile(model, **options)
    if variant == "model_plus_optimizer":
        optimize = torch.compile(optimizer.step)

    def forward(one):
        with autocast():
            return run_model(**one).loss

    run_forward = torch.compile(forward) if variant == "optimize_forward" else forward

    def train_step(one):
        optimizer.zero_grad()
        loss = run_forward(one)
        loss.backward()
        optimize()
        return loss

    run_step = torch.compile(train_step) if variant in ("train_step", "dynamic") else train_step

    def step():
        for one in batches:
            loss = run_step(one)
        return loss

    return step


def plain_model(name: str, batch_size: int):
    """A model with its inputs and how to get a loss from its output."""
    if name == "bert":
        model, batch = bert(batch_size, SEQUENCE)
        return model, batch, lambda output: output.loss
    import torchvision

    options = {"dropout": 0.0} if name in ("alexnet", "vgg16", "mobilenet_v2", "mnasnet1_0", "squeezenet1_1") else {}
    model = getattr(torchvision.models, name)(weights=None, **options).to(DEVICE)
    if name == "vit_b_16":  # its head starts at zero, and then every output is the same constant
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    images = torch.randn(batch_size, 3, 224, 224, device=DEVICE)
    labels = torch.randint(0, 1000, (batch_size,), device=DEVICE)
    return model, images, lambda output: torch.nn.functional.cross_entropy(output.float(), labels)


def call(model, inputs):
    """The model on its inputs, whichever form they have."""
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def inference(model, inputs, autocast):
    """The forward pass in eval mode without gradients."""
    model.eval()
    compiled = torch.compile(model)

    def step():
        with torch.no_grad(), autocast():
            return call(compiled, inputs)

    return step


def training(model, inputs, loss_of, autocast):
    """Forward, backward and SGD."""
    model.train()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with autocast():
            loss = loss_of(call(compiled, inputs))
        loss.backward()
        optimizer.step()
        return loss

    return step
