# dynadiag finds: 1 graph break site (3 events), 2 recompiles.
#   GB0170 at `if torch.isnan(loss):`
#   recompile: tensor 'tokens' size mismatch at index 1
#   recompile: tensor 'labels' size mismatch at index 0
"""Train a small Transformer text classifier on sentences of different lengths, each batch padded to its longest sentence."""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 2000
PAD = 0


class Sentences(Dataset):
    """Synthetic sentences of 8 to 40 tokens; class 1 if tokens of the upper half of the vocabulary are in the majority."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(8, 41, (size,), generator=generator)
        self.tokens = [torch.randint(1, VOCABULARY, (int(length),), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return tokens, int((tokens > VOCABULARY // 2).float().mean() > 0.5)


def collate(samples):
    tokens, labels = zip(*samples, strict=True)
    return pad_sequence(tokens, batch_first=True, padding_value=PAD), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, width=64, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(width, classes)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, tokens, labels=None):
        padding = tokens == PAD
        hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        logits = self.head((hidden * kept).sum(1) / kept.sum(1))
        if labels is None:
            return logits
        loss = self.loss(logits, labels)
        if torch.isnan(loss):
            raise RuntimeError("the loss is not a number")
        return logits, loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    train = DataLoader(Sentences(args.samples, seed=1), args.batch_size, shuffle=True, collate_fn=collate)
    model = Classifier().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = torch.compile(model, backend=args.backend)

    for epoch in range(args.epochs):
        right = total = 0
        for tokens, labels in train:
            tokens, labels = tokens.to(args.device), labels.to(args.device)
            logits, loss = compiled(tokens, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == labels).sum().item()
            total += len(labels)
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {right / total:.2f}")


if __name__ == "__main__":
    main()
