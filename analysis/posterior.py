"""Samples of a run against the exact posterior, or against the samples of a reference run.

python analysis/posterior.py runs/fald scenarios/quickstart.py --out posterior.png
python analysis/posterior.py runs/fald runs/hmc --burn-in 100
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import fedsim as fs
from fedsim.analysis import figures
from fedsim.metrics import gaussian_w2
from fedsim.scenario_file import load_file


def draws(folder: Path, burn_in: int) -> np.ndarray:
    """Return the recorded samples after burn-in, all replicas together: (draws, d)."""
    samples = fs.load(folder).samples[burn_in:]
    return samples.reshape(-1, samples.shape[-1])


def compare(folder: Path, reference: Path, burn_in: int):
    """Return a table of means and standard deviations, their Wasserstein-2 distance (Gaussian), and the figure."""
    theta = draws(folder, burn_in)
    if reference.is_dir():
        other = draws(reference, burn_in)
        mean, covariance = other.mean(axis=0), np.cov(other, rowvar=False)
    else:
        settings = fs.load(folder).manifest["source"]["settings"]
        mean, covariance = load_file(reference).build(settings).problem.exact()
    own = theta.mean(axis=0), np.cov(theta, rowvar=False)
    table = pd.DataFrame(
        {
            "mean": own[0],
            "reference": mean,
            "sd": np.sqrt(np.diag(own[1])),
            "reference sd": np.sqrt(np.diag(covariance)),
        }
    )
    figure = figures.blank(6, 5)
    axes = figure.subplots()
    figures.cloud(axes, theta[:: max(1, len(theta) // 2000), :2], figures.COLOURS[0])
    figures.ellipse(axes, mean[:2], covariance[:2, :2], 0.95, figures.COLOURS[2])
    axes.set(xlabel="theta[0]", ylabel="theta[1]", title="samples and the 95 % ellipse of the reference")
    figures.plain(axes)
    return table, gaussian_w2(*own, mean, covariance), figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a run")
    parser.add_argument("reference", type=Path, help="scenario file with an exact posterior, or folder of a run")
    parser.add_argument("--burn-in", type=int, default=0, help="recorded rounds to drop")
    parser.add_argument("--out", type=Path, default=Path("posterior.png"))
    options = parser.parse_args()
    table, distance, figure = compare(options.folder, options.reference, options.burn_in)
    figure.savefig(options.out, dpi=150)
    print(table.to_string(float_format="{:.4g}".format))
    print(f"Wasserstein-2 distance of the Gaussian fits  {distance:.4g}\nfigure  {options.out}")


if __name__ == "__main__":
    main()
