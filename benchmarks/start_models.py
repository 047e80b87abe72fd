"""Unchanged models started twice with Inductor: `python benchmarks/start_models.py all FOLDER` says which causes `dynadiag start` names.

There is nothing to find: a cause that is named is false, unless the program really differs from start to start.
`python benchmarks/start_models.py NAME` is the program that is started.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 500}
HUGGING_FACE = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 500}),
    "bert": ("BertForMaskedLM", "BertConfig", SMALL),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "num_key_value_heads": 2}),
    "t5": ("T5EncoderModel", "T5Config", {"num_layers": 2, "d_model": 64, "num_heads": 4, "d_kv": 16, "d_ff": 128, "vocab_size": 500}),
    "vit": (
        "ViTForImageClassification",
        "ViTConfig",
        {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 32, "patch_size": 8},
    ),
}
VISION = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
TRAINED = ("gpt2", "resnet18")


def program(name: str) -> None:
    """Build the model from its configuration, compile it and call it; two of them are trained for a step."""
    import torch

    torch.manual_seed(0)
    image = torch.randn(2, 3, 32, 32) if name == "vit" else torch.randn(2, 3, 64, 64)
    if name in HUGGING_FACE:
        import transformers

        made, config, values = HUGGING_FACE[name]
        model = getattr(transformers, made)(getattr(transformers, config)(**values))
        given = {"pixel_values": image} if name == "vit" else {"input_ids": torch.randint(0, 500, (2, 16))}
    else:
        import torchvision

        model, given = getattr(torchvision.models, name)(), {"x": image}
    if name in TRAINED:
        results = torch.compile(model.train())(**given)
        (results if isinstance(results, torch.Tensor) else results[0]).float().square().mean().backward()
    else:
        with torch.no_grad():
            torch.compile(model.eval())(**given)
    print(name, "done")


def start_all(folder: Path) -> None:
    """Start each model twice and print what is said of the second start."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*HUGGING_FACE, *VISION):
        out = folder / name
        if not (out / "start.json").exists():
            command = [sys.executable, "-m", "dynadiag", "start", "--quiet", "--out", str(out), "--timeout", "1500", __file__, name]
            subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        try:
            found = json.loads((out / "start.json").read_text())
        except OSError:
            print(f"{name}: not compared", flush=True)
            continue
        causes = [f"{cause['kind']}: {cause['what']}" for item in found["compilations"] for cause in item["causes"]]
        times = f"{found['first_s']:.1f} s -> {found['second_s']:.1f} s"
        print(f"{name}: {found['missed']} of {len(found['compilations'])} not warm, {times}", *causes, sep="\n    ", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "all":
        start_all(Path(sys.argv[2]).absolute())
    else:
        program(sys.argv[1])
