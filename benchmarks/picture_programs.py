"""Compiles models of torchvision and transformers, so that their graphs are recorded: for `picture_layouts.py`.

dynadiag explain -o RUN benchmarks/picture_programs.py [small | large | held-out] [NAME ...]

`small` has random weights. `large` (graphs of 500 operators and more) and `held-out` are on the meta device: nothing is computed. No layout
was tuned on `held-out`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import torch
import torchvision
import transformers

VISION = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "googlenet", "squeezenet1_1", "vit_b_16", "swin_t", "densenet121")
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 99, "d_model": 64,
         "d_ff": 128, "num_layers": 2, "num_heads": 2, "n_embd": 64, "n_layer": 2, "n_head": 2, "encoder_layers": 2, "decoder_layers": 2,
         "num_key_value_heads": 2, "head_dim": 32, "d_kv": 32, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}  # fmt: skip
TEXT = ("BertModel", "GPT2Model", "T5EncoderModel", "LlamaModel", "MistralModel", "DistilBertModel", "AlbertModel", "GPTNeoXModel",
        "OPTModel", "ElectraModel", "Qwen2Model", "GemmaModel")  # fmt: skip

LARGE_VISION = ("resnet152", "densenet201", "efficientnet_v2_m", "convnext_large", "swin_b", "maxvit_t", "vit_h_14")
LARGE_TEXT = {"GPT2Model": 36, "BertModel": 24, "LlamaModel": 32, "T5Model": 8, "GPTNeoXModel": 20, "BartModel": 12, "DebertaV2Model": 12}
"""Models of transformers by how many layers they get."""

LARGE_TRAINED = ("resnet152", "swin_b", "BertModel", "BartModel")
HELD_OUT_VISION = ("inception_v3", "mnasnet1_3", "swin_v2_s", "shufflenet_v2_x2_0")
HELD_OUT_TEXT = {"Phi3Model": 16, "MPNetModel": 16, "PegasusModel": 6, "BloomModel": 12}
HELD_OUT_TRAINED = ("shufflenet_v2_x2_0", "Phi3Model")
Program = tuple[str, Callable[[], torch.nn.Module], tuple[torch.Tensor, ...], bool]


class Diamonds(torch.nn.Module):
    """Wide graphs: each step reads several of the ones before."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(width)) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of the last step."""
        parts = [x]
        for row in self.layers:
            parts = [torch.relu(layer(part + parts[0])) for layer, part in zip(row, parts * len(row), strict=False)]
        return torch.stack(parts).sum(0)


def small_programs() -> Iterator[Program]:
    """Name, what makes the model, inputs, and whether it is also trained."""
    for name in VISION:
        yield name, partial(vision_model, name, trained=False), (torch.randn(1, 3, 224, 224),), False
    for name in TEXT:
        yield name, partial(text_model, name, 2), (torch.randint(3, 90, (1, 8)),), name in ("BertModel", "GPT2Model", "LlamaModel")
    for width, depth in ((4, 2), (8, 3), (16, 2), (3, 8)):
        yield f"diamonds_{width}_{depth}", partial(Diamonds, width, depth), (torch.randn(2, 8),), True
    layer = partial(torch.nn.TransformerEncoderLayer, 32, 2, 64, batch_first=True)
    yield "transformer_encoder", lambda: torch.nn.TransformerEncoder(layer(), 2), (torch.randn(2, 5, 32),), True
    mlp = [layer for _ in range(6) for layer in (torch.nn.Linear(8, 8), torch.nn.GELU())]
    yield "mlp", lambda: torch.nn.Sequential(*mlp), (torch.randn(2, 8),), True


def meta_programs(vision: Iterable[str], text: Mapping[str, int], trained: Iterable[str]) -> Iterator[Program]:
    """The same of models on the meta device; those of `text` get so many layers."""
    for name in vision:
        size = 299 if name == "inception_v3" else 224
        yield name, partial(vision_model, name, trained=name in trained), (torch.empty(2, 3, size, size, device="meta"),), name in trained
    for name, layers in text.items():
        yield name, partial(text_model, name, layers), (torch.empty(1, 8, dtype=torch.int64, device="meta"),), name in trained


def vision_model(name: str, *, trained: bool) -> torch.nn.Module:
    """A model of torchvision."""
    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: torch.nn.Module = torchvision.models.get_model(name, weights=None, **more)
    return model.train(trained)


def text_model(name: str, layers: int) -> torch.nn.Module:
    """A narrow model of transformers with so many layers."""
    kind = getattr(transformers, name)
    known = kind.config_class()
    wanted = {key: layers if "layers" in key or key == "n_layer" else value for key, value in SIZES.items()}
    return kind(kind.config_class(**{key: value for key, value in wanted.items() if hasattr(known, key)})).eval()


def programs(chosen: str) -> Iterator[Program]:
    """The programs of one set."""
    if chosen == "large":
        return meta_programs(LARGE_VISION, LARGE_TEXT, LARGE_TRAINED)
    return meta_programs(HELD_OUT_VISION, HELD_OUT_TEXT, HELD_OUT_TRAINED) if chosen == "held-out" else small_programs()


def call(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], *, trained: bool) -> None:
    """Compile and call a model, backwards too where it is trained."""
    compiled = torch.compile(model, backend="aot_eager" if trained else "eager")
    needed = {"decoder_input_ids": inputs[0]} if getattr(getattr(model, "config", None), "is_encoder_decoder", False) else {}
    with torch.set_grad_enabled(trained):
        made = compiled(*inputs, **needed)
        made = made if isinstance(made, torch.Tensor) else next(iter(made.values()))
    if trained:
        made.sum().backward()


def main() -> None:
    """Compile and call each of them."""
    for name, make, inputs, trained in programs(sys.argv[1] if len(sys.argv) > 1 else "small"):
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        torch._dynamo.reset()
        try:
            with inputs[0].device:
                model = make()
            call(model, inputs, trained=trained)
        except Exception as error:  # noqa: BLE001 - a model that this version cannot make is left out of the table
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)


if __name__ == "__main__":
    main()
