// Types, Philox, exp, log and Box-Muller: the arithmetic of rng/__init__.py and rng/elementary.py, in the same order.
//
// All .cu files are one source, compiled for -DREAL_BITS=32 and 64. Multiply-adds are fused only in `fmaf`; division and
// square root are exactly rounded, CUDA's default. A thread computes one job, one row of data or one coordinate of one
// job and shares nothing with other threads, so a job's result does not depend on its place in a batch. -DDIM=d fixes
// the dimension at compile time, so that a job's parameters stay in registers; DIM=0 takes any d.

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

// --- Logarithm, exponential, Box-Muller ----------------------------------------------------------------

__device__ inline void rotate(real c, real s, u32 quadrant, real radius, real* x, real* y) {
    const bool swap = quadrant & 1u;
    const real first = swap ? s : c, second = swap ? c : s;
    *x = radius * (quadrant == 1u || quadrant == 2u ? -first : first);
    *y = radius * (quadrant >= 2u ? -second : second);
}

#if REAL_BITS == 32

// Clipped to where the result is a normal number; NaN stays NaN.
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

// A job's normals number 0, 1, 2, ...; numbers continue from step to step.
struct Noise {
    const u32* key;
    u64 block;
    int left;
    real drawn[PER_BLOCK];

    __device__ explicit Noise(const u32* key) : key(key), block(0), left(0) {}

    __device__ real next() {
        if (left == 0) {
            normals_of(philox(block, 0, key), drawn);
            block++;
            left = PER_BLOCK;
        }
        const real value = drawn[0];
        for (int i = 1; i < PER_BLOCK; i++) drawn[i - 1] = drawn[i];  // a constant index stays in a register
        left--;
        return value;
    }
};
