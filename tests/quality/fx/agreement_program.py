"""Compiles models under one recording: `agreement_program.py RUN_DIRECTORY`."""

import contextlib
import io
import sys
import warnings

import torch
from torch.nn import functional

import dynadiag


def compiled(fn):
    return torch.compile(fn, backend="aot_eager")


def resnet_training():
    from torchvision.models.resnet import BasicBlock, ResNet

    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    forward, step = compiled(model), compiled(optimizer.step)
    for _ in range(2):
        optimizer.zero_grad()
        functional.cross_entropy(forward(torch.randn(2, 3, 32, 32)), torch.tensor([1, 2])).backward()
        step()


def bert_step():
    from transformers import BertConfig, BertForMaskedLM

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100}
    model = BertForMaskedLM(BertConfig(**small))
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 100, (2, 8))
    compiled(model)(input_ids=tokens, attention_mask=torch.ones(2, 8), labels=tokens).loss.backward()
    compiled(optimizer.step)()


@torch.no_grad()
def gpt2_generate():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=100, n_positions=64)).eval()
    model.forward = compiled(model.forward)
    model.generate(torch.randint(0, 100, (1, 4)), max_new_tokens=4, do_sample=False, pad_token_id=0)


@torch.no_grad()
def llama_static_cache():
    from transformers import LlamaConfig, LlamaForCausalLM

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100}
    model = LlamaForCausalLM(LlamaConfig(**small, max_position_embeddings=64)).eval()
    model.generation_config.cache_implementation = "static"
    model.forward = compiled(model.forward)
    model.generate(torch.randint(0, 100, (1, 4)), max_new_tokens=4, do_sample=False, pad_token_id=0)


def detection_training():
    """SSDLite on a MobileNet-v3 of four blocks, where torchvision's own has fifteen."""
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
    from torchvision.models.detection.ssd import SSD
    from torchvision.models.detection.ssdlite import SSDLiteFeatureExtractorMobileNet, SSDLiteHead
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    norm = torch.nn.BatchNorm2d
    blocks = [
        InvertedResidualConfig(16, 3, 16, 16, False, "RE", 1, 1, 1.0),
        InvertedResidualConfig(16, 3, 32, 24, True, "RE", 2, 1, 1.0),
        InvertedResidualConfig(24, 5, 48, 32, True, "HS", 2, 1, 1.0),
        InvertedResidualConfig(32, 5, 64, 32, True, "HS", 1, 1, 1.0),
    ]
    features = MobileNetV3(blocks, last_channel=64, norm_layer=norm).features
    backbone = SSDLiteFeatureExtractorMobileNet(features, 3, norm_layer=norm)
    anchors = DefaultBoxGenerator([[2, 3]] * 6, min_ratio=0.2, max_ratio=0.95)
    head = SSDLiteHead([48, 192, 512, 256, 256, 128], anchors.num_anchors_per_location(), 3, norm)
    model = SSD(backbone, anchors, (64, 64), 3, head=head).train()
    images = [torch.rand(3, 64, 64) for _ in range(2)]
    targets = [{"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": torch.tensor([1])} for _ in images]
    sum(compiled(model)(images, targets).values()).backward()


# One recording after the other: the reset before each makes its number among them the epoch of its frames.
MODELS = (resnet_training, bert_step, gpt2_generate, llama_static_cache, detection_training)


def main(directory):
    warnings.simplefilter("ignore")
    with dynadiag.observe(directory):
        for program in MODELS:
            torch._dynamo.reset()
            torch.set_grad_enabled(True)
            torch.manual_seed(0)
            with contextlib.redirect_stderr(io.StringIO()):
                program()


if __name__ == "__main__":
    main(sys.argv[1])
