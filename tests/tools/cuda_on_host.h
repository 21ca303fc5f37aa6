// Enough of CUDA for the host's C++ compiler: every thread of a grid runs in turn, the last one first.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#define __global__
#define __device__

struct Index {
    unsigned x, y, z;
};
static thread_local Index gridDim, blockDim, blockIdx, threadIdx;

template <typename To, typename From>
To bits_of(From value) {
    static_assert(sizeof(To) == sizeof(From), "same width");
    To out;
    std::memcpy(&out, &value, sizeof(out));
    return out;
}
inline int __float_as_int(float x) { return bits_of<int>(x); }
inline float __int_as_float(int x) { return bits_of<float>(x); }
inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
inline double __longlong_as_double(long long x) { return bits_of<double>(x); }

// Arguments come as cuLaunchKernel takes them: one pointer to each.
template <typename... P, std::size_t... I>
void unpack(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<P*>(arguments[I])...);
}

template <typename... P>
void run_grid(void (*kernel)(P...), unsigned blocks, unsigned threads, void** arguments) {
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    for (unsigned b = blocks; b-- > 0;)
        for (unsigned t = threads; t-- > 0;) {
            blockIdx = {b, 0, 0};
            threadIdx = {t, 0, 0};
            unpack(kernel, arguments, std::index_sequence_for<P...>());
        }
}

#define LAUNCHER(name) \
    extern "C" void launch_##name(unsigned blocks, unsigned threads, void** arguments) { \
        run_grid(name, blocks, threads, arguments); \
    }
