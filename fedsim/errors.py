"""Everything fedsim raises on purpose, in one tree.

    FedsimError                  the root: catch this to catch all of them
    ├── InvalidInput             the caller asked for something impossible; also a ValueError (exit code 2)
    │   └── NotRecorded          the run did not keep what is asked of it
    ├── NonFinite                the numbers left the real line: client, round and a step size to try
    ├── ClientFailed             an exception inside a client's code: client, round and seed
    ├── RuntimeFailed            the machinery that runs jobs gave up: processes, hosts, cluster
    └── CorruptData              bytes that are not what they claim to be: messages, files, checkpoints

A message is one sentence that says what is wrong, the value, and what would be right.
"""

from __future__ import annotations

from numbers import Real


def is_whole(value: object, least: int = 0) -> bool:
    """Whether a setting is a whole number of at least this: 3, NumPy's 3 or 3.0, but not True, "3", NaN or 1e300."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return bool(least <= value <= 2**64 and value == int(value))


class FedsimError(Exception):
    """The root of every error that fedsim raises on purpose."""


class InvalidInput(FedsimError, ValueError):
    """The caller asked for something impossible; the message carries the remedy."""


class NotRecorded(InvalidInput, LookupError):
    """The run did not keep what is asked of it; the message says what to set."""


class NonFinite(FedsimError, ArithmeticError):
    """A client or the server produced a NaN or an infinity."""


class ClientFailed(FedsimError, RuntimeError):
    """A client's own code raised; the cause is chained."""


class RuntimeFailed(FedsimError, RuntimeError):
    """The machinery that runs jobs (processes, hosts, a cluster) gave up."""


class CorruptData(FedsimError, ValueError):
    """Bytes that are not what they claim to be."""
