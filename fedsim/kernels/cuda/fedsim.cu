// The CUDA twin of draws.py, langevin.py, gradients.py and softmax.py: same integers, same arithmetic in the
// same order.
//
// Compiled once for each of -DREAL_BITS=32 and 64, multiply-adds fused only where `fmaf` says so; division and square root are
// the exactly rounded IEEE ones that CUDA uses unless told otherwise. A thread owns one job, one row of data or
// one coordinate of one job and talks to no other thread, so a job's result cannot depend on its place in a
// batch. -DDIM=d fixes the dimension of `langevin_quadratic` at compile time, which keeps a job's parameters in
// registers; DIM=0 takes any d.

#ifndef REAL_BITS
#define REAL_BITS 64
#endif
#ifndef DIM
#define DIM 0
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#if REAL_BITS == 32
typedef float real;
#else
typedef double real;
#endif

#define PER_BLOCK (128 / REAL_BITS)  // normals out of one Philox block

__device__ inline i64 thread_number() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// --- Philox4x32-10 -------------------------------------------------------------------------------------

struct Words {
    u32 a, b, c, d;
};

__device__ inline Words philox(u64 block, u32 step, const u32* key) {
    u32 c0 = (u32)block, c1 = step + (u32)(block >> 32), c2 = key[2], c3 = key[3], k0 = key[0], k1 = key[1];
    for (int i = 0; i < 10; i++) {
        const u64 left = (u64)0xD2511F53u * c0, right = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(right >> 32) ^ c1 ^ k0;
        c1 = (u32)right;
        c2 = (u32)(left >> 32) ^ c3 ^ k1;
        c3 = (u32)left;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words out = {c0, c1, c2, c3};
    return out;
}

// --- Logarithm, exponential, Box-Muller: the polynomials of fedsim/rng.py and kernels/reference.py -----

__device__ inline void rotate(real c, real s, u32 quadrant, real radius, real* x, real* y) {
    const bool swap = quadrant & 1u;
    const real first = swap ? s : c, second = swap ? c : s;
    *x = radius * (quadrant == 1u || quadrant == 2u ? -first : first);
    *y = radius * (quadrant >= 2u ? -second : second);
}

#if REAL_BITS == 32

// Clipped to where the result is a normal number; comparisons that let a NaN through.
__device__ inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float k = (x * (float)1.44269504 + 12582912.0f) - 12582912.0f;
    const float r = (x - k * 0.693359375f) - k * (float)-2.12194440e-4;
    float p = (float)1.9875691500e-4 * r + (float)1.3981999507e-3;
    p = p * r + (float)8.3334519073e-3;
    p = p * r + (float)4.1665795894e-2;
    p = p * r + (float)1.6666665459e-1;
    p = p * r + (float)5.0000001201e-1;
    p = p * r * r + r + 1.0f;
    return p * __int_as_float(((int)k + 127) << 23);
}

__device__ inline void pair(u32 a, u32 b, float* x, float* y) {
    const int bits = __float_as_int((float)(int)(a >> 1) + 0.5f) + (0x3F800000 - 0x3F3504F3);
    const float e = (float)((bits >> 23) - (127 + 31));
    const float m = __int_as_float((bits & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
    const float q = m * m;
    const float low = fmaf(fmaf((float)-0.3992637097835541, m, (float)0.5000360012054443), q,
        fmaf((float)-0.6666783690452576, m, (float)0.9999998211860657));
    const float high = fmaf(fmaf((float)-0.17535458505153656, m, (float)0.28617823123931885), q,
        fmaf((float)-0.29813095927238464, m, (float)0.331397145986557));
    const float near = fmaf(fmaf(high, q * q, low), q, -2.0f * m);
    const float radius = sqrtf(fmaf(e, (float)-1.3862943611198906, near));
    const float t = (float)(int)(b << 2) * (float)(0.78539816339744830962 * 4.656612873077392578125e-10);
    const float z = t * t;
    const float s = fmaf(fmaf((float)-1.9515295891e-4, z, (float)8.3321608736e-3), z, (float)-1.6666654611e-1);
    const float c = fmaf(fmaf((float)2.443315711809948e-5, z, (float)-1.388731625493765e-3), z, (float)4.166664568298827e-2);
    rotate(fmaf(fmaf(c, z, -0.5f), z, 1.0f), fmaf(s, z * t, t), b >> 30, radius, x, y);
}

__device__ inline void normals_of(Words w, real* out) {
    pair(w.a, w.b, out, out + 1);
    pair(w.c, w.d, out + 2, out + 3);
}

#else

#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW 1.90821492927058770002e-10

__device__ inline double logarithm(double x) {
    const i64 bits = __double_as_longlong(x) + ((i64)(0x3FF00000 - 0x3FE6A09E) << 32);
    const double k = (double)((int)((u64)bits >> 52) - 1023);
    const double f = __longlong_as_double((bits & 0x000FFFFFFFFFFFFFll) + ((i64)0x3FE6A09E << 32)) - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double r = 1.479819860511658591e-01 * z + 1.531383769920937332e-01;
    r = r * z + 1.818357216161805012e-01;
    r = r * z + 2.222219843214978396e-01;
    r = r * z + 2.857142874366239149e-01;
    r = r * z + 3.999999999940941908e-01;
    r = r * z + 6.666666666666735130e-01;
    r = r * z;
    const double half = 0.5 * f * f;
    return k * LN2_HIGH - ((half - (s * (half + r) + k * LN2_LOW)) - f);
}

__device__ inline double exponential(double x) {
    x = x < -708.0 ? -708.0 : x;
    x = x > 709.0 ? 709.0 : x;
    const double k = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW;
    double p = 1.0 / 479001600.0 * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * __longlong_as_double(((i64)k + 1023) << 52);
}

__device__ inline void normals_of(Words w, real* out) {
    const double unit = (double)(int)(w.a >> 1) * 4.656612873077392578125e-10
        + ((double)(int)(w.b >> 11) + 0.5) * 2.220446049250313080847263336181640625e-16;
    const double radius = sqrt(-2.0 * logarithm(unit));
    double x = (double)(int)(w.c << 2) * 4.656612873077392578125e-10;
    x = (x + (double)(int)(w.d >> 11) * 4.44089209850062616169452667236328125e-16) * 0.78539816339744830962;
    const double z = x * x;
    double s = 1.58969099521155010221e-10 * z + -2.50507602534068634195e-08;
    s = s * z + 2.75573137070700676789e-06;
    s = s * z + -1.98412698298579493134e-04;
    s = s * z + 8.33333333332248946124e-03;
    s = s * z + -1.66666666666666324348e-01;
    double c = -1.13596475577881948265e-11 * z + 2.08757232129817482790e-09;
    c = c * z + -2.75573143513906633035e-07;
    c = c * z + 2.48015872894767294178e-05;
    c = c * z + -1.38888888888741095749e-03;
    c = c * z + 4.16666666666666019037e-02;
    rotate((1.0 - 0.5 * z) + z * z * c, x + x * z * s, w.c >> 30, radius, out, out + 1);
}

#endif

// A job's normals number 0, 1, 2, ...: they run on from step to step, so a thread takes them one after the
// other.
struct Noise {
    const u32* key;
    u64 block;
    int left;
    real held[PER_BLOCK];

    __device__ explicit Noise(const u32* key) : key(key), block(0), left(0) {}

    __device__ real next() {
        if (left == 0) {
            normals_of(philox(block, 0, key), held);
            block++;
            left = PER_BLOCK;
        }
        const real value = held[0];
        for (int i = 1; i < PER_BLOCK; i++) held[i - 1] = held[i];  // a constant index stays in a register
        left--;
        return value;
    }
};

// --- Draws ---------------------------------------------------------------------------------------------

// One thread a block of four words; out is (rows, 4 * blocks).
extern "C" __global__ void words(i64 rows, i64 blocks, const u32* key, i64 first, u32 step, u32* out) {
    const i64 n = thread_number();
    if (n >= rows * blocks) return;
    const Words w = philox((u64)(first + n % blocks), step, key + 4 * (n / blocks));
    out[4 * n] = w.a;
    out[4 * n + 1] = w.b;
    out[4 * n + 2] = w.c;
    out[4 * n + 3] = w.d;
}

// Normals number `begin` onwards of every row, out (rows, lanes); one thread a block of `blocks` that a row
// touches.
extern "C" __global__ void normals(
    i64 rows, i64 blocks, i64 lanes, const u32* key, i64 begin, u32 call, real* out) {
    const i64 n = thread_number();
    if (n >= rows * blocks) return;
    const i64 row = n / blocks, block = begin / PER_BLOCK + n % blocks;
    real held[PER_BLOCK];
    normals_of(philox((u64)block, call, key + 4 * row), held);
    for (int i = 0; i < PER_BLOCK; i++) {
        const i64 lane = block * PER_BLOCK + i - begin;
        if (lane >= 0 && lane < lanes) out[row * lanes + lane] = held[i];
    }
}

// Job i's choice of start[i + 1] - start[i] out of population[i]: a shuffle cut off after so many swaps. What
// the swaps left behind is held in `position` and `value`, a table of two slots per swap with linear probing;
// -1 is an empty slot.
extern "C" __global__ void choose_rows(
    i64 jobs, const u32* key, const i64* population, const i64* start, u32 step, i64* position, i64* value,
    i64* out) {
    const i64 job = thread_number();
    if (job >= jobs) return;
    const i64 begin = start[job], size = start[job + 1] - begin, slots = 2 * size;
    i64 *at = position + 2 * begin, *holds = value + 2 * begin;
    for (i64 i = 0; i < slots; i++) at[i] = -1;
    Words w = {0, 0, 0, 0};
    for (i64 j = 0; j < size; j++) {
        if (j % 2 == 0) w = philox((u64)(j / 2), step, key + 4 * job);
        const u64 high = j % 2 == 0 ? w.a : w.c, low = j % 2 == 0 ? w.b : w.d, n = (u64)(population[job] - j);
        const i64 target = j + (i64)((high * n + (low * n >> 32)) >> 32);
        i64 here = j % slots, there = target % slots;
        while (at[here] != -1 && at[here] != j) here = (here + 1) % slots;
        while (at[there] != -1 && at[there] != target) there = (there + 1) % slots;
        const i64 moved = at[here] == j ? holds[here] : j;
        out[begin + j] = at[there] == target ? holds[there] : target;
        at[there] = target;
        holds[there] = moved;
    }
}

// --- Langevin steps ------------------------------------------------------------------------------------

// K steps theta <- theta - eta (H theta - b) + amplitude (rho shared + scale private), one thread a job. theta
// and scratch are (d, jobs), so that neighbouring threads read neighbouring numbers; the result is in theta. H
// is symmetric.
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
    Noise own(private_key + 4 * job), common(shared_key + 4 * job);
    for (int k = 0; k < steps; k++) {
        const real eta = step_size[k], a = amplitude[k];
#pragma unroll
        for (int i = 0; i < d; i++) {
            real g = h[i * d] * now[0] - b[i];
#pragma unroll
            for (int m = 1; m < d; m++) g += h[i * d + m] * now[m * stride];
            real noise = has_private ? s * own.next() : (real)0;
            if (has_shared) noise = rho * common.next() + noise;
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

// --- Gradients of quadratic potentials: one thread a coordinate of a job -------------------------------

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

// m theta - the sum of the job's m rows, its rows counted inside the client
extern "C" __global__ void gaussian_total(
    i64 jobs, i64 d, const real* theta, const real* x, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, real* total) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    const real* own = x + offsets[client[job]] * d + i;
    real sum = 0;
    for (i64 r = start[job]; r < start[job + 1]; r++) sum += own[rows[r] * d];
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

// --- Gradients of linear models: scores, residuals, then their sum over rows ---------------------------
// theta holds (features, classes), then, with a bias, one number a class; linear and logistic regression have
// one class. start[job]:start[job + 1] are a job's places in `rows`, or, with `whole`, stand for all rows of
// its client in order.

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
    i64 r, i64 job, const i64* offsets, const i64* client, const i64* rows, const i64* start, int whole) {
    return offsets[client[job]] + (whole ? r - start[job] : rows[r]);
}

// One thread a row and class: the linear predictor in four partial sums, as on the CPU.
extern "C" __global__ void scores(
    i64 jobs, i64 count, i64 features, i64 classes, int bias, const real* theta, const real* x,
    const i64* offsets, const i64* client, const i64* rows, const i64* start, int whole, real* z) {
    const i64 n = thread_number(), r = n / classes, k = n % classes;
    if (n >= count * classes) return;
    const i64 job = job_of(r, jobs, start), last = features - features % 4;
    const real* row = x + row_of(r, job, offsets, client, rows, start, whole) * features;
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
    const i64* start, int whole, int logistic, real scale, real* z) {
    const i64 r = thread_number();
    if (r >= count) return;
    const i64 job = job_of(r, jobs, start);
    const real mean = logistic ? (real)1 / ((real)1 + exponential(-z[r])) : z[r];
    z[r] = scale * (mean - y[row_of(r, job, offsets, client, rows, start, whole)]);
}

// softmax(z) - onehot(y)
extern "C" __global__ void softmax_residuals(
    i64 jobs, i64 count, i64 classes, const i64* y, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, int whole, real* z) {
    const i64 r = thread_number();
    if (r >= count) return;
    const i64 job = job_of(r, jobs, start);
    real* row = z + r * classes;
    real top = row[0], total = 0;
    for (i64 k = 1; k < classes; k++) top = row[k] > top ? row[k] : top;
    for (i64 k = 0; k < classes; k++) row[k] = exponential(row[k] - top);
    for (i64 k = 0; k < classes; k++) total += row[k];
    for (i64 k = 0; k < classes; k++) row[k] /= total;
    row[y[row_of(r, job, offsets, client, rows, start, whole)]] -= (real)1;
}

// share m theta + the sum over rows of x z, and of z for the bias; one thread a coordinate of a job.
extern "C" __global__ void sum_over_rows(
    i64 jobs, i64 features, i64 classes, int bias, const real* theta, const real* x, const i64* offsets,
    const i64* client, const i64* rows, const i64* start, int whole, const real* z, real share, real* out) {
    const i64 d = (features + bias) * classes;
    const i64 n = thread_number(), job = n / d, i = n % d / classes, k = n % classes;
    if (n >= jobs * d) return;
    real g = share * (real)(start[job + 1] - start[job]) * theta[n];
    for (i64 r = start[job]; r < start[job + 1]; r++) {
        const real* row = x + row_of(r, job, offsets, client, rows, start, whole) * features;
        g += i < features ? z[r * classes + k] * row[i] : z[r * classes + k];
    }
    out[n] = g;
}
