"""What every part of a scenario has to offer, one file a role. Nothing else in fedsim asks what an object can do.

A class of your own needs no base class. It needs the members of `...Like`; the role below it lists what it may have
besides, and what stands there is what counts for a class that has none. A `Scenario` completes its parts once, when it
is made (`as_algorithm` and its like, in `completing.py`), and from then on every member is there. What only some
objects can do (an exact answer, a prediction, privacy) is a small Protocol of its own, asked for with `isinstance`.

    algorithm.py   AlgorithmLike, Algorithm; what it sees: Job, Replies, Visitors
    problem.py     ProblemLike, Problem; Exact, Quadratic, Reacts, Predicts, ...
    potentials.py  the clients' potentials of any problem that has them
    policy.py      PolicyLike, Policy; what it sees: View, Received
    devices.py     DevicesLike, DeviceModel
    network.py     NetworkLike, NetworkModel
    rng.py         Rng, what policies, devices and servers draw from
    runtime.py     Codec, Backend, Session, Runtime
    watching.py    Metric, Observer

`fs.testing.check(part)` runs the contract of a role on any object.
"""

from __future__ import annotations

from fedsim.protocols.algorithms import (
    Algorithm,
    AlgorithmLike,
    BatchSize,
    BlockKernel,
    Job,
    JobOfKernel,
    Kernel,
    PrivacyGuarantee,
    PrivacyMechanism,
    Quantise,
    Replies,
    Rng,
    RoundKeys,
    RoundsToLearn,
    Visitors,
)
from fedsim.protocols.defaults import (
    WithDefaults,
    as_algorithm,
    as_devices,
    as_network,
    as_policy,
    as_problem,
    as_session,
    is_sparse,
    members,
    missing,
)
from fedsim.protocols.devices import ComesAndGoes, DeviceModel, DevicesLike, Drops, InColumns, InNumbers
from fedsim.protocols.metrics import Describes, KeepsLedger, Metric, Observer, Watching
from fedsim.protocols.network import NetworkLike, NetworkModel
from fedsim.protocols.participation import Policy, PolicyLike, Received, View
from fedsim.protocols.problems import (
    BatchedGradients,
    BatchedPotentials,
    Clips,
    Exact,
    HasLoss,
    HasPotential,
    HasShards,
    PortableGradients,
    Potentials,
    Predicts,
    Problem,
    ProblemLike,
    Quadratic,
    Reacts,
    Rows,
    Stable,
    check_potential,
    potentials_of,
    potentials_one_by_one,
    total_potential,
)
from fedsim.protocols.runtime import (
    Backend,
    Codec,
    FixedLength,
    GradientKernels,
    Runtime,
    Session,
    SessionLike,
    StepSizes,
    Terms,
    Wire,
)

__all__ = [
    "Algorithm",
    "AlgorithmLike",
    "Backend",
    "BatchSize",
    "BatchedGradients",
    "BatchedPotentials",
    "BlockKernel",
    "Clips",
    "Codec",
    "ComesAndGoes",
    "Describes",
    "DeviceModel",
    "DevicesLike",
    "Drops",
    "Exact",
    "FixedLength",
    "GradientKernels",
    "HasLoss",
    "HasPotential",
    "HasShards",
    "InColumns",
    "InNumbers",
    "Job",
    "JobOfKernel",
    "KeepsLedger",
    "Kernel",
    "Metric",
    "NetworkLike",
    "NetworkModel",
    "Observer",
    "Policy",
    "PolicyLike",
    "PortableGradients",
    "Potentials",
    "Predicts",
    "PrivacyGuarantee",
    "PrivacyMechanism",
    "Problem",
    "ProblemLike",
    "Quadratic",
    "Quantise",
    "Reacts",
    "Received",
    "Replies",
    "Rng",
    "RoundKeys",
    "RoundsToLearn",
    "Rows",
    "Runtime",
    "Session",
    "SessionLike",
    "Stable",
    "StepSizes",
    "Terms",
    "View",
    "Visitors",
    "Watching",
    "Wire",
    "WithDefaults",
    "as_algorithm",
    "as_devices",
    "as_network",
    "as_policy",
    "as_problem",
    "as_session",
    "check_potential",
    "is_sparse",
    "members",
    "missing",
    "potentials_of",
    "potentials_one_by_one",
    "whole_potential",
]  # fmt: skip
