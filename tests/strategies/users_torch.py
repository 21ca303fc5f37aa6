"""Torch problems with one wrong argument: a module, a loss, data, labels or `test=`, for tests/problems/test_torch_users.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

X = np.random.default_rng(1).normal(size=(12, 3))
Y = np.arange(12) % 2


class Mistake(Exception):
    pass


class Module(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.layer, self._answer = nn.Linear(3, 2), answer

    def forward(self, x):
        return self._answer(self.layer(x))


class Later:
    """Gives the right answer a number of times."""

    def __init__(self, right, wrong, after):
        self.right, self.wrong, self.left = right, wrong, after

    def __deepcopy__(self, memo):
        return self

    def __call__(self, *arguments):
        self.left -= 1
        return (self.right if self.left >= 0 else self.wrong)(*arguments)


def fail(*_):
    raise Mistake("the mistake")


def leave(*_):
    raise SystemExit("the mistake")


OUTPUTS: dict[str, Any] = {
    "raises": fail,
    "exits": leave,
    "nothing": lambda out: None,
    "a tuple": lambda out: (out, out),
    "a text": lambda out: "far",
    "an array": lambda out: out.detach().numpy(),
    "a number": lambda out: 1.0,
    "one number": lambda out: out.sum(),
    "complex": lambda out: out * 1j,
    "integers": lambda out: (out * 10).long(),
    "no axis of classes": lambda out: out[:, 0],
    "another axis": lambda out: out[:, None, :, None],
    "half": lambda out: out.half(),
    "no rows": lambda out: out[:0],
    "NaN": lambda out: out * float("nan"),
    "a dict": lambda out: {"logits": out},
    "a generator": lambda out: (o for o in out),
    "transposed": lambda out: out.T,
    "one class": lambda out: out[:, :1],
}
LOSSES: dict[str, Any] = {
    "raises": fail,
    "exits": leave,
    "nothing": lambda o, y: None,
    "a text": lambda o, y: "far",
    "a number": lambda o, y: 1.0,
    "an array": lambda o, y: np.zeros(3),
    "complex": lambda o, y: functional.cross_entropy(o, y) * 1j,
    "a loss for each row": lambda o, y: functional.cross_entropy(o, y, reduction="none"),
    "a matrix": lambda o, y: o,
    "NaN": lambda o, y: functional.cross_entropy(o, y) * float("nan"),
    "a tuple": lambda o, y: (functional.cross_entropy(o, y), 1),
    "empty": lambda o, y: o[:0].sum(dim=1),
    "an integer": lambda o, y: y.sum(),
    "a class": nn.CrossEntropyLoss,
    "too few arguments": lambda o: o.sum(),
    "huge": lambda o, y: functional.cross_entropy(o, y) * 1e300 * 1e300,
    "negative": lambda o, y: -functional.cross_entropy(o, y),
}
LABELS: dict[str, Any] = {
    "text": np.array(["a", "b"] * 6),
    "objects": np.array([object()] * 12, object),
    "negative": Y - 5,
    "too large": Y + 7,
    "floats": Y + 0.5,
    "NaN": np.full(12, np.nan),
    "complex": Y * 1j,
    "a matrix": np.zeros((12, 3)),
    "a scalar": np.array(1),
    "too few": Y[:5],
    "None": None,
    "dates": np.array(["2020-01-01"] * 12, "datetime64[D]"),
    "beyond 64 bits": np.array([10**30] * 12, object),
    "ragged": [[1], [1, 2]] * 6,
    "bool": Y > 0,
    "a generator": (y for y in Y),
    "a dict": {"y": Y},
    "a set": {1, 2},
}
ROWS: dict[str, Any] = {
    "text": np.array([["a"] * 3] * 12),
    "flat": X[:, 0],
    "complex": X * 1j,
    "NaN": X * np.nan,
    "no rows": X[:0],
    "None": None,
    "wider": np.ones((12, 5)),
    "ragged": [[1.0], [1.0, 2.0]] * 6,
    "objects": np.array([[object()] * 3] * 12, object),
    "a generator": (x for x in X),
    "a number": 3.0,
    "infinite": X * np.inf,
    "a dict": {"x": X},
}
TESTS: dict[str, Any] = {
    "nothing in it": (),
    "one part": (X,),
    "three parts": (X, Y, Y),
    "a number": 3,
    "text": "rows",
    "an array": X,
    "a dict": {"x": X, "y": Y},
    "a generator": (part for part in (X, Y)),
    "an object": object(),
}
CASES = (
    *(("module", name) for name in OUTPUTS), *(("later module", name) for name in OUTPUTS),
    *(("loss", name) for name in LOSSES), *(("later loss", name) for name in LOSSES),
    *(("labels", name) for name in LABELS), *(("rows", name) for name in ROWS),
    *(("test labels", name) for name in LABELS), *(("test rows", name) for name in ROWS), *(("test", name) for name in TESTS),
)  # fmt: skip
ODD_MODULES = {
    "None": None, "a class": nn.Linear, "a function": fail, "empty": nn.Sequential(), "a tensor": torch.zeros(3),
}  # fmt: skip


def arguments(what: str, name: str, after: int = 12) -> dict[str, Any]:
    """The arguments of fs.problems.Torch."""
    torch.manual_seed(1)
    module, loss, x, y, test = Module(lambda out: out), functional.cross_entropy, X, Y, (X, Y)
    if what == "module":
        module = Module(OUTPUTS[name])
    elif what == "later module":
        module = Module(Later(lambda out: out, OUTPUTS[name], after))
    elif what == "loss":
        loss = LOSSES[name]
    elif what == "later loss":
        loss = Later(loss, LOSSES[name], after)
    elif what == "labels":
        y = LABELS[name]
    elif what == "rows":
        x = ROWS[name]
    elif what == "test labels":
        test = (X, LABELS[name])
    elif what == "test rows":
        test = (ROWS[name], Y)
    elif what == "test":
        test = TESTS[name]
    return {"module": module, "loss": loss, "data": [(x, y), (X, Y)], "test": test}
