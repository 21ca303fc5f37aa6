"""Where the virtual time of a run went: by phase, by cause of waste and by client.

    python analysis/timeline.py runs/demo --out timeline.png

The run needs record=fs.Record(events=True).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fedsim as fs
from fedsim.analysis import figures, gantt, timeline


def draw(folder: Path):
    """Return the shares of time, the waste by cause, the contributions of the clients, and the figure."""
    result = fs.load(folder)
    shares = timeline.shares(result) or {}
    wasted = timeline.waste(result).frame[["cause", "device_s", "share", "bits"]]
    clients = timeline.contributions(result)
    figure = figures.blank(11, 7)
    rounds, below = figure.subfigures(2, 1, height_ratios=(2, 1))
    gantt.draw_rounds(rounds.subplots(), result, result.replicas[0], rounds=6, most=20)
    phases, waste = below.subplots(1, 2)
    figures.stacked(phases, {"clients": shares}, "share of the clients' time")
    waste.barh(wasted["cause"], wasted["device_s"], color=[figures.PHASES[cause] for cause in wasted["cause"]])
    waste.set_xlabel("device-seconds wasted, per replica")
    figures.plain(waste)
    return shares, wasted, clients, figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a run")
    parser.add_argument("--out", type=Path, default=Path("timeline.png"))
    options = parser.parse_args()
    shares, wasted, clients, figure = draw(options.folder)
    figure.savefig(options.out, dpi=150)
    print(", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    print(wasted.to_string(index=False))
    print(clients.sort_values("received").to_string(index=False))
    print(f"figure  {options.out}")


if __name__ == "__main__":
    main()
