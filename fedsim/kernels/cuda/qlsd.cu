// QLSD's messages: the arithmetic of qlsd.py, qlsd_logistic.py and qsgd.py. Gradient, memory terms and quantiser
// are separate kernels, launched one after the other.

#define LARGEST 3.4028234663852886e38  // float32's
#define DENSE 2
#define AUTO 3

// The factor of the precision for all rows: n theta - their sum, or n (theta - control), where the data cancel.
// One thread a coordinate of a job. `gaussian_total` computes it for a minibatch.
extern "C" __global__ void gaussian_all_rows(
    i64 jobs, i64 d, const real* theta, const real* control, int controlled, const real* sums,
    const i64* offsets, const i64* client, real* total) {
    const i64 n = thread_number();
    if (n >= jobs * d) return;
    const i64 c = client[n / d];
    const real rows = (real)(offsets[c + 1] - offsets[c]);
    total[n] = controlled ? rows * (theta[n] - control[n]) : rows * theta[n] - sums[c * d + n % d];
}

// scale P_c total, one thread a coordinate of a job; a diagonal precision has only its diagonal.
extern "C" __global__ void gaussian_gradient(
    i64 jobs, i64 d, const real* total, const real* precision, int one_precision, int diagonal,
    const i64* client, const real* scale, real* v) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    const i64 c = one_precision ? 0 : client[job];
    if (diagonal) {
        v[n] = scale[job] * (precision[c * d + i] * total[n]);
        return;
    }
    const real *p = precision + c * d * d, *t = total + job * d;
    real g = 0;
    for (i64 k = 0; k < d; k++) g += p[k * d + i] * t[k];
    v[n] = g * scale[job];
}

// The probability of a row in eight partial sums, as on the CPU.
__device__ inline real probability(i64 d, const real* row, const real* t) {
    real c0 = 0, c1 = 0, c2 = 0, c3 = 0, c4 = 0, c5 = 0, c6 = 0, c7 = 0;
    const i64 last = d - d % 8;
    for (i64 i = 0; i < last; i += 8) {
        c0 += row[i] * t[i];
        c1 += row[i + 1] * t[i + 1];
        c2 += row[i + 2] * t[i + 2];
        c3 += row[i + 3] * t[i + 3];
        c4 += row[i + 4] * t[i + 4];
        c5 += row[i + 5] * t[i + 5];
        c6 += row[i + 6] * t[i + 6];
        c7 += row[i + 7] * t[i + 7];
    }
    for (i64 i = last; i < d; i++) c0 += row[i] * t[i];
    const real z = ((c0 + c4) + (c1 + c5)) + ((c2 + c6) + (c3 + c7));
    return (real)1 / ((real)1 + exponential(-z));
}

// p(x theta) - y, or p(x theta) - p(x control) with a control; one thread a row of a job.
extern "C" __global__ void logistic_residuals(
    i64 jobs, i64 count, i64 d, const real* theta, const real* control, int controlled, const real* x,
    const real* y, const i64* offsets, const i64* client, const i64* rows, const i64* start, int all_rows,
    real* residual) {
    const i64 r = thread_number();
    if (r >= count) return;
    const i64 job = job_of(r, jobs, start), at = row_of(r, job, offsets, client, rows, start, all_rows);
    const real p = probability(d, x + at * d, theta + job * d);
    residual[r] = p - (controlled ? probability(d, x + at * d, control + job * d) : y[at]);
}

// scale times the sum over rows of residual x, one thread a coordinate of a job.
extern "C" __global__ void logistic_gradient(
    i64 jobs, i64 d, const real* x, const i64* offsets, const i64* client, const i64* rows, const i64* start,
    int all_rows, const real* residual, const real* scale, real* v) {
    const i64 n = thread_number(), job = n / d, i = n % d;
    if (n >= jobs * d) return;
    real g = 0;
    for (i64 r = start[job]; r < start[job + 1]; r++)
        g += residual[r] * x[row_of(r, job, offsets, client, rows, start, all_rows) * d + i];
    v[n] = g * scale[job];
}

// --- A client's memory: one thread a number ------------------------------------------------------------

extern "C" __global__ void add_terms(
    i64 count, const real* anchor, int has_anchor, const real* memory, int has_memory, real* v) {
    const i64 n = thread_number();
    if (n >= count) return;
    if (has_anchor) v[n] += anchor[n];
    if (has_memory) v[n] -= memory[n];
}

extern "C" __global__ void update_memory(i64 count, const real* memory, real rate, const real* sent, real* updated) {
    const i64 n = thread_number();
    if (n < count) updated[n] = memory[n] + rate * sent[n];
}

// --- The wire ------------------------------------------------------------------------------------------

extern "C" __global__ void to_single(i64 count, real* v) {
    const i64 n = thread_number();
    if (n < count) v[n] = (real)(float)v[n];
}

// Sums of squares in eight columns, coordinate mod 8, over the complete groups of eight: one thread a column.
extern "C" __global__ void squares(i64 jobs, i64 d, const real* v, double* column) {
    const i64 n = thread_number(), job = n / 8;
    if (n >= jobs * 8) return;
    double total = 0;
    for (i64 i = n % 8; i < d - d % 8; i += 8) {
        const double x = v[job * d + i];
        total += x * x;
    }
    column[n] = total;
}

// The norm on the wire, one thread a job: rounded up to float32. A message that cannot be sent has 0 bits. Where all
// squares underflow the CPU sends the least float32 instead of zero; all levels are zero in both cases.
extern "C" __global__ void norms(
    i64 jobs, i64 d, const real* v, const double* column, i64 fixed_bits, real* norm, i64* bits) {
    const i64 job = thread_number();
    if (job >= jobs) return;
    const double* c = column + job * 8;
    const real* row = v + job * d;
    double total = ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]));
    for (i64 i = d - d % 8; i < d; i++) total += (double)row[i] * (double)row[i];
    const double exact = sqrt(total);
    float rounded = (float)exact;
    if ((double)rounded < exact) rounded = __int_as_float(__float_as_int(rounded) + 1);
    norm[job] = (real)rounded;
    bits[job] = (double)rounded <= LARGEST ? fixed_bits : 0;
}

// The signed level of x: x scale plus a random number below one, away from zero, rounded towards zero.
__device__ inline double level_of(double x, u32 word, double scale, double top) {
    const double high = __longlong_as_double((i64)((u64)word | 0x4130000000000000ull));  // 2**20 + word / 2**32
    const double u = high - (1048576.0 - 1.0 / 8589934592.0);
    const double level = trunc(x * scale + (__double_as_longlong(x) < 0 ? -u : u));
    return level < -top ? -top : level > top ? top : level;
}

// The decoded message, one thread four coordinates of a job, which share a block of random words. If `counted`, the
// absolute levels are written to `sizes` (d, jobs), for `elias_bits`.
extern "C" __global__ void round_levels(
    i64 jobs, i64 d, const real* v, const real* norm, const u32* coins, int levels, int counted, u32* sizes,
    real* sent) {
    const i64 n = thread_number(), job = n % jobs, block = n / jobs;
    if (n >= jobs * ((d + 3) / 4)) return;
    const double length = norm[job], top = levels;
    const double scale = length > 0 ? top / length : 0.0, unit = length / top;
    const Words w = philox((u64)block, 0, coins + 4 * job);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const i64 i = 4 * block + k;
        if (i >= d) break;
        if (!(length <= LARGEST)) {
            sent[job * d + i] = (real)__longlong_as_double(0x7FF8000000000000ll);
            continue;
        }
        const u32 word = k == 0 ? w.a : k == 1 ? w.b : k == 2 ? w.c : w.d;
        const double level = level_of(v[job * d + i], word, scale, top);
        sent[job * d + i] = (real)(level * unit + 0.0);  // no negative zero
        if (counted) sizes[i * jobs + job] = (u32)(level < 0 ? -level : level);
    }
}

// The exact length in Elias coding, one thread a job; `lengths` are the code lengths of 0 (none), 1, 2, ...
extern "C" __global__ void elias_bits(
    i64 jobs, i64 d, const u32* sizes, const int* lengths, int form, i64* bits) {
    const i64 job = thread_number();
    if (job >= jobs || bits[job] == 0) return;
    i64 sparse = 0, dense = 0, last = -1;
    for (i64 i = 0; i < d; i++) {
        const u32 size = sizes[i * jobs + job];
        dense += lengths[size + 1] + (size > 0);
        if (size > 0) {
            sparse += lengths[i - last] + lengths[size] + 1;
            last = i;
        }
    }
    sparse += lengths[d - last];
    bits[job] = 32 + (form == DENSE || (form == AUTO && dense < sparse) ? dense : sparse);
}
