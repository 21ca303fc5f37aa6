"""Jobs on this process's own threads: the embedded default, no cluster and nothing to start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from fedsim import kernels
from fedsim.errors import one_of, whole
from fedsim.protocols import AlgorithmLike
from fedsim.runtime.jobs import Setting
from fedsim.runtime.worker import InlineSession, Worker


@dataclass(frozen=True)
class Inline:
    """Run jobs here, on `threads` threads (default: all cores), `chunk` jobs at a time (default: by number).

    Neither changes a bit of any result. `backend`: "auto" or "cpu" (Numba), "cuda" (CuPy), "numpy" (the slow
    reference).
    """

    threads: int | None = None
    chunk: int | None = None
    backend: str = "auto"

    def __post_init__(self) -> None:
        for name in ("threads", "chunk"):
            if getattr(self, name) is not None:
                object.__setattr__(
                    self,
                    name,
                    whole(f"Inline({name}={{}})", getattr(self, name), most=2**20 if name == "threads" else 2**40),
                )
        one_of("Inline(backend={!r})", self.backend, ("auto", "cpu", "cuda", "numpy"))

    def kernels(self) -> Any:
        """The backend module; asking for CUDA without a device fails here, before anything starts."""
        return kernels.backend(self.backend)

    def open(self, algorithm: AlgorithmLike, setting: Setting) -> InlineSession:
        """Threads and compiled kernels for one run."""
        return InlineSession(Worker(algorithm, setting), self.threads, self.chunk)

    def describe(self) -> str:
        threads = self.threads or os.cpu_count() or 1
        return f"inline {threads} thread{'s' * (threads > 1)}" + (f", {self.backend}" if self.backend != "auto" else "")
