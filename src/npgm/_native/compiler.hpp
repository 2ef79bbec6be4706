// What compilers call by different names. All of GCC, clang and MSVC know __builtin_bit_cast, and vectorise the loops
// marked by `#pragma omp simd` with the flags of CMakeLists.txt.
#pragma once

#if defined(_MSC_VER)
#include <intrin.h>
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define NPGM_INLINE __forceinline
#define NPGM_INLINE_LAMBDA
#define NPGM_NOINLINE_LAMBDA
#define NPGM_NOINLINE __declspec(noinline)
#else
#define NPGM_INLINE [[gnu::always_inline]] inline
#define NPGM_INLINE_LAMBDA __attribute__((always_inline))
#define NPGM_NOINLINE_LAMBDA __attribute__((noinline))
#define NPGM_NOINLINE [[gnu::noinline]]
#endif

// Keep a compiler from making two loops of one that depends on a flag.
#if defined(_MSC_VER)
#define NPGM_OPAQUE(flag)
#else
#define NPGM_OPAQUE(flag) asm("" : "+r"(flag))
#endif

// Write out all turns of the loop that follows.
#if defined(__clang__)
#define NPGM_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define NPGM_UNROLL _Pragma("GCC unroll 16")
#else
#define NPGM_UNROLL
#endif

// Whether a fused multiplication and addition is one instruction, into which fma and fmaf are compiled.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || (defined(_MSC_VER) && (defined(__AVX2__) || defined(_M_ARM64)))
#define NPGM_FMA 1
#else
#define NPGM_FMA 0
#endif

namespace npgm {
namespace {

#if defined(NPGM_X86)
// Whether processor and operating system have AVX2 with FMA, and AVX-512 with its extensions F, DQ, BW and VL.
struct Processor {
    bool avx2 = false, avx512 = false;

    Processor() {
#if defined(_MSC_VER)
        int basic[4], extended[4];
        __cpuid(basic, 0);
        if (basic[0] < 7) return;
        __cpuidex(extended, 7, 0);
        __cpuid(basic, 1);
        auto const all = [](int word, unsigned bits) { return (static_cast<unsigned>(word) & bits) == bits; };
        if (!all(basic[2], 1u << 12 | 1u << 27 | 1u << 28)) return;  // FMA, OSXSAVE, AVX
        auto const saved = static_cast<unsigned>(_xgetbv(0));
        avx2 = (saved & 0x06u) == 0x06u && all(extended[1], 1u << 5);
        avx512 = avx2 && (saved & 0xe6u) == 0xe6u && all(extended[1], 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);
#else
        __builtin_cpu_init();
        avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    }
};
#endif

}  // namespace
}  // namespace npgm
