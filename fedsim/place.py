"""The folder of a run: free to take, holding checkpoints, or already whole."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import engine
from fedsim.errors import CorruptData, InvalidInput, shown
from fedsim.results import Result, load
from fedsim.results.atomic import check_writable, write_atomic
from fedsim.results.folder import complete, to_json

STARTED = "run.json"  # what is being run here, from the first moment on


def facts_of(folder: Path) -> tuple[dict[str, Any], bool]:
    """What a run's folder says about itself, and whether it is whole."""
    for name in ("manifest.json", STARTED):
        try:
            facts = json.loads((folder / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise CorruptData(f"{folder / name} is damaged ({shown(error)})") from None
        if not isinstance(facts, dict) or not isinstance(facts.get("source") or {}, dict):
            raise CorruptData(f"{folder / name} is damaged: it does not say what is run here")
        return facts, name == "manifest.json"
    raise InvalidInput(f"{folder} is no run's folder; pass one that fs.run(..., out=...) or fedsim wrote")


@dataclass(frozen=True)
class Place:
    """Where a run leaves its files; `keeper` writes its checkpoints, `whole` is the result that is there already."""

    folder: Path | None
    keeper: engine.Keeper
    kept: bool  # whether the folder exists while the run goes on
    note: str = ""
    whole: Result | None = None

    @classmethod
    def take(
        cls, out: str | Path | None, scenario: Any, compute: str, every: int | str | None, resume: bool,
        stop: threading.Event | None, source: dict[str, Any] | None,
    ) -> Place:  # fmt: skip
        """Claim `out`, or find what an earlier run left there."""
        if out is None:
            if every is not None or resume:
                raise InvalidInput("checkpoint_every= and resume= need a folder: add out=")
            return cls(None, engine.Keeper(None, "", None, stop), False)
        folder = Path(out).absolute()
        kept = every is not None or resume
        keeper = engine.Keeper(
            folder if kept else None, engine.identity(scenario, compute) if kept else "", every, stop
        )
        if folder.exists():
            if not resume:
                raise InvalidInput(f"{out} already exists; choose another --out, remove it, or resume it")
            if (folder / "manifest.json").exists():
                return cls(folder, keeper, True, whole=load(folder))
            if not (folder / STARTED).exists() and any(folder.iterdir()):
                raise InvalidInput(f"{out} is no run's folder; choose another --out")
            if (folder / STARTED).exists():
                return cls(folder, keeper, True, keeper.find())
        check_writable(folder)
        if kept:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / STARTED, to_json({"source": source or {}, "checkpoint_every": every}))
        return cls(folder, keeper, kept)

    def finish(self, result: Result) -> None:
        """Make the folder whole; checkpoints have served their purpose."""
        if self.folder is None:
            return
        if not self.kept:
            result.save(self.folder)
            return
        complete(result, self.folder)
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        (self.folder / STARTED).unlink(missing_ok=True)
