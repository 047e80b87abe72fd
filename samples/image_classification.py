# dynadiag finds: 0 graph break sites (0 events), 2 recompiles.
#   recompile: tensor 'x' size mismatch at index 0
#   recompile: GLOBAL_STATE changed: grad_mode
"""Train torchvision's ResNet-18 on synthetic images, with a validation pass after each epoch."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18


def make_data(size, classes, image_size, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (size,), generator=generator)
    images = torch.randn(size, 3, image_size, image_size, generator=generator)
    return TensorDataset(images + labels.view(-1, 1, 1, 1) / classes, labels)


def train_epoch(model, loader, optimizer, loss_function, device):
    model.train()
    running = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        running += loss.item() * len(labels)
    return running / len(loader.dataset)


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    right = 0
    for images, labels in loader:
        right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--samples", type=int, default=36)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    classes = 10
    train = DataLoader(make_data(args.samples, classes, args.image_size, seed=1), args.batch_size, shuffle=True)
    validation = DataLoader(make_data(args.samples // 2, classes, args.image_size, seed=2), args.batch_size)
    model = torch.compile(resnet18(num_classes=classes).to(args.device), backend=args.backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    for epoch in range(args.epochs):
        loss = train_epoch(model, train, optimizer, nn.CrossEntropyLoss(), args.device)
        accuracy = validate(model, validation, args.device)
        print(f"epoch {epoch}: loss {loss:.4f}, validation accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
