"""The default backend: Numba on the CPU."""

import scipy.linalg.cython_blas  # noqa: F401  the BLAS of compiled kernels; loaded here, so that its threads can be limited

from fedsim.kernels.clock.devices import drop_phases, online_times, slowdowns
from fedsim.kernels.cpu.classification import network_gradient, softmax_gradient
from fedsim.kernels.cpu.draws import choice, choose_rows, integers, keys, keys_into, normal, uniform
from fedsim.kernels.cpu.langevin import langevin_quadratic
from fedsim.kernels.cpu.leapfrog import leapfrog_logistic, leapfrog_quadratic
from fedsim.kernels.cpu.qlsd import gaussian_messages, wire_form
from fedsim.kernels.cpu.qlsd_logistic import logistic_messages
from fedsim.kernels.cpu.sums import gaussian_rows, gradients, linear_model, quadratic_full, segment_sum

name = "cpu"

__all__ = [
    "choice", "choose_rows", "drop_phases", "gaussian_messages", "gaussian_rows", "gradients", "integers", "keys",
    "keys_into", "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "linear_model", "logistic_messages",
    "name",
    "network_gradient", "normal", "online_times", "quadratic_full", "segment_sum", "slowdowns", "softmax_gradient",
    "uniform", "wire_form",
]  # fmt: skip
