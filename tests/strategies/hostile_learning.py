"""Data sets, partitioners, optimisers, rival samplers and comparisons with good arguments, for tests/strategies/hostile.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import fedsim as fs

X = np.arange(24.0).reshape(12, 2) % 7
BYTES = X.astype(np.uint8)
LABELS = np.arange(12) % 2
PARTS = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
FRAME = pd.DataFrame({"a": X[:, 0], "b": LABELS, "c": LABELS})


class Table:
    """As much of a Hugging Face data set as is asked for."""

    column_names = ("x", "y")

    def with_format(self, _kind: str) -> dict[str, Any]:
        return {"x": X, "y": LABELS}


def rows() -> list[tuple[str, Any, str, dict[str, Any]]]:
    """Name, what is called, the product's place in a scenario ("" for none), and good arguments."""
    a, d, p, m = fs.algorithms, fs.data, fs.problems, fs.metrics
    steps = {"step_size": 1e-3, "local_steps": 2, "batch_size": 2}
    inert = {"momentum": 0.5, "weight_decay": 0.1}
    goal = {"objective": "mean"}
    server = {"server_step": 0.1, "beta1": 0.9, "tau": 1e-3}
    brought = d.from_arrays(BYTES, LABELS, BYTES, LABELS)
    credit = d.from_arrays(np.tile(X, 5), LABELS)
    flat = {"x": BYTES, "y": LABELS, "offsets": [0, 4, 8, 12], "widths": (3,), "classes": 2, "scale": 0.1, "shift": 0.0}
    problem = p.LogisticRegression([(X[r], LABELS[r]) for r in map(np.array, PARTS)], 1.0, test=(X, LABELS))
    return [
        ("FedProx", a.FedProx, "algorithm", steps | inert | goal | {"proximal": 0.1}),
        ("FedNova", a.FedNova, "algorithm", steps | inert | goal | {"server_step": 1.0}),
        ("FedDyn", a.FedDyn, "algorithm", steps | goal | {"regularity": 0.1, "weight_decay": 0.1}),
        ("FedAdam", a.FedAdam, "algorithm", steps | inert | goal | server | {"beta2": 0.99}),
        ("FedYogi", a.FedYogi, "algorithm", steps | inert | goal | server | {"beta2": 0.99}),
        ("FedAdagrad", a.FedAdagrad, "algorithm", steps | inert | goal | server),
        ("FedBE", a.FedBE, "algorithm", steps | inert | {"members": 3, "law": "gauss", "concentration": 1.0}),
        ("DGSGLD", a.DGSGLD, "algorithm", steps | {"coupling": 0.1}),
        ("FSGLD", a.FSGLD, "algorithm", steps | {"means": None, "precisions": None, "temperature": 1.0}),
        ("PSGLD", a.PSGLD, "pooled", steps | {"decay": 0.9, "damping": 1e-3, "temperature": 1.0, "second_moment": None}),
        ("FedAvg with inertia", a.FedAvg, "algorithm", steps | inert | goal | {"server_step": 1.0}),
        ("NeuralNetwork.from_arrays", p.NeuralNetwork.from_arrays, "problem", flat | {"test": (BYTES, LABELS), "prior_precision": 0.5}),
        ("NeuralNetwork.of", p.NeuralNetwork.of, "problem", {"dataset": brought, "parts": PARTS, "widths": (3,), "prior_precision": 0.5}),
        ("SoftmaxRegression.of", p.SoftmaxRegression.of, "problem", {"dataset": brought, "parts": PARTS, "prior_precision": 0.5, "bias": True}),
        ("StrategicCredit.of", p.StrategicCredit.of, "performative", {"dataset": credit, "clients": 3, "sensitivities": None, "regularisation": 0.1, "seed": 0}),
        ("load data", d.load, "", {"name": "digits", "download": False}),
        ("from_arrays", d.from_arrays, "", {"x": X, "y": LABELS, "test_x": X, "test_y": LABELS, "classes": 2, "name": "mine", "scale": 1.0, "shift": 0.0}),
        ("from_huggingface", d.from_huggingface, "", {"dataset": Table(), "features": "x", "label": "y"}),
        ("from_frame", d.from_frame, "", {"frame": FRAME, "label": "c", "test": FRAME, "ids": "b", "name": "mine"}),
        ("Dataset", d.Dataset, "", {"x": X, "y": LABELS, "test_x": X, "test_y": LABELS, "classes": 2, "name": "mine", "scale": 1.0, "shift": 0.0, "shape": (2,), "ids": LABELS}),
        ("synthetic", d.synthetic, "", {"alpha": 0.5, "beta": 0.5, "clients": 2, "features": 3, "classes": 2, "seed": 1, "iid": False}),
        ("iid", d.iid, "", {"y": LABELS, "clients": 3, "seed": 1}),
        ("dirichlet", d.dirichlet, "", {"y": LABELS, "clients": 3, "alpha": 0.3, "seed": 1, "min_partition_size": 1, "self_balancing": False}),
        ("pathological", d.pathological, "", {"y": LABELS, "clients": 3, "classes_per_client": 1, "seed": 1, "class_assignment_mode": "random"}),
        ("shards", d.shards, "", {"y": LABELS, "clients": 3, "shards_per_client": 2, "seed": 1}),
        ("quantity", d.quantity, "", {"y": LABELS, "clients": 3, "sigma": 1.0, "seed": 1, "min_partition_size": 1}),
        ("dominant", d.dominant, "", {"y": LABELS, "clients": 3, "share": 0.4, "rest": 0.1, "seed": 1, "leftover": "deal"}),
        ("natural", d.natural, "", {"ids": LABELS}),
        ("label_counts", d.label_counts, "", {"y": LABELS, "shards": PARTS}),
        ("draw_label_counts", d.draw_label_counts, "", {"y": LABELS, "shards": PARTS}),
        ("calibration", m.calibration, "", {"bins": 5, "of": None, "name": "ece"}),
        ("confident", m.confident, "", {"of": None}),
        ("against", m.against, "", {"reference": np.full((12, 2), 0.5), "of": None}),
        ("entropies", m.entropies, "", {"outside": problem, "of": None}),
        ("hpd", m.hpd, "", {"reference": X, "alpha": 0.1}),
    ]  # fmt: skip
