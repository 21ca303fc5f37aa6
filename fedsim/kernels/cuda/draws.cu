// Keyed draws: the arithmetic of draws.py.

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

// Normals number `begin` onwards of every row, out (rows, lanes); one thread a block of four words.
extern "C" __global__ void normals(
    i64 rows, i64 blocks, i64 lanes, const u32* key, i64 begin, u32 call, real* out) {
    const i64 n = thread_number();
    if (n >= rows * blocks) return;
    const i64 row = n / blocks, block = begin / PER_BLOCK + n % blocks;
    real drawn[PER_BLOCK];
    normals_of(philox((u64)block, call, key + 4 * row), drawn);
    for (int i = 0; i < PER_BLOCK; i++) {
        const i64 lane = block * PER_BLOCK + i - begin;
        if (lane >= 0 && lane < lanes) out[row * lanes + lane] = drawn[i];
    }
}

// Choose start[i + 1] - start[i] out of population[i] for job i, by a shuffle that stops after that many swaps. The
// displaced numbers are in a hash table, `position` and `value`, with two slots per swap and linear probing; -1 marks
// an empty slot.
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
