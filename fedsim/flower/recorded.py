"""Answers of ClientApps in checkpoints: a resumed run calls the ServerApp again, and no ClientApp twice."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import numpy as np

from fedsim.arrays import Arrays
from fedsim.engine.checkpoint import Checkpointer
from fedsim.errors import Interrupted, InvalidInput
from fedsim.flower import flwr_names as flwr
from fedsim.flower.nodes import Call, NodeAnswer
from fedsim.flower.virtual_time import REAL


class Recorded:
    """What was answered before the run was resumed, and what a checkpoint still has to save."""

    def __init__(self, checkpoints: Checkpointer) -> None:
        self.checkpoints = checkpoints
        self._answers: dict[int, tuple[str, NodeAnswer]] = {}
        self._fresh: list[tuple[int, Call, NodeAnswer]] = []
        self._rows, self._wrote_s = 0, REAL["monotonic"]()
        if checkpoints.saved is not None:
            for segment in checkpoints.saved.segments:
                self._answers |= _read(segment)

    def has(self, number: int) -> bool:
        return number in self._answers

    def find(self, number: int, call: Call) -> NodeAnswer | None:
        """Return the recorded answer to a message; the ServerApp must have sent the same one."""
        if number not in self._answers:
            return None
        digest, answer = self._answers.pop(number)
        if digest != _digest(call):
            raise InvalidInput(
                f"the ServerApp sent another message {number} than before it was interrupted; it must not depend on "
                "real time, files or unseeded generators. Run it again without resume"
            )
        return answer

    def add(self, number: int, call: Call, answer: NodeAnswer) -> None:
        if self.checkpoints.files is not None:
            self._fresh.append((number, call, answer))

    def checkpoint(self, rows: int) -> None:
        """Checkpoint if it is due; raise Interrupted if the run was asked to stop."""
        points, stopping = self.checkpoints, self.checkpoints.stopping
        if points.files is not None and self._fresh:
            due = points.rounds is not None and rows >= self._rows + points.rounds
            due |= points.seconds is not None and REAL["monotonic"]() - self._wrote_s >= points.seconds
            if due or stopping:
                number = max(number for number, _, _ in self._fresh)
                points.files.save(number, {"rows": np.array(rows)}, _segment(self._fresh))
                self._fresh.clear()
                self._rows, self._wrote_s = rows, REAL["monotonic"]()
        if stopping:
            where = "" if points.files is None else f"; go on with: fedsim resume {points.files.folder.parent}"
            raise Interrupted(f"stopped in round {rows}{where}")


def _digest(call: Call) -> str:
    content = flwr.content_bytes(call.message.content) if call.message.has_content() else b""
    return sha256(f"{call.node_id} {call.message.metadata.message_type} ".encode() + content).hexdigest()


def _segment(answers: list[tuple[int, Call, NodeAnswer]]) -> Arrays:
    out: Arrays = {}
    for number, call, answer in answers:
        facts: dict[str, Any] = {
            "message": _digest(call), "error": answer.error, "slept_s": answer.slept_s, "counted": answer.counted,
            "failed": answer.failed,
        }  # fmt: skip
        parts = {"facts": json.dumps(facts).encode()}
        for name in ("content", "state"):
            if getattr(answer, name) is not None:
                parts[name] = flwr.content_bytes(getattr(answer, name))
        out |= {f"{number}.{name}": np.frombuffer(data, np.uint8) for name, data in parts.items()}
    return out


def _read(segment: Arrays) -> dict[int, tuple[str, NodeAnswer]]:
    found = {}
    for name in segment:
        number, _, part = name.partition(".")
        if part == "facts":
            facts = json.loads(segment[name].tobytes())
            digest, error = facts.pop("message"), facts.pop("error")
            contents = {
                part: flwr.content_from(segment[f"{number}.{part}"].tobytes())
                for part in ("content", "state")
                if f"{number}.{part}" in segment
            }
            answer = NodeAnswer(error=None if error is None else (int(error[0]), str(error[1])), **contents, **facts)
            found[int(number)] = digest, answer
    return found
