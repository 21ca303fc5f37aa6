"""Exceptions and the warning of fedsim.

    FedsimError                  base class of all exceptions below
    ├── InvalidInput             an impossible request; also a ValueError (exit code 2)
    │   ├── NotRecorded          the run did not record the requested data
    │   └── InUse                another process works in the folder
    ├── NonFinite                a run has diverged: client, round and a step size to try
    ├── ClientFailed             an exception in a client's code: client, round and seed
    ├── RuntimeFailed            processes, hosts or the cluster failed
    ├── Interrupted              stopped between two rounds on request (exit code 130)
    └── CorruptData              damaged messages, files or checkpoints

    ResultWarning                a warning about a figure of a finished run

A message is one sentence: what is wrong, the value, what to do.
"""

from __future__ import annotations


class FedsimError(Exception):
    """Base class of all exceptions that fedsim raises on purpose."""


class InvalidInput(FedsimError, ValueError):
    """The request is impossible; the message has the remedy."""


class Interrupted(FedsimError):
    """The run was stopped on request, after a finished round and a checkpoint if it has a folder."""


class NotRecorded(InvalidInput, LookupError):
    """The run did not record the requested data; the message names the setting that does."""


class InUse(InvalidInput):
    """Another process works in the folder; the message names it."""


class NonFinite(FedsimError, ArithmeticError):
    """A client or the server has computed a NaN or an infinity."""


class ResultWarning(UserWarning):
    """A warning about a figure of a finished run; also in the manifest, under `warnings`."""


class ClientFailed(FedsimError, RuntimeError):
    """A client's own code has raised; the cause is chained."""


class RuntimeFailed(FedsimError, RuntimeError):
    """Processes, hosts or the cluster that run jobs have failed."""


class CorruptData(FedsimError, ValueError):
    """Bytes are damaged or not of the expected format."""
