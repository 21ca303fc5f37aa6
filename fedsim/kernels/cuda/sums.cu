// Gradients that are sums over rows of data: the arithmetic of sums.py.

// --- Quadratic potentials: one thread a coordinate of a job --------------------------------------------

// hessian_c theta - linear_c
extern "C" __global__ void quadratic_full(
    i64 jobs, i64 d, const real* theta, const real* hessian, const real* linear, const i64* client, real* out) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    const real *h = hessian + client[job] * d * d, *t = theta + job * d;
    real g = h[i] * t[0] - linear[client[job] * d + i];
    for (i64 k = 1; k < d; k++) g += h[k * d + i] * t[k];
    out[n] = g;
}

// m theta - the sum of the job's m rows, numbered inside the client
extern "C" __global__ void gaussian_total(
    i64 jobs, i64 d, const real* theta, const real* x, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, real* total) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    const real* column = x + offsets[client[job]] * d + i;
    real sum = 0;
    for (i64 r = start[job]; r < start[job + 1]; r++) sum += column[rows[r] * d];
    total[n] = (real)(start[job + 1] - start[job]) * theta[n] - sum;
}

// P_c total + share m theta
extern "C" __global__ void gaussian_rows(
    i64 jobs, i64 d, const real* theta, const real* total, const real* precision, int one_precision,
    const i64* client, const i64* start, real share, real* out) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    const real* p = precision + (one_precision ? 0 : client[job] * d * d);
    real g = share * (real)(start[job + 1] - start[job]) * theta[n];
    for (i64 k = 0; k < d; k++) g += p[k * d + i] * total[job * d + k];
    out[n] = g;
}

// --- Linear models: scores, residuals, then their sum over rows ----------------------------------------
// theta holds (features, classes), then, with a bias, one number a class; linear and logistic regression have
// one class. start[job]:start[job + 1] are a job's places in `rows`, or, with `all_rows`, in its client's rows.

__device__ inline i64 job_of(i64 r, i64 jobs, const i64* start) {
    i64 low = 0, high = jobs;
    while (high - low > 1) {
        const i64 middle = (low + high) / 2;
        if (start[middle] <= r) low = middle;
        else high = middle;
    }
    return low;
}

__device__ inline i64 row_of(
    i64 r, i64 job, const i64* offsets, const i64* client, const i64* rows, const i64* start, int all_rows) {
    return offsets[client[job]] + (all_rows ? r - start[job] : rows[r]);
}

// One thread a row and class: the linear predictor in four partial sums, as on the CPU.
extern "C" __global__ void scores(
    i64 jobs, i64 count, i64 features, i64 classes, int bias, const real* theta, const real* x,
    const i64* offsets, const i64* client, const i64* rows, const i64* start, int all_rows, real* z) {
    const i64 n = thread_number(), r = n / classes, k = n % classes;
    if (n >= count * classes) return;
    const i64 job = job_of(r, jobs, start), last = features - features % 4;
    const real* row = x + row_of(r, job, offsets, client, rows, start, all_rows) * features;
    const real* t = theta + job * (features + bias) * classes + k;
    real a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    for (i64 i = 0; i < last; i += 4) {
        a0 += row[i] * t[i * classes];
        a1 += row[i + 1] * t[(i + 1) * classes];
        a2 += row[i + 2] * t[(i + 2) * classes];
        a3 += row[i + 3] * t[(i + 3) * classes];
    }
    for (i64 i = last; i < features; i++) a0 += row[i] * t[i * classes];
    z[n] = (a0 + a1) + (a2 + a3);
    if (bias) z[n] += t[features * classes];
}

// scale (mu(z) - y); mu is the identity or the logistic function.
extern "C" __global__ void residuals(
    i64 jobs, i64 count, const real* y, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, int all_rows, int logistic, real scale, real* z) {
    const i64 r = thread_number();
    if (r >= count) return;
    const i64 job = job_of(r, jobs, start);
    const real mean = logistic ? (real)1 / ((real)1 + exponential(-z[r])) : z[r];
    z[r] = scale * (mean - y[row_of(r, job, offsets, client, rows, start, all_rows)]);
}

// share m theta + the sum over rows of x z, and of z for the bias; one thread a coordinate of a job.
extern "C" __global__ void sum_over_rows(
    i64 jobs, i64 features, i64 classes, int bias, const real* theta, const real* x, const i64* offsets,
    const i64* client, const i64* rows, const i64* start, int all_rows, const real* z, real share, real* out) {
    const i64 d = (features + bias) * classes;
    const i64 n = thread_number(), job = n / d, i = n % d / classes, k = n % classes;
    if (n >= jobs * d) return;
    real g = share * (real)(start[job + 1] - start[job]) * theta[n];
    for (i64 r = start[job]; r < start[job + 1]; r++) {
        const real* row = x + row_of(r, job, offsets, client, rows, start, all_rows) * features;
        g += i < features ? z[r * classes + k] * row[i] : z[r * classes + k];
    }
    out[n] = g;
}
