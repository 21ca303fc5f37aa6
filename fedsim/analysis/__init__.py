"""Answers, pictures and pages from results. This package reads results and never imports the engine.

Each question is a function of results, folders or studies that returns a tidy table and a matplotlib figure:

    frame, figure = fs.analysis.time_to("runs/metro", "accuracy", above=.83)

| question | functions |
|---|---|
| cost of a goal | `time_to`, `bits_to`, `at_budget`, `meets_deadline` |
| trade-offs between settings | `pareto`, `ess_rates` |
| stragglers and fairness | `waste`, `fairness` |
| effect of a parameter, or of a setting | `u_curve`, `compare` |

`figures` draws curves and bars on matplotlib axes. `timeline` has the visits of a run, `gantt` its Gantt charts and
trace files. `report` makes the HTML page, `summary` the lines after a run.
"""

from fedsim.analysis import figures, gantt, report, summary, timeline
from fedsim.analysis.effects import compare, u_curve
from fedsim.analysis.targets import at_budget, bits_to, meets_deadline, time_to
from fedsim.analysis.timeline import fairness, waste
from fedsim.analysis.tradeoffs import ess_rates, pareto

__all__ = [
    "at_budget",
    "bits_to",
    "compare",
    "ess_rates",
    "fairness",
    "figures",
    "gantt",
    "meets_deadline",
    "pareto",
    "report",
    "summary",
    "time_to",
    "timeline",
    "u_curve",
    "waste",
]
