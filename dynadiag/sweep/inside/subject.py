"""One subject of a sweep as a program: `python subject.py run {"suite": ..., "name": ...}` builds it, compiles it and calls it.

It runs in the interpreter of a task, by its path: Python 3.9 and torch are enough, dynadiag need not be installed. `python subject.py list
SUITE` prints what a suite has, as JSON. A subject that cannot be built here ends with exit status 77 and one line that says why.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import platform
import re
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

CANNOT = 77
"""The exit status of a subject that was skipped, as in Automake's tests."""
SUITES = {"torchvision": "torchvision", "transformers": "transformers", "timm": "timm"}
_SMALL = {
    "vocab_size": 256, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64, "num_hidden_layers": 2, "num_layers": 2,
    "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "num_heads": 4, "n_head": 4, "n_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "intermediate_size": 128, "d_ff": 128, "ffn_dim": 128, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "n_inner": 128, "d_kv": 16,
    "max_position_embeddings": 128, "n_positions": 128,
}  # fmt: skip
_MOST_PARAMETERS = 300_000_000
_TOKENS = 16
_CALLS = 3


class CannotBuildError(Exception):
    """The subject cannot be built here; the message says why."""


def main() -> None:
    """What the command line asks for."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")  # nothing is ever downloaded
    what, word = sys.argv[1], sys.argv[2]
    if what == "list":
        print(json.dumps({"names": names_of(word), "version": metadata.version(SUITES[word])}))
        return
    if what == "versions":
        print(json.dumps({"python": platform.python_version(), "torch": version_of("torch")}))
        return
    settings = json.loads(word)
    try:
        run(settings)
    except CannotBuildError as error:
        print(f"skipped: {error}", file=sys.stderr)
        sys.exit(CANNOT)


def version_of(package: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def names_of(suite: str) -> list[str]:
    """The models of a suite, families in turn, so that the first N are of as many families as there are."""
    if suite == "torchvision":
        names = importlib.import_module("torchvision.models").list_models()
    elif suite == "timm":
        names = importlib.import_module("timm").list_models()
    else:
        auto = importlib.import_module("transformers.models.auto.modeling_auto")
        names = list(auto.MODEL_MAPPING_NAMES)
    families: dict[str, list[str]] = {}
    for name in sorted(names):
        families.setdefault(re.split(r"[\d_-]", name)[0], []).append(name)
    longest = max(map(len, families.values()), default=0)
    return [members[turn] for turn in range(longest) for members in families.values() if turn < len(members)]


def run(settings: dict[str, Any]) -> None:
    """Build the subject, compile it as the arm says, and call it three times on fresh data."""
    import torch

    torch.manual_seed(0)
    vars(torch.hub)["load_state_dict_from_url"] = _refuse_download  # what all libraries call for weights
    suite, name, arm = settings["suite"], settings["name"], settings["arm"]
    if arm.get("device") == "cuda" and not torch.cuda.is_available():
        raise CannotBuildError("the arm asks for device cuda, and torch sees no CUDA device")
    if suite == "function":
        _run_function(name, arm, pathlib.Path(settings.get("folder") or "."), torch)
        return
    try:
        model, data = BUILDERS[suite](name, torch)
    except CannotBuildError:
        raise
    except Exception as error:
        raise CannotBuildError(f"{name} cannot be built from its configuration: {type(error).__name__}: {_line(error)}") from error
    device = arm.get("device") or "cpu"
    training = bool(arm.get("train"))
    model = model.to(device).train(training)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(arm.get("precision") or "")
    batches = [{key: _moved(value, device) for key, value in data(call).items()} for call in range(_CALLS)]
    _eager_first(name, model, batches[0], torch)
    step = compiled(model, arm, torch)
    for batch in batches:
        precision = torch.autocast(device, dtype=dtype) if dtype else contextlib.nullcontext()
        with precision, contextlib.nullcontext() if training else torch.no_grad():
            out = step(**batch)
        if training:
            loss = sum(item.float().sum() for item in tensors_of(out, torch) if item.requires_grad)
            loss.backward()


def _refuse_download(url: str, *_: Any, **__: Any) -> None:
    raise CannotBuildError(f"it needs a download ({url[:120]}), and a sweep downloads nothing")


def _eager_first(name: str, model: Any, batch: dict[str, Any], torch: Any) -> None:
    """A model that its library cannot call with these inputs says nothing about torch.compile."""
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            model(**batch)
    except Exception as error:
        raise CannotBuildError(f"{name} cannot be called in eager: {type(error).__name__}: {_line(error)}") from error
    torch.set_rng_state(state)


def _run_function(name: str, arm: dict[str, Any], folder: pathlib.Path, torch: Any) -> None:
    """`module:function` or `file.py:function` in the folder, as `dynadiag bench --fn` takes it: a step, or what makes one."""
    where, _, called = name.rpartition(":")
    sys.path.insert(0, str(folder.resolve()))
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(pathlib.Path(where).stem, folder / where)
        if spec is None or spec.loader is None:
            raise CannotBuildError(f"{where} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    made = getattr(module, called)()
    head, arguments = (made[0], made[1:]) if isinstance(made, tuple) and made and callable(made[0]) else (made, ())
    step = compiled(head if callable(head) else getattr(module, called), arm, torch)
    for _ in range(_CALLS):
        step(*arguments)


def compiled(function: Any, arm: dict[str, Any], torch: Any) -> Any:
    """The function as the arm compiles it; torch.compile takes one that is compiled already apart first (2.11 to 2.15)."""
    options = {key: arm[key] for key in ("backend", "mode", "dynamic") if arm.get(key) is not None}
    return torch.compile(function, **options)


def tensors_of(value: Any, torch: Any) -> list[Any]:
    """The floating-point tensors in what a model gives."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [item for part in inner for item in tensors_of(part, torch)]


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _moved(element, device) for key, element in value.items()}
    return value.to(device) if hasattr(value, "to") else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _torchvision(name: str, torch: Any) -> Any:
    models = importlib.import_module("torchvision.models")
    taken = inspect.signature(models.get_model_builder(name)).parameters
    model = models.get_model(name, weights=None, **({"weights_backbone": None} if "weights_backbone" in taken else {}))
    module = type(model).__module__
    size = 299 if "inception" in name else 224 if name.startswith(("vit", "maxvit")) else 96
    if ".detection" in module:
        return model.eval(), lambda call: {"images": [torch.rand(3, size + 32 * call, size) for _ in range(2)]}
    if ".optical_flow" in module:
        return model, lambda call: {"image1": torch.rand(1, 3, 128, 128), "image2": torch.rand(1, 3, 128, 128)}
    shape = (2, 3, 8, 112, 112) if ".video" in module else (2, 3, size, size)
    if name.startswith(("mvit", "swin3d")):
        shape = (1, 3, 16, 224, 224)
    key = "x" if "x" in _parameters(model) else "input"
    return model, lambda call: {key: torch.rand(shape)}


def _timm(name: str, torch: Any) -> Any:
    timm = importlib.import_module("timm")
    _refuse_large(name, lambda: timm.create_model(name, pretrained=False), torch)
    model = timm.create_model(name, pretrained=False)
    size = tuple((getattr(model, "pretrained_cfg", None) or {}).get("input_size") or (3, 224, 224))
    return model, lambda call: {"x": torch.rand((2, *size))}


def _transformers(name: str, torch: Any) -> Any:
    library = importlib.import_module("transformers")
    config = library.AutoConfig.for_model(name)
    for part in (config, *(getattr(config, sub, None) for sub in ("text_config", "vision_config", "encoder", "decoder"))):
        for key, value in _SMALL.items():
            if part is not None and type(getattr(part, key, None)) is int and getattr(part, key) > value:
                with contextlib.suppress(Exception):  # a configuration may forbid to set what follows from another value
                    setattr(part, key, value)
    for key in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        if type(getattr(config, key, None)) is int and getattr(config, key) >= _SMALL["vocab_size"]:
            setattr(config, key, 1)
    _refuse_large(name, lambda: library.AutoModel.from_config(config), torch)
    model = library.AutoModel.from_config(config)
    return model, _inputs_of(model, config, torch)


def _refuse_large(name: str, make: Callable[[], Any], torch: Any) -> None:
    """Count the parameters on the meta device, where they take no memory."""
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in make().parameters())
    if parameters > _MOST_PARAMETERS:
        raise CannotBuildError(f"{name} has {parameters:,} parameters; models of more than {_MOST_PARAMETERS:,} are left out")


def _inputs_of(model: Any, config: Any, torch: Any) -> Any:
    taken = _parameters(model)
    vocabulary = min(getattr(config, "vocab_size", None) or 256, 256)

    def data(call: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        ids = torch.randint(3, vocabulary, (2, _TOKENS))
        if "input_ids" in taken:
            made["input_ids"] = ids
            if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in taken:
                made["decoder_input_ids"] = ids
        if "pixel_values" in taken:
            vision = getattr(config, "vision_config", config)
            size = getattr(vision, "image_size", None) or 224
            height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
            made["pixel_values"] = torch.rand(2, getattr(vision, "num_channels", None) or 3, height, width)
        if not made and "input_values" in taken:
            made["input_values"] = torch.randn(2, 4000)
        if not made and "input_features" in taken:
            made["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 64))
            made["decoder_input_ids"] = ids
        if not made:
            raise CannotBuildError(f"{type(model).__name__} takes none of the inputs that are known here: {', '.join(sorted(taken))[:150]}")
        return made

    return data


def _parameters(model: Any) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


BUILDERS = {"torchvision": _torchvision, "timm": _timm, "transformers": _transformers}

if __name__ == "__main__":
    main()
