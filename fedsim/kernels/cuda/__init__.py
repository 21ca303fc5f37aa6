"""The CUDA backend: the `.cu` files through CuPy.

Computed on the device: normals, choices of rows, Langevin and leapfrog steps on quadratic potentials, leapfrog steps on
logistic regression, QLSD's messages, and the gradients of problems with `gradients_by(kernels, theta, clients, rows)`,
which receives this module. Keys, the draws that select clients and the sums of replies are computed on the CPU.
Constant data and tables are copied to the device once, in the precision of the run.
"""

from fedsim.kernels.clock.devices import drop_phases, online_times, slowdowns
from fedsim.kernels.cuda.classification import network_gradient, softmax_gradient
from fedsim.kernels.cuda.device import require_device
from fedsim.kernels.cuda.draws import choice, choose_rows, integers, keys, keys_into, normal, uniform
from fedsim.kernels.cuda.langevin import langevin_quadratic
from fedsim.kernels.cuda.leapfrog import leapfrog_logistic, leapfrog_quadratic
from fedsim.kernels.cuda.qlsd import gaussian_messages, logistic_messages, wire_form
from fedsim.kernels.cuda.sums import gaussian_rows, gradients, linear_model, quadratic_full, segment_sum

name = "cuda"

__all__ = [
    "choice", "choose_rows", "drop_phases", "gaussian_messages", "gaussian_rows", "gradients", "integers", "keys",
    "keys_into", "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "linear_model", "logistic_messages",
    "name",
    "network_gradient", "normal", "online_times", "quadratic_full", "require_device", "segment_sum", "slowdowns",
    "softmax_gradient", "uniform", "wire_form",
]  # fmt: skip
