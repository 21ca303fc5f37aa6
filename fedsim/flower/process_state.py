"""The state of this process that apps read and change: generators of random numbers, modules, the environment.

Flower apps draw from `random`, `numpy.random` and `torch`. They are seeded around every call, and have their earlier
state when it ends.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

import numpy as np


@contextmanager
def seeded(*key: int | str) -> Iterator[None]:
    """Seed all generators by a key; on leaving, they continue where they were."""
    words = np.frombuffer(blake2b(repr(key).encode(), digest_size=16).digest(), np.uint32)
    torch = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()
    random.seed(int(words[0]) << 32 | int(words[1]))
    np.random.seed(words)
    if torch is not None:
        torch.manual_seed(int(words[2]) << 31 | int(words[3]) >> 1)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None:
            torch.set_rng_state(before[2])


@contextmanager
def restored(folder: Path | None) -> Iterator[None]:
    """Let modules be imported from an app's folder; on leaving, they, the environment and the log are as before.

    Modules of that folder are imported again by every run, so that two apps with one package name do not mix.
    """
    environment, path, level = dict(os.environ), list(sys.path), logging.getLogger("flwr").level
    hidden = _modules_below(folder) if folder is not None else {}
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    logging.getLogger("flwr").setLevel(max(level, logging.WARNING))
    for name in hidden:
        del sys.modules[name]
    if folder is not None:
        sys.path.insert(0, str(folder))
    known = set(sys.modules)
    try:
        yield
    finally:
        if folder is not None:
            for name in set(sys.modules) - known:
                if is_below(folder, getattr(sys.modules[name], "__file__", None)):
                    del sys.modules[name]
        sys.modules.update(hidden)
        sys.path[:] = path
        logging.getLogger("flwr").setLevel(level)
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


def is_below(folder: Path, file: str | None) -> bool:
    return file is not None and Path(file).is_relative_to(folder)


def _modules_below(folder: Path) -> dict[str, ModuleType]:
    """Return the loaded modules that an import from `folder` would find under the same name."""
    own = {entry.stem for entry in folder.iterdir() if entry.is_dir() or entry.suffix == ".py"}
    installed = sys.prefix, sys.base_prefix
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in own and (file is None or not file.startswith(installed)):
            found[name] = module
    return found
