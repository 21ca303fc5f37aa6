// Gradients of ReLU networks: the CUDA twin of network.py, to rounding. Rows of several jobs are stacked; `input` is
// (rows, wide), scores and slopes are (rows, high). A thread owns one number of one row, or one parameter of one job.

// The rows that jobs chose, one thread a number.
extern "C" __global__ void take_rows(
    i64 jobs, i64 count, i64 features, const real* x, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, int whole, real* out) {
    const i64 n = thread_number(), r = n / features;
    if (n >= count * features) return;
    out[n] = x[row_of(r, job_of(r, jobs, start), offsets, client, rows, start, whole) * features + n % features];
}

// One layer forwards; parameters of job j begin at theta + j * dim, those of the layer `at` further on.
extern "C" __global__ void layer_forward(
    i64 jobs, i64 count, i64 dim, i64 at, i64 wide, i64 high, int rectify, const real* theta, const real* input,
    const i64* start, real* out) {
    const i64 n = thread_number(), r = n / high, k = n % high;
    if (n >= count * high) return;
    const real *w = theta + job_of(r, jobs, start) * dim + at, *row = input + r * wide;
    real z = 0;
    for (i64 i = 0; i < wide; i++) z += row[i] * w[i * high + k];
    z += w[wide * high + k];
    out[n] = rectify && !(z > 0) ? (z != z ? z : (real)0) : z;
}

// One layer backwards: the slopes of its inputs, nothing where the unit below was off.
extern "C" __global__ void layer_backward(
    i64 jobs, i64 count, i64 dim, i64 at, i64 wide, i64 high, const real* theta, const real* input,
    const real* slope, const i64* start, real* out) {
    const i64 n = thread_number(), r = n / wide, i = n % wide;
    if (n >= count * wide) return;
    const real *w = theta + job_of(r, jobs, start) * dim + at + i * high, *s = slope + r * high;
    real g = 0;
    for (i64 k = 0; k < high; k++) g += s[k] * w[k];
    out[n] = input[n] > 0 ? g : (real)0;
}

// The sum over a job's rows for every weight and bias of a layer, and the prior's share.
extern "C" __global__ void layer_sum(
    i64 jobs, i64 dim, i64 at, i64 wide, i64 high, const real* theta, const real* input, const real* slope,
    const i64* start, real share, real* out) {
    const i64 size = wide * high + high, n = thread_number(), job = n / size, m = n % size;
    if (n >= jobs * size) return;
    const i64 i = m / high, k = m % high, place = job * dim + at + m;
    real g = 0;
    for (i64 r = start[job]; r < start[job + 1]; r++) g += (i < wide ? input[r * wide + i] : (real)1) * slope[r * high + k];
    out[place] = g + share * (real)(start[job + 1] - start[job]) * theta[place];
}
