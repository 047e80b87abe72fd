"""Compiles models of torchvision and transformers, with random weights, so that their graphs are recorded: for `picture_layouts.py`.

dynadiag explain -o RUN benchmarks/picture_programs.py
"""

from __future__ import annotations

import sys

import torch
import torchvision
import transformers

VISION = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "googlenet", "squeezenet1_1", "vit_b_16", "swin_t", "densenet121")
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 99, "d_model": 64,
         "d_ff": 128, "num_layers": 2, "num_heads": 2, "n_embd": 64, "n_layer": 2, "n_head": 2, "encoder_layers": 2, "decoder_layers": 2,
         "num_key_value_heads": 2, "head_dim": 32, "d_kv": 32, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}  # fmt: skip
TEXT = ("BertModel", "GPT2Model", "T5EncoderModel", "LlamaModel", "MistralModel", "DistilBertModel", "AlbertModel", "GPTNeoXModel",
        "OPTModel", "ElectraModel", "Qwen2Model", "GemmaModel")  # fmt: skip


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


def programs() -> list[tuple[str, torch.nn.Module, tuple[torch.Tensor, ...], bool]]:
    """Name, model, inputs, and whether it is also trained."""
    made: list[tuple[str, torch.nn.Module, tuple[torch.Tensor, ...], bool]] = []
    for name in VISION:
        model = torchvision.models.get_model(name, weights=None, **({"init_weights": False} if name == "googlenet" else {}))
        made.append((name, model.eval(), (torch.randn(1, 3, 224, 224),), False))
    for name in TEXT:
        kind = getattr(transformers, name)
        known = kind.config_class()
        config = kind.config_class(**{key: value for key, value in SIZES.items() if hasattr(known, key)})
        made.append((name, kind(config).eval(), (torch.randint(3, 90, (1, 8)),), name in ("BertModel", "GPT2Model", "LlamaModel")))
    for width, depth in ((4, 2), (8, 3), (16, 2), (3, 8)):
        made.append((f"diamonds_{width}_{depth}", Diamonds(width, depth), (torch.randn(2, 8),), True))
    lstm = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2)
    made.append(("transformer_encoder", lstm, (torch.randn(2, 5, 32),), True))
    made.append(("mlp", torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(8, 8), torch.nn.GELU())]),
                 (torch.randn(2, 8),), True))  # fmt: skip
    return made


def main() -> None:
    """Compile and call each of them."""
    for name, model, inputs, trained in programs():
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="aot_eager" if trained else "eager")
        try:
            with torch.set_grad_enabled(trained):
                made = compiled(*inputs)
                made = made if isinstance(made, torch.Tensor) else next(iter(made.values()))
            if trained:
                made.sum().backward()
        except Exception as error:  # noqa: BLE001 - a model that this version cannot make is left out of the table
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)


if __name__ == "__main__":
    main()
