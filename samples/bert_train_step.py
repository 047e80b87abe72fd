# dynadiag finds: 3 graph break sites (4 events), 0 recompiles.
#   GB0008 at `optimizer.zero_grad()`
#   GB0123 at `loss.backward()`
#   GB0025 at `optimizer.step()`, inside torch.optim
# With --variant optimize_model: 0 graph break sites (0 events), 0 recompiles.
# With --variant dynamic: 3 graph break sites (5 events), 1 recompile.
#   recompile: tensor 'batch['input_ids']' size mismatch at index 1
"""BERT masked-language-model training with AdamW, compiled in one of the ways that people try.

    dynadiag explain samples/bert_train_step.py
    dynadiag explain samples/bert_train_step.py --variant dynamic --backend aot_eager

Weights are random (built from a config) and tokens synthetic, so nothing is downloaded.
Without `--full` the model is small enough for a CPU.
"""

import argparse
import contextlib

import torch
from transformers import BertConfig, BertForMaskedLM

MASK_TOKEN = 103
IGNORED_LABEL = -100
DYNAMIC_LENGTHS = (128, 96, 64, 112, 80)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--variant",
        choices=["base", "optimize_model", "optimize_forward", "train_step", "dynamic", "dynamic_optimized"],
        default="train_step",
        help="what is compiled: nothing, the model, the forward with its loss, the whole step; dynamic*: sequence lengths vary",
    )
    parser.add_argument("--batch-size", type=int, default=None, help="default: 4, with --full 32")
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--backend", default="inductor", help="a torch.compile backend: inductor, aot_eager, eager, ...")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--full", action="store_true", help="BERT-base: 12 layers of 768, 30,522 tokens")
    return parser.parse_args()


def build_model(full):
    if full:
        return BertForMaskedLM(BertConfig())
    return BertForMaskedLM(BertConfig(vocab_size=1024, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128))


def make_batch(batch_size, length, vocab_size, device):
    """Random tokens of which 15 % are masked and have to be predicted."""
    labels = torch.randint(MASK_TOKEN + 1, vocab_size, (batch_size, length))
    masked = torch.rand(labels.shape) < 0.15
    masked[:, 0] = True
    return {
        "input_ids": labels.masked_fill(masked, MASK_TOKEN).to(device),
        "attention_mask": torch.ones_like(labels).to(device),
        "labels": labels.masked_fill(~masked, IGNORED_LABEL).to(device),
    }


def main():
    args = parse_arguments()
    torch.manual_seed(0)
    if args.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.precision)
    batch_size = args.batch_size or (32 if args.full else 4)

    model = build_model(args.full).to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(args.device) if half is torch.float16 else None

    def autocast():
        return torch.autocast(args.device, dtype=half) if half else contextlib.nullcontext()

    def forward(batch):
        with autocast():
            return model(**batch).loss

    def train_step(batch):
        optimizer.zero_grad()
        loss = forward(batch)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return loss

    if args.variant == "optimize_model":
        model = torch.compile(model, backend=args.backend)
    elif args.variant == "optimize_forward":
        forward = torch.compile(forward, backend=args.backend)
    elif args.variant in ("train_step", "dynamic"):
        train_step = torch.compile(train_step, backend=args.backend)
    elif args.variant == "dynamic_optimized":
        model = torch.compile(model, backend=args.backend, dynamic=True)

    lengths = [args.sequence_length]
    if args.variant.startswith("dynamic"):
        lengths = [length for length in DYNAMIC_LENGTHS if length <= args.sequence_length] or lengths
    for step in range(args.steps):
        batch = make_batch(batch_size, lengths[step % len(lengths)], model.config.vocab_size, args.device)
        loss = train_step(batch)
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
