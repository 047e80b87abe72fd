"""Small models of transformers 4.52.4 with random weights, whose graph breaks stand in the library: `python hugging_face_models.py NAME`.

The named model is compiled (BACKEND, default aot_eager), called three times on fresh data, and a checksum a call is printed.
"""

import hashlib
import os
import sys

import torch
import transformers as hf

SMALL = {"vocab_size": 128, "d_model": 32}
PAIR = {
    **SMALL,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}


def words(length=8):
    """Token ids."""
    return torch.randint(3, 128, (1, length))


def t5():
    """An encoder and a decoder."""
    config = hf.T5Config(vocab_size=128, d_model=64, d_ff=128, num_layers=2, num_heads=2, d_kv=32)
    return hf.T5ForConditionalGeneration(config), lambda call: {"input_ids": words(), "decoder_input_ids": words()}


def bart():
    """An encoder and a decoder."""
    config = hf.BartConfig(**PAIR, max_position_embeddings=64)
    return hf.BartForConditionalGeneration(config), lambda call: {"input_ids": words()}


def biogpt():
    """A decoder."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    return hf.BioGptForCausalLM(hf.BioGptConfig(vocab_size=128, **sizes)), lambda call: {"input_ids": words()}


def blenderbot():
    """An encoder and a decoder."""
    config = hf.BlenderbotConfig(**PAIR, max_position_embeddings=64)
    return hf.BlenderbotForConditionalGeneration(config), lambda call: {"input_ids": words(), "decoder_input_ids": words()}


def marian():
    """An encoder and a decoder."""
    config = hf.MarianConfig(**PAIR, max_position_embeddings=64, pad_token_id=0, decoder_start_token_id=0)
    return hf.MarianMTModel(config), lambda call: {"input_ids": words(), "decoder_input_ids": words()}


def pegasus_causal():
    """A decoder."""
    config = hf.PegasusConfig(**PAIR, max_position_embeddings=64, is_decoder=True, is_encoder_decoder=False)
    return hf.PegasusForCausalLM(config), lambda call: {"input_ids": words()}


def whisper():
    """Speech to text."""
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = hf.WhisperConfig(**PAIR, num_mel_bins=16, max_source_positions=32, max_target_positions=32, **ids)
    model = hf.WhisperForConditionalGeneration(config)
    return model, lambda call: {"input_features": torch.randn(1, 16, 64), "decoder_input_ids": words()}


def layoutlmv3():
    """Words with their places on a page, and the page as a picture."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    page = {"input_size": 32, "patch_size": 16, "coordinate_size": 6, "shape_size": 4, "max_2d_position_embeddings": 1024}
    model = hf.LayoutLMv3ForTokenClassification(hf.LayoutLMv3Config(vocab_size=128, **sizes, **page))

    def inputs(call):
        corners = torch.randint(0, 500, (1, 8, 2))
        boxes = torch.cat([corners, corners + torch.randint(1, 400, (1, 8, 2))], dim=-1)
        return {"input_ids": words(), "bbox": boxes, "pixel_values": torch.randn(1, 3, 32, 32)}

    return model, inputs


def longformer():
    """Attention in windows, with one word that sees all."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 66}
    model = hf.LongformerModel(hf.LongformerConfig(vocab_size=128, attention_window=8, **sizes))

    def inputs(call):
        seen_by_all = torch.zeros(1, 16, dtype=torch.long)
        seen_by_all[0, 0] = 1
        ids = words(16)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "global_attention_mask": seen_by_all}

    return model, inputs


def clap():
    """Words and sound, some of it longer than the model takes at once (fusion)."""
    text = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    shape = {"hidden_size": 32, "patch_embeds_hidden_size": 16, "depths": [1, 1], "num_attention_heads": [1, 2], "num_hidden_layers": 2}
    sound = {**shape, "spec_size": 64, "num_mel_bins": 16, "window_size": 2, "patch_size": 4, "patch_stride": [4, 4], "enable_fusion": True}
    config = hf.ClapConfig(
        text_config={"vocab_size": 128, **text, "projection_dim": 16},
        audio_config={**sound, "projection_dim": 16, "fusion_num_hidden_layers": 2},
        projection_dim=16,
    )

    def inputs(call):
        longer = torch.tensor([[call % 2 == 0], [True]])
        return {"input_ids": words(), "input_features": torch.randn(2, 4, 256, 16), "is_longer": longer}

    return hf.ClapModel(config), inputs


def phi3_longrope():
    """A decoder whose third call is longer than the length at which its position embedding switches."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    lengths = {"max_position_embeddings": 64, "original_max_position_embeddings": 16}
    scaling = {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2.0] * 16}
    config = hf.Phi3Config(vocab_size=128, pad_token_id=0, **sizes, **lengths, rope_scaling=scaling)
    return hf.Phi3ForCausalLM(config), lambda call: {"input_ids": words(8 if call < 2 else 24)}


def grounding_dino():
    """Objects in a picture, by words."""
    stages = {"out_features": ["stage2", "stage3", "stage4"], "out_indices": [2, 3, 4]}
    sizes = {"window_size": 4, "image_size": 256, "embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2]}
    text = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = hf.GroundingDinoConfig(
        backbone_config=hf.SwinConfig(**sizes, **stages),
        text_config={**text, "vocab_size": 1100},
        **{**PAIR, "decoder_layers": 2, "vocab_size": 1100},
        num_queries=10,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
    )

    def inputs(call):
        ids = torch.randint(200, 1000, (1, 6))
        ids[0, 0], ids[0, -1], ids[0, 3] = 101, 102, 1012
        picture = {"pixel_values": torch.randn(1, 3, 256, 256), "pixel_mask": torch.ones(1, 256, 256, dtype=torch.long)}
        return {**picture, "input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return hf.GroundingDinoForObjectDetection(config), inputs


MODELS = (t5, whisper, bart, biogpt, blenderbot, marian, pegasus_causal, layoutlmv3, phi3_longrope, grounding_dino, longformer, clap)


def tensors(value):
    """All tensors in what a model gives."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors(one)


def run(build):
    """Three calls on fresh data."""
    torch.manual_seed(0)
    model, inputs = build()
    compiled = torch.compile(model.eval(), backend=os.environ.get("BACKEND", "aot_eager"))
    with torch.no_grad():
        for call in range(3):
            torch.manual_seed(call)
            digest = hashlib.sha256()
            for one in tensors(compiled(**inputs(call))):
                digest.update(one.detach().float().round(decimals=3).numpy().tobytes())
            print(call, digest.hexdigest()[:16])


if __name__ == "__main__":
    run({one.__name__: one for one in MODELS}[sys.argv[1]])
