"""The reference backend: every kernel in plain NumPy, short and slow. Tests hold the other backends to it."""

from fedsim.kernels.reference.draws import choice, choose_rows, integers, keys, keys_into, normal, uniform
from fedsim.kernels.reference.langevin import langevin_quadratic
from fedsim.kernels.reference.leapfrog import leapfrog_logistic, leapfrog_quadratic
from fedsim.kernels.reference.qlsd import gaussian_messages, logistic_messages, wire_form
from fedsim.kernels.reference.sums import gradients, segment_sum
from fedsim.rng.elementary import exp

name = "numpy"

__all__ = [
    "choice", "choose_rows", "exp", "gaussian_messages", "gradients", "integers", "keys", "keys_into",
    "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "logistic_messages", "name", "normal",
    "segment_sum", "uniform", "wire_form",
]  # fmt: skip
