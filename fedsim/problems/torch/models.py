"""Networks ready for `fs.problems.Torch`: an MLP, LeNet-5, and ResNet-20 with group norm. Rows come flat or as images.

Parameters depend on `seed` alone, not on the state of torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(features: int, widths: Sequence[int] = (64, 32), classes: int = 10, seed: int = 0) -> nn.Module:
    """Return linear layers with ReLU between them."""

    def build() -> nn.Module:
        sizes = [features, *widths]
        layers: list[nn.Module] = [nn.Flatten()]
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    return _seeded(build, seed)


def lenet5(shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10, seed: int = 0) -> nn.Module:
    """Return LeNet-5 (LeCun, Bottou, Bengio and Haffner 1998) with ReLU and max pooling: 61,706 parameters on 28 x 28.

    Images below 20 pixels are enlarged first by repeating pixels.
    """
    channels, height, width = shape
    times = max(1, math.ceil(20 / min(height, width)))
    tall, wide = (((size * times) // 2 - 4) // 2 for size in (height, width))
    return _seeded(
        lambda: nn.Sequential(
            Image(shape, times),
            nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(16 * tall * wide, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, classes),
        ),
        seed,
    )  # fmt: skip


def resnet20(shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10, groups: int = 8, seed: int = 0) -> nn.Module:
    """Return ResNet-20 for small images (He, Zhang, Ren and Sun 2016), with group norm: 269,722 parameters."""

    def build() -> nn.Module:
        layers: list[nn.Module] = [Image(shape), nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)]
        layers += [nn.GroupNorm(groups, 16), nn.ReLU()]
        wide = 16
        for width in (16, 32, 64):
            for _ in range(3):
                layers.append(Residual(wide, width, 1 if width == wide else 2, groups))
                wide = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))

    return _seeded(build, seed)


class Image(nn.Module):
    """Rows (n, pixels) as images (n, channels, height, width), every pixel `times` x `times`."""

    def __init__(self, shape: tuple[int, int, int], times: int = 1) -> None:
        super().__init__()
        self.shape, self.times = tuple(shape), times

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(x.shape[0], *self.shape)
        if self.times == 1:
            return x
        n, channels, height, width = x.shape
        x = x[:, :, :, None, :, None].expand(-1, -1, -1, self.times, -1, self.times)
        return x.reshape(n, channels, height * self.times, width * self.times)

    def extra_repr(self) -> str:
        return f"{self.shape}, times={self.times}"


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside a short cut, which skips pixels and adds empty channels (option A)."""

    def __init__(self, narrow: int, wide: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(groups, wide), nn.GroupNorm(groups, wide)])
        self.stride, self.extra = stride, wide - narrow

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        short = x[:, :, :: self.stride, :: self.stride]
        if self.extra:
            short = nn.functional.pad(short, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))
        return torch.relu(y + short)


def _seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
