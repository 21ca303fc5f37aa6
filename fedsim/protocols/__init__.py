"""Contracts of the parts of a scenario, one file a role.

A class of your own needs no base class, only the members of its `...Like` protocol. The fuller protocol of a role
(`Algorithm`, `Problem`, `Policy`, ...) adds optional members with their defaults. `Scenario` wraps each part once, so
that the engine finds every member. Abilities of a few classes, such as an exact posterior, are small protocols that are
tested with `isinstance`.

    algorithms      AlgorithmLike, Job, Replies, Visitors, Rng; compiled clients and blocks of rounds
    problems        ProblemLike; Exact, Quadratic, Predicts, HasPotential, ...; potentials of any problem
    participation   PolicyLike, View, Received; the policy as columns
    devices         DevicesLike; the devices as columns
    network         NetworkLike; the routes as columns
    metrics         Metric, MetricView, Observer
    runtime         Codec, Backend, Session, Runtime
    answers         members of users' parts, called and checked in one place
    defaults        with_defaults and its forms for each role

`__all__` lists what the author of a part needs. `fs.testing.check(part)` runs the contract of a role on any object.
"""
# ruff: noqa: F401

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
from fedsim.protocols.answers import call, has, member
from fedsim.protocols.defaults import (
    WithDefaults,
    as_algorithm,
    as_devices,
    as_network,
    as_policy,
    as_problem,
    as_session,
    has_columns,
    is_sparse,
    members,
    missing,
    with_defaults,
)
from fedsim.protocols.devices import (
    AvailabilityColumns,
    AvailabilityLike,
    DeviceColumns,
    DeviceModel,
    DevicesLike,
    HasAvailability,
    HasDropouts,
    SlowdownColumns,
    SlowdownLike,
)
from fedsim.protocols.metrics import (
    Describes,
    Explained,
    KeepsLedger,
    Law,
    Metric,
    MetricView,
    Observer,
    ObserverOptions,
    OfTheta,
    Warns,
)
from fedsim.protocols.network import NetworkLike, NetworkModel, RouteColumns
from fedsim.protocols.participation import Policy, PolicyColumns, PolicyLike, Received, View
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
    Executable,
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
    "AlgorithmLike",
    "AvailabilityColumns",
    "AvailabilityLike",
    "Backend",
    "BatchSize",
    "Codec",
    "DeviceColumns",
    "DevicesLike",
    "Exact",
    "Executable",
    "HasLoss",
    "HasPotential",
    "HasShards",
    "Job",
    "Kernel",
    "Metric",
    "MetricView",
    "NetworkLike",
    "Observer",
    "PolicyColumns",
    "PolicyLike",
    "Predicts",
    "ProblemLike",
    "Quadratic",
    "Reacts",
    "Received",
    "Replies",
    "Rng",
    "RouteColumns",
    "Rows",
    "SlowdownColumns",
    "SlowdownLike",
    "View",
    "Visitors",
]
