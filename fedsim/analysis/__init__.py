"""What results show: answers, pictures, pages and where the time went. Reads what runs left behind, never the engine.

Every question is a function of results, folders or studies that gives a tidy table and a matplotlib figure:

    frame, figure = fs.analysis.time_to("runs/metro", "accuracy", above=.83)

`time_to`, `bits_to`, `at_budget`, `deadline`: what a goal costs. `pareto`: what is worth choosing. `ess_rates`: what
samples cost. `waste`, `fairness`: stragglers, and who is heard. `u_curve`: the best value of a knob. `compare`: two
settings, seed by seed. `figures` draws curves and bars on matplotlib axes; `timeline` has the visits, swim lanes and
trace files of runs with `record=fs.Record(events=True)`; `report` makes the HTML page, `summary` its lines.
"""

from fedsim.analysis import figures, report, summary, timeline
from fedsim.analysis.clients import fairness, waste
from fedsim.analysis.effects import compare, u_curve
from fedsim.analysis.targets import at_budget, bits_to, deadline, time_to
from fedsim.analysis.tradeoffs import ess_rates, pareto

__all__ = [
    "at_budget",
    "bits_to",
    "compare",
    "deadline",
    "ess_rates",
    "fairness",
    "figures",
    "pareto",
    "report",
    "summary",
    "time_to",
    "timeline",
    "u_curve",
    "waste",
]
