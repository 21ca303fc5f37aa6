"""How fast `fs.problems.Torch` computes the clients' gradients, against a plain PyTorch loop over the clients.

    python -m analysis.bench.torch_loop

The same batches of 20 rows for both, float32, one core; an MLP of 64-32 hidden units over 100 clients and over 10,
LeNet-5 over 10. Timed in turn, best of several, so that a busy machine slows both sides of a ratio.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from analysis.bench.timing import best
from fedsim.problems import Torch
from fedsim.problems.torch.models import lenet5, mlp

ROWS, OWN, WARM, TRIES = 20, 60, 60, 25
GENERATOR = np.random.default_rng(0)


def plain(module: Any, x: Any, y: Any, theta: Any) -> Any:
    """A gradient after the other, by backpropagation through the module itself."""
    parameters = list(module.parameters())
    out = []
    for own_x, own_y, flat in zip(x, y, theta, strict=True):
        parts = flat.split([p.numel() for p in parameters])
        for p, part in zip(parameters, parts, strict=True):
            p.data = part.view(p.shape)
        loss = torch.nn.functional.cross_entropy(module(own_x), own_y, reduction="sum")
        out.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
    return torch.stack(out)


def main() -> None:
    torch.set_num_threads(1)
    for name, module, features, clients in (
        ("MLP 64-32", mlp(64), 64, 100), ("MLP 64-32", mlp(64), 64, 10), ("LeNet-5", lenet5(), 784, 10)
    ):  # fmt: skip
        x = GENERATOR.normal(size=(clients, OWN, features)).astype(np.float32)
        y = GENERATOR.integers(0, 10, (clients, OWN))
        problem = Torch(module, torch.nn.functional.cross_entropy, list(zip(x, y, strict=True)))
        theta = (problem.start + 0.01 * GENERATOR.normal(size=(clients, problem.dim))).astype(np.float32)
        rows = np.stack([GENERATOR.permutation(OWN)[:ROWS] for _ in range(clients)])
        who, drawn = np.arange(clients), (rows.ravel(), ROWS * np.arange(clients + 1))

        def loop(x: Any = x, y: Any = y, module: Any = module, rows: Any = rows, theta: Any = theta) -> Any:
            at = np.arange(len(x))[:, None]
            return plain(module, torch.tensor(x[at, rows]), torch.tensor(y[at, rows]), torch.tensor(theta))

        def ours(problem: Any = problem, theta: Any = theta, who: Any = who, drawn: Any = drawn) -> Any:
            return problem.gradients(theta, who, drawn)

        for _ in range(WARM):
            ours()  # so that what comes often is recorded
        gap = float(np.abs(ours() - loop().numpy()).max())
        fast, slow = (1e3 * seconds for seconds in best(ours, loop, rounds=TRIES))
        print(
            f"{name:10} {clients:4} clients   Torch {fast:7.2f} ms   plain loop {slow:7.2f} ms   "
            f"{slow / fast:5.2f}x   largest difference {gap:.1g}"
        )


if __name__ == "__main__":
    main()
