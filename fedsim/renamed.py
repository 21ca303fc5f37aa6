"""Public names of earlier versions and what replaces them, for errors that say which name to use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from fedsim.errors import InvalidInput

VERSION = "0.3.0"

# As in the section "Renamed" of CHANGELOG.md. A keyword of a function or class is written "fs.name(keyword=)".
RENAMED = {
    "fs.plan": "fs.tune",
    "fs.plan(vary=)": "fs.tune(grid=)",
    "fs.plan(spend=)": "fs.tune(minimize=)",
    "fs.plan(within=)": "fs.tune(limits=)",
    "fs.plan(say=)": "fs.tune(log=)",
    "fs.run(compute=)": "fs.run(timing_only=)",
    "fs.Scenario(reach=)": "fs.Scenario(broadcast_to=)",
    "fs.analysis.deadline": "fs.analysis.meets_deadline",
    "fs.analysis.u_curve(knob=)": "fs.analysis.u_curve(parameter=)",
    "fs.analysis.timeline.swimlanes": "fs.analysis.gantt.swimlanes",
    "fs.analysis.timeline.to_chrome": "fs.analysis.gantt.to_chrome",
    "fs.data.holdings": "fs.data.label_counts",
    "fs.data.picture": "fs.data.draw_label_counts",
    "fs.devices.Availability": "fs.protocols.devices.Availability",
    "fs.devices.Slowdown": "fs.protocols.devices.Slowdown",
    "fs.devices.NONE": "fedsim.rules.visits.NO_DROP",
    "fs.devices.BEFORE": "fedsim.rules.visits.BEFORE",
    "fs.devices.COMPUTE": "fedsim.rules.visits.IN_COMPUTE",
    "fs.devices.UPLOAD": "fedsim.rules.visits.IN_UPLOAD",
    "fs.devices.bimodal_slowdown(factor=)": "fs.devices.bimodal_slowdown(slow_factor=)",
    "fs.errors.shown": "fedsim.text.short_str",
    "fs.errors.quoted": "fedsim.text.short_repr",
    "fs.errors.whole": "fedsim.checks.check_int",
    "fs.errors.positive": "fedsim.checks.check_positive",
    "fs.errors.one_of": "fedsim.checks.check_choice",
    "fs.errors.number": "fedsim.checks.check_float",
    "fs.errors.flag": "fedsim.checks.check_bool",
    "fs.metrics.chains": "fs.metrics.diagnostics",
    "fs.metrics.Metric": "fs.protocols.Metric",
    "fs.metrics.MetricView": "fs.protocols.MetricView",
    "fs.metrics.Explained": "fs.protocols.Explained",
    "fs.metrics.OfTheta": "fs.protocols.OfTheta",
    "fs.metrics.Warns": "fs.protocols.Warns",
    "fs.network.Paths": "fedsim.network.routes.Paths",
    "fs.network.SKETCHED": "fedsim.network.drawing.MAX_SKETCH_LINKS",
    "fs.participation.Arrived": "fs.protocols.Received",
    "fs.participation.View": "fs.protocols.View",
    "fs.participation.buffered(replies=)": "fs.participation.buffered(k=)",
    "fs.participation.first(replies=)": "fs.participation.first(k=)",
    "fedsim.problems.torch_models": "fedsim.problems.torch.models",
    "fedsim.reproduce.pictures": "fedsim.reproduce.plots",
    "algorithm.kept": "algorithm.local_only",
    "algorithm.reach": "algorithm.broadcast_to",
    "network.stretch(upward)": "network.loss_factor(upward)",
    "view.everybody()": "view.online_clients()",
    "view.heard(ids)": "view.received(ids)",
    'view.last(ids, "heard_s")': 'view.last(ids, "received_s")',
    "--set participation.replies": "--set participation.k",
    "--set participation.size": "--set participation.of",
    "--set reach": "--set broadcast_to",
    "fedsim plan": "fedsim tune",
    "fedsim plan --vary": "fedsim tune --grid",
    "fedsim plan --spend": "fedsim tune --minimize",
    "fedsim plan --within": "fedsim tune --limit",
}

Made = TypeVar("Made", bound=Callable[..., Any])


def sentence(old: str) -> str | None:
    """Return the error for a removed name such as "fs.plan" or "fedsim plan", None for any other name."""
    new = RENAMED.get(old)
    return None if new is None else f"{old} was renamed in {VERSION}: use {new}"


def refuse_old_keywords(where: str) -> Callable[[Made], Made]:
    """Decorate a factory or class so that a removed keyword raises the error that names the new one."""

    def decorate(made: Made) -> Made:
        function: Any = made.__init__ if isinstance(made, type) else made  # type: ignore[misc]

        @wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for name in keywords:
                if text := sentence(f"{where}({name}=)"):
                    raise InvalidInput(text)
            return function(*arguments, **keywords)

        if not isinstance(made, type):
            return checked  # type: ignore[return-value]
        made.__init__ = checked  # type: ignore[misc]
        return made

    return decorate
