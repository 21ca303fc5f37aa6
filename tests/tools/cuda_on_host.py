"""A stand-in for CuPy on NumPy: the CUDA source is built by the host's C++ compiler and run on the CPU.

It has the few names that `fedsim.kernels.cuda` uses and is stricter than CuPy: a kernel's arguments must be
arrays "on the device" or NumPy scalars, of exactly the types in its signature.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

SHIM = Path(__file__).with_name("cuda_on_host.h")
COMPILER = next((c for c in (os.environ.get("CXX"), "g++", "c++", "clang++") if c and shutil.which(c)), None)
BUILDS = tempfile.TemporaryDirectory(prefix="fedsim-cuda-")  # removed when the process ends
KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')


class OnDevice(np.ndarray):
    """Marks what was put on the device, so that handing a host array to a kernel fails."""


def asarray(array):
    return np.array(array, order="C").view(OnDevice)


def empty(shape, dtype):
    out = np.empty(shape, dtype)
    out.view(np.uint8).fill(0xFF)  # NaN or -1: whoever reads what nobody wrote will notice
    return out.view(OnDevice)


def asnumpy(array):
    assert isinstance(array, OnDevice)
    return np.array(array)


class RawModule:
    def __init__(self, code, options):
        bits = re.search(r"REAL_BITS=(\d+)", " ".join(options)).group(1)
        self.types = {
            "real": np.dtype(f"f{int(bits) // 8}"),
            "i64": np.dtype("i8"),
            "u32": np.dtype("u4"),
            "double": np.dtype("f8"),
            "int": np.dtype("i4"),
        }
        self.signatures = {name: parameters.split(",") for name, parameters in KERNEL.findall(code)}
        self.library = ctypes.CDLL(build(code, tuple(o for o in options if o.startswith("-D"))))

    def get_function(self, name):
        return lambda grid, block, arguments: self._launch(name, grid, block, arguments)

    def _launch(self, name, grid, block, arguments):
        assert len(grid) == len(block) == 1, "the kernels are written for one axis of threads"
        assert len(arguments) == len(self.signatures[name])
        held = [self._argument(name, p, a) for p, a in zip(self.signatures[name], arguments, strict=True)]
        pointers = (ctypes.c_void_p * len(held))(*(h.ctypes.data for h in held))
        getattr(self.library, f"launch_{name}")(ctypes.c_uint(grid[0]), ctypes.c_uint(block[0]), pointers)

    def _argument(self, kernel, parameter, argument):
        kind = self.types[re.sub(r"const |\*|\w+$", "", parameter.strip()).strip()]
        assert argument.dtype == kind, f"{kernel}({parameter.strip()}): got {argument.dtype}"
        if "*" not in parameter:
            assert isinstance(argument, np.generic), f"{kernel}({parameter.strip()}): got an array"
            return np.array(argument)
        assert isinstance(argument, OnDevice), f"{kernel}({parameter.strip()}): not on the device"
        assert argument.flags.c_contiguous
        return np.array(argument.ctypes.data, np.uintp)


@cache
def build(code, flags):
    """A shared library with one launcher per kernel."""
    folder = Path(tempfile.mkdtemp(dir=BUILDS.name))
    launchers = "\n".join(f"LAUNCHER({name})" for name, _ in KERNEL.findall(code))
    (folder / "host.cpp").write_text(f'#include "{SHIM}"\n#line 1 "kernels.cu"\n{code}\n{launchers}\n')
    command = [
        COMPILER,
        "-std=c++14",
        "-O2",
        "-ffp-contract=off",
        "-Wno-unknown-pragmas",
        "-shared",
        "-fPIC",
        *flags,
    ]
    subprocess.run(
        [*command, "-o", folder / "host.so", folder / "host.cpp"], check=True, capture_output=True, text=True
    )
    return folder / "host.so"


cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 1))
