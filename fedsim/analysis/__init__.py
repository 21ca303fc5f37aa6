"""What results show: pictures, pages and where the time went. Reads what runs left behind, never the engine.

`figures` draws curves and bars on matplotlib axes; `timeline` has the visits, swim lanes and trace files of runs with
`record=fs.Record(events=True)`; `report` makes the HTML page, `summary` its lines.
"""

from fedsim.analysis import figures, report, summary, timeline

__all__ = ["figures", "report", "summary", "timeline"]
