"""A small network, and each node's data."""

import torch
from torch import nn


class Net(nn.Module):
    """Two layers with batch normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def load(partition: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a node's examples."""
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(60, 10, generator=generator)
    return x, (x[:, :3] + 0.1 * torch.randn(60, 3, generator=generator)).argmax(dim=1)


def train(net: Net, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float) -> float:
    """Take minibatch steps; return the last loss."""
    net.train()
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=rate), torch.zeros(())
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return float(loss.detach())
