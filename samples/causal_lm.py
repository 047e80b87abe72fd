# dynadiag finds: 1 graph break site (3 events), 2 recompiles.
#   GB0291 at `loss = model(input_ids=tokens, labels=tokens).loss`, a warning that transformers logs once
#   recompile: GLOBAL_STATE changed: grad_mode
#   recompile: len(kwargs) == 6
"""Train a small GPT-2 on synthetic text, then generate from it with a static key-value cache."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make_batches(count, batch_size, length, vocab_size):
    """Sequences that count upwards modulo the vocabulary, each from its own start."""
    starts = torch.randint(0, vocab_size, (count, batch_size, 1))
    return (starts + torch.arange(length)) % vocab_size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=6)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=256, n_positions=128, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.forward = torch.compile(model.forward, backend=args.backend)

    model.train()
    for step, tokens in enumerate(make_batches(args.steps, args.batch_size, args.sequence_length, config.vocab_size)):
        tokens = tokens.to(args.device)
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")

    model.eval()
    prompt = torch.arange(10, 18, device=args.device).repeat(2, 1)
    generated = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=args.new_tokens,
        do_sample=False,
        cache_implementation="static",
        pad_token_id=0,
    )
    print("generated:", generated[0, prompt.shape[1] :].tolist())


if __name__ == "__main__":
    main()
