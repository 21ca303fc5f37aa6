// Local Langevin steps: the arithmetic of langevin.py.

// K steps theta <- theta - eta (H theta - b) + amplitude (rho shared + scale private), one thread a job. theta and
// scratch are (d, jobs), so that memory accesses are coalesced; the result overwrites theta. H is symmetric.
extern "C" __global__ void langevin_quadratic(
    i64 jobs, int dim, real* theta, real* scratch, const real* hessian, const real* linear, const i64* client,
    const u32* private_key, const u32* shared_key, const real* scale, int has_private, int has_shared, real rho,
    int steps, const real* step_size, const real* amplitude) {
    const i64 job = thread_number();
    if (job >= jobs) return;
#if DIM
    const int d = DIM, stride = 1;
    real now[DIM], then[DIM];
    for (int i = 0; i < d; i++) now[i] = theta[i * jobs + job];
#else
    const int d = dim;
    const i64 stride = jobs;
    real *now = theta + job, *then = scratch + job;
#endif
    const real* h = hessian + client[job] * d * d;
    const real* b = linear + client[job] * d;
    const real s = scale[job];
    Noise private_noise(private_key + 4 * job), shared_noise(shared_key + 4 * job);
    for (int k = 0; k < steps; k++) {
        const real eta = step_size[k], a = amplitude[k];
#pragma unroll
        for (int i = 0; i < d; i++) {
            real g = h[i * d] * now[0] - b[i];
#pragma unroll
            for (int m = 1; m < d; m++) g += h[i * d + m] * now[m * stride];
            real noise = has_private ? s * private_noise.next() : (real)0;
            if (has_shared) noise = rho * shared_noise.next() + noise;
            then[i * stride] = now[i * stride] - eta * g + a * noise;
        }
#if DIM
        for (int i = 0; i < d; i++) now[i] = then[i];
#else
        real* swap = now;
        now = then;
        then = swap;
#endif
    }
#if DIM
    for (int i = 0; i < d; i++) theta[i * jobs + job] = now[i];
#else
    if (now != theta + job)
        for (int i = 0; i < d; i++) theta[i * jobs + job] = now[i * stride];
#endif
}
