// Hamiltonian trajectories: the arithmetic of leapfrog.py. Every trajectory draws a momentum, common * shared + scale *
// private, and takes `count` leapfrog steps. A step size is three numbers: eta, eta^2 / 2, eta / 2. H is symmetric.

// Small d: one thread a job, with all its numbers in registers; only compiled where DIM > 0.
// theta and linear are (d, jobs); the result overwrites theta.
extern "C" __global__ void leapfrog_small_dim(
    i64 jobs, real* theta, const real* hessian, const real* linear, const i64* client, const u32* private_key,
    const u32* shared_key, const real* scale, int has_private, int has_shared, real common, int steps,
    const real* sizes, int count) {
#if DIM
    const i64 job = thread_number();
    if (job >= jobs) return;
    const real* h = hessian + client[job] * DIM * DIM;
    const real s = scale[job];
    real t[DIM], b[DIM], p[DIM], g[DIM];
#pragma unroll
    for (int i = 0; i < DIM; i++) {
        t[i] = theta[i * jobs + job];
        b[i] = linear[i * jobs + job];
        p[i] = g[i] = 0;
    }
    Noise private_noise(private_key + 4 * job), shared_noise(shared_key + 4 * job);
    for (int step = 0; step < steps; step++) {
        const real eta = sizes[3 * step], square = sizes[3 * step + 1], half = sizes[3 * step + 2];
        for (int k = 0; k < count; k++) {
            real now[DIM];
#pragma unroll
            for (int i = 0; i < DIM; i++) {
                now[i] = h[i * DIM] * t[0] - b[i];
#pragma unroll
                for (int m = 1; m < DIM; m++) now[i] += h[i * DIM + m] * t[m];
            }
#pragma unroll
            for (int i = 0; i < DIM; i++) {
                if (k == 0) {
                    p[i] = has_private ? s * private_noise.next() : (real)0;
                    if (has_shared) p[i] = common * shared_noise.next() + p[i];
                } else {
                    p[i] = p[i] - half * (g[i] + now[i]);
                }
                g[i] = now[i];
                t[i] = t[i] + eta * p[i] - square * g[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < DIM; i++) theta[i * jobs + job] = t[i];
#endif
}

__device__ inline real normal_number(i64 number, const u32* key) {
    real drawn[PER_BLOCK];
    normals_of(philox((u64)(number / PER_BLOCK), 0, key), drawn);
    real value = drawn[0];
#pragma unroll
    for (int i = 1; i < PER_BLOCK; i++) value = number % PER_BLOCK == i ? drawn[i] : value;
    return value;
}

// Coordinate i of a job's momentum, whose normals are number `begin` onwards.
__device__ inline real drawn_momentum(
    i64 job, i64 i, i64 begin, const u32* private_key, const u32* shared_key, const real* scale, int has_private,
    int has_shared, real common) {
    real p = 0;
    if (has_private) p = scale[job] * normal_number(begin + i, private_key + 4 * job);
    if (has_shared) p = common * normal_number(begin + i, shared_key + 4 * job) + p;
    return p;
}

// Any d: one leapfrog step, one thread a coordinate of a job; arrays are (jobs, d). The first step of a trajectory
// draws the momentum, normals number `begin` onwards of a job; the other steps update it.
extern "C" __global__ void leapfrog_step(
    i64 jobs, i64 d, const real* theta, const real* hessian, const real* linear, const i64* client,
    const u32* private_key, const u32* shared_key, const real* scale, int has_private, int has_shared,
    real common, int first, i64 begin, real eta, real square, real half, real* momentum, real* gradient,
    real* moved) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    const real *h = hessian + client[job] * d * d, *t = theta + job * d;
    real g = h[i] * t[0] - linear[n];
    for (i64 k = 1; k < d; k++) g += h[k * d + i] * t[k];
    real p;
    if (first)
        p = drawn_momentum(job, i, begin, private_key, shared_key, scale, has_private, has_shared, common);
    else
        p = momentum[n] - half * (gradient[n] + g);
    momentum[n] = p;
    gradient[n] = g;
    moved[n] = t[i] + eta * p - square * g;
}

// The step after a gradient's sums over rows, one thread a coordinate of a job. The first gradient of a trajectory
// draws the momentum. A later one updates the momentum if `turn`. With `move` it is stored and theta moves.
extern "C" __global__ void leapfrog_move(
    i64 jobs, i64 d, const real* sums, const real* ridge, const real* linear, int has_linear,
    const u32* private_key, const u32* shared_key, const real* scale, int has_private, int has_shared,
    real common, int first, int turn, int move, i64 begin, real eta, real square, real half, real* momentum,
    real* gradient, real* theta) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    real g = sums[n] + ridge[job] * theta[n];
    if (has_linear) g = g - linear[n];
    if (first)
        momentum[n] = drawn_momentum(job, i, begin, private_key, shared_key, scale, has_private, has_shared, common);
    if (turn) momentum[n] = momentum[n] - half * (gradient[n] + g);
    if (!move) return;
    gradient[n] = g;
    theta[n] = theta[n] + eta * momentum[n] - square * g;
}
