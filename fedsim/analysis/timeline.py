"""Where virtual time went, read from a recorded timeline."""

from __future__ import annotations

from fedsim.results import Result


def shares(result: Result) -> dict[str, float] | None:
    """Of the time that clients whose reply was folded spent in their rounds: transfer, compute and wait.

    Waiting is from a reply's arrival to the close. None unless the run kept its timeline
    (`record=fs.Record(events=True)`) and some of it took time. For synchronous rounds.
    """
    if result.events is None:
        return None
    visit = ["replica", "round", "client"]
    steps = result.events[result.events["event"].isin(["download", "compute", "upload"])]
    times = steps.pivot_table(index=visit, columns="event", values="time_s", aggfunc="last").reset_index()
    if not {"download", "compute", "upload"} <= set(times.columns):
        return None
    times = times.dropna().merge(
        result.rounds[["replica", "round", "opened_s", "closed_s"]], on=["replica", "round"]
    )
    total = float((times["closed_s"] - times["opened_s"]).sum())
    if total <= 0:
        return None
    spans = {
        "wait": times["closed_s"] - times["upload"],
        "compute": times["compute"] - times["download"],
        "transfer": (times["download"] - times["opened_s"]) + (times["upload"] - times["compute"]),
    }
    return {name: float(span.sum()) / total for name, span in spans.items()}
