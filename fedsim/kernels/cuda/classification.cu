// Softmax regression and ReLU networks: the arithmetic of classification.py, to rounding. Rows of several jobs are
// stacked; `input` is (rows, inputs), scores and slopes are (rows, outputs). A thread computes one number of one row, or
// one parameter of one job.

// softmax(z) - onehot(y), one thread a row.
extern "C" __global__ void softmax_residuals(
    i64 jobs, i64 count, i64 classes, const i64* y, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, int all_rows, real* z) {
    const i64 r = thread_number();
    if (r >= count) return;
    const i64 job = job_of(r, jobs, start);
    real* row = z + r * classes;
    real top = row[0], total = 0;
    for (i64 k = 1; k < classes; k++) top = row[k] > top ? row[k] : top;
    for (i64 k = 0; k < classes; k++) row[k] = exponential(row[k] - top);
    for (i64 k = 0; k < classes; k++) total += row[k];
    for (i64 k = 0; k < classes; k++) row[k] /= total;
    row[y[row_of(r, job, offsets, client, rows, start, all_rows)]] -= (real)1;
}

// Gather the chosen rows, one thread a number.
extern "C" __global__ void take_rows(
    i64 jobs, i64 count, i64 features, const real* x, const i64* offsets, const i64* client, const i64* rows,
    const i64* start, int all_rows, real* out) {
    const i64 n = thread_number(), r = n / features;
    if (n >= count * features) return;
    out[n] = x[row_of(r, job_of(r, jobs, start), offsets, client, rows, start, all_rows) * features + n % features];
}

// Forward pass of a layer; parameters of job j begin at theta + j * dim, those of the layer at an offset of `at`.
extern "C" __global__ void layer_forward(
    i64 jobs, i64 count, i64 dim, i64 at, i64 inputs, i64 outputs, int rectify, const real* theta, const real* input,
    const i64* start, real* out) {
    const i64 n = thread_number(), r = n / outputs, k = n % outputs;
    if (n >= count * outputs) return;
    const real *w = theta + job_of(r, jobs, start) * dim + at, *row = input + r * inputs;
    real z = 0;
    for (i64 i = 0; i < inputs; i++) z += row[i] * w[i * outputs + k];
    z += w[inputs * outputs + k];
    out[n] = rectify && !(z > 0) ? (z != z ? z : (real)0) : z;
}

// Backward pass of a layer: the slopes of its inputs, zero for inactive units.
extern "C" __global__ void layer_backward(
    i64 jobs, i64 count, i64 dim, i64 at, i64 inputs, i64 outputs, const real* theta, const real* input,
    const real* slope, const i64* start, real* out) {
    const i64 n = thread_number(), r = n / inputs, i = n % inputs;
    if (n >= count * inputs) return;
    const real *w = theta + job_of(r, jobs, start) * dim + at + i * outputs, *s = slope + r * outputs;
    real g = 0;
    for (i64 k = 0; k < outputs; k++) g += s[k] * w[k];
    out[n] = input[n] > 0 ? g : (real)0;
}

// The sum over a job's rows for every weight and bias of a layer, and the prior's share.
extern "C" __global__ void layer_sum(
    i64 jobs, i64 dim, i64 at, i64 inputs, i64 outputs, const real* theta, const real* input, const real* slope,
    const i64* start, real share, real* out) {
    const i64 size = inputs * outputs + outputs, n = thread_number(), job = n / size, m = n % size;
    if (n >= jobs * size) return;
    const i64 i = m / outputs, k = m % outputs, place = job * dim + at + m;
    real g = 0;
    for (i64 r = start[job]; r < start[job + 1]; r++) g += (i < inputs ? input[r * inputs + i] : (real)1) * slope[r * outputs + k];
    out[place] = g + share * (real)(start[job + 1] - start[job]) * theta[place];
}
