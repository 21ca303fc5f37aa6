"""Time the kernels against NumPy: `python -m analysis.bench.kernels`.

Both sides of a ratio are timed in alternation, best of several, so that a slow or busy machine slows both.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from analysis.bench.timing import best
from fedsim import problems, rng
from fedsim.kernels import cpu, reference
from fedsim.kernels.cpu import draws
from fedsim.kernels.cpu.lanes import fill_blocks_32

ROUNDS = 40


def normals() -> None:
    """Compare normals. Kernels draw noise block by block into a buffer in the cache; NumPy returns an array."""
    rows, lanes, blocks = 512, 64, 8
    key = rng.keys(1, rng.Stream.NOISE, client=np.arange(rows))
    transposed = np.ascontiguousarray(key.T)
    generator, buffer = np.random.default_rng(1), np.empty((lanes, rows), np.float32)
    words = np.empty((8, rows), np.uint32)

    def kernel() -> None:
        for b in range(blocks):
            fill_blocks_32(words, b * lanes // 4, transposed, buffer)

    def numpy_in_cache() -> None:
        for _ in range(blocks):
            generator.standard_normal(out=buffer, dtype=np.float32)

    n = rows * lanes * blocks
    kernel_ns, numpys, cached, public, doubles, numpys64 = (
        t / n * 1e9
        for t in best(
            kernel,
            lambda: generator.standard_normal((blocks * lanes, rows), dtype=np.float32),
            numpy_in_cache,
            lambda: draws.normal(key, blocks * lanes, 0, np.float32),
            lambda: draws.normal(key, blocks * lanes, 0, np.float64),
            lambda: generator.standard_normal((blocks * lanes, rows)),
            rounds=ROUNDS,
        )
    )
    print(
        f"normals float32   kernel {kernel_ns:5.2f} ns   numpy {numpys:5.2f} ns   {numpys / kernel_ns:5.1f} x  (at least 6)"
    )
    print(f"        in cache         {'':5}      numpy {cached:5.2f} ns   {cached / kernel_ns:5.1f} x")
    print(f"        as rows   draws  {public:5.2f} ns                  {numpys / public:5.1f} x")
    print(f"        float64   draws  {doubles:5.2f} ns   numpy {numpys64:5.2f} ns   {numpys64 / doubles:5.1f} x")


def fald(dtype: type) -> None:
    """Compare FA-LD's local steps with batched NumPy, with two threads and with the reference."""
    clients, replicas, d, steps = 50, 300, 2, 100
    generator = np.random.default_rng(0)
    root = generator.normal(size=(clients, d, d))
    hessian = (root @ root.transpose(0, 2, 1) + np.eye(d)).astype(dtype)
    linear = generator.normal(size=(clients, d)).astype(dtype)
    client, replica = np.tile(np.arange(clients), replicas), np.repeat(np.arange(replicas), clients)
    private = rng.keys(1, rng.Stream.NOISE, client=client, replica=replica)
    shared = rng.keys(1, rng.Stream.SHARED, replica=replica)
    theta, scale, eta = np.zeros((len(client), d), dtype), np.ones(len(client), dtype), np.full(steps, 1e-4, dtype)
    amplitude, zero = np.sqrt(2 * eta), dtype(0)

    def kernel(part: slice = slice(None)) -> np.ndarray:
        out = theta[part].copy()
        cpu.langevin_quadratic(d)(
            out, hessian, linear, client[part], private[part], shared[part], scale[part], zero, eta, amplitude
        )
        return out

    def threads() -> None:
        pieces = [slice(i, i + 1875) for i in range(0, len(client), 1875)]
        list(pool.map(kernel, pieces))

    def batched_numpy(few: int = 10) -> None:
        x = theta.reshape(replicas, clients, d)
        for _ in range(few):
            gradient = (hessian @ x[..., None])[..., 0] - linear
            x = x - dtype(1e-4) * gradient + dtype(0.014) * generator.standard_normal(x.shape, dtype=dtype)

    def numpy_reference(few: int = 2) -> None:
        reference.langevin_quadratic(d)(
            theta.copy(), hessian, linear, client, private, shared, scale, zero, eta[:few], amplitude[:few]
        )

    with ThreadPoolExecutor(2) as pool:
        one, two, batched, slow = best(kernel, threads, batched_numpy, numpy_reference, rounds=ROUNDS)
    n = len(client)
    one, two, batched, slow = one / n / steps, two / n / steps, batched / n / 10, slow / n / 2
    print(
        f"FA-LD {np.dtype(dtype).name}     kernel {one * 1e9:5.2f} ns a client step   batched NumPy {batched * 1e9:5.1f} ns   "
        f"{batched / one:5.1f} x  (at least 10)   2 threads {one / two:4.2f} x  (at least 1.7)   NumPy reference {slow / one:4.0f} x"
    )


def softmax() -> None:
    """Compare gradients of softmax regression in float32 with a gather and two BLAS products."""
    features, classes, batch = 784, 10, 200
    problem = problems.SoftmaxRegression.synthetic(10, features, classes, 1000, dtype=np.float32, test_samples=0)
    theta = np.zeros((10, problem.dim), np.float32)
    clients = np.arange(10)
    key = rng.keys(1, rng.Stream.BATCH, client=clients)
    start = np.arange(11) * batch
    rows = cpu.choose_rows(key, problem.sizes, start, 0)
    weights = np.zeros((features, classes), np.float32)

    def bare() -> None:
        for c in range(10):
            x = problem.x[problem.offsets[c] + rows[start[c] : start[c + 1]]]
            z = x @ weights
            x.T @ z

    def fedsim_gradients() -> None:
        cpu.gradients(problem, theta, clients, (cpu.choose_rows(key, problem.sizes, start, 0), start))

    full, plain = best(fedsim_gradients, bare, rounds=ROUNDS)
    print(
        f"softmax 784x10    gradient {full / 10 * 1e6:5.0f} us   gather + two products {plain / 10 * 1e6:5.0f} us   {full / plain:5.2f} x  (at most 1.3)"
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        normals()
        fald(np.float32)
        fald(np.float64)
        softmax()
