"""Everything fedsim raises on purpose, in one tree.

    FedsimError                  the root: catch this to catch all of them
    ├── InvalidInput             the caller asked for something impossible; also a ValueError (exit code 2)
    │   ├── NotRecorded          the run did not keep what is asked of it
    │   └── InUse                another process is at work in the folder
    ├── NonFinite                the numbers left the real line: client, round and a step size to try
    ├── ClientFailed             an exception inside a client's code: client, round and seed
    ├── RuntimeFailed            the machinery that runs jobs gave up: processes, hosts, cluster
    ├── Interrupted              asked to stop, and stopped between two rounds (exit code 130)
    └── CorruptData              bytes that are not what they claim to be: messages, files, checkpoints

    ResultWarning                a warning: a figure of a finished run says less than it seems

A message is one sentence that says what is wrong, the value, and what would be right.
"""

from __future__ import annotations


class FedsimError(Exception):
    """The root of every error that fedsim raises on purpose."""


class InvalidInput(FedsimError, ValueError):
    """The caller asked for something impossible; the message carries the remedy."""


class Interrupted(FedsimError):
    """Asked to stop: the round was finished and a checkpoint written, where the run has a folder."""


class NotRecorded(InvalidInput, LookupError):
    """The run did not keep what is asked of it; the message says what to set."""


class InUse(InvalidInput):
    """Another process is at work in the folder; the message says which."""


class NonFinite(FedsimError, ArithmeticError):
    """A client or the server produced a NaN or an infinity."""


class ResultWarning(UserWarning):
    """A figure of a finished run says less than it seems; also in the manifest, under `warnings`."""


class ClientFailed(FedsimError, RuntimeError):
    """A client's own code raised; the cause is chained."""


class RuntimeFailed(FedsimError, RuntimeError):
    """The machinery that runs jobs (processes, hosts, a cluster) gave up."""


class CorruptData(FedsimError, ValueError):
    """Bytes that are not what they claim to be."""
