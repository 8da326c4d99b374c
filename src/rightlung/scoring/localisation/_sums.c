/* The sums over a map's pixels behind the measures that need no order, in two passes without copies.
 *
 * Eight pixels at a time, with the vector types of GCC and Clang. Built by hatch_build.py together with _radix.c;
 * without a compiler sums.py does the same with NumPy, with the same result up to rounding.
 */
#include <stdint.h>
#include <string.h>

#define LANES 8
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define EVERY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define EVERY_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

typedef double Doubles __attribute__((vector_size(8 * LANES)));
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint64_t Bits __attribute__((vector_size(8 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

typedef struct {
    double mass;                              /* sum of the scores */
    double inside, outside;                   /* sums of x = score / highest */
    double logarithms;                        /* sum of x ln x */
    double variance_inside, variance_outside; /* of x; exactly zero if all are equal */
    int64_t peaks, hits;                      /* pixels with the highest score, and how many of them are inside */
} Sums;

typedef struct {
    Doubles score, inside, outside; /* inside and outside are 1 or 0, and both 0 after the last pixel */
} Pixels;

/* ln x for 0 < x < infinity within two units of the last place; finite for 0. With x = 2^k z, sqrt(1/2) <= z < sqrt(2),
 * ln x = k ln 2 + 2 artanh((z - 1) / (z + 1)). */
INLINE Doubles logarithm(Doubles x) {
    const uint64_t root = 0x3fe6a09e667f3bcdULL /* sqrt(1/2) */, bias = 1023ULL << 52, exponent = 0xfff0000000000000ULL;
    const Bits shifted = (Bits)x - root + bias;
    const Doubles k = (Doubles)((shifted >> 52) | 0x4330000000000000ULL) - 4503599627371519.0; /* less 2^52 + 1023 */
    const Doubles z = (Doubles)((Bits)x - (shifted & exponent) + bias);
    const Doubles s = (z - 1) / (z + 1), t = s * s;
    const Doubles rest = t * (1.0 / 3 + t * (1.0 / 5 + t * (1.0 / 7 + t * (1.0 / 9 + t * (1.0 / 11 + t * (1.0 / 13 +
                         t * (1.0 / 15 + t * (1.0 / 17 + t * (1.0 / 19)))))))));
    return k * 0.6931471805599453 + (2 * s + 2 * s * rest);
}

INLINE double total(Doubles lanes) {
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return sum;
}

/* Sum up `count` scores with their labels (0 or 1); `highest` is the highest of them. */
#define DEFINE_SUMS(NAME, FLOAT, VECTOR)                                                                               \
    INLINE Pixels NAME##_load(const FLOAT *scores, const uint8_t *labels, int64_t begin, int64_t count) {              \
        const int64_t left = count - begin, some = left < LANES ? left : LANES;                                        \
        VECTOR score = {0};                                                                                            \
        Bytes label = {0}, there = {0};                                                                                \
        if (some == LANES) {                                                                                           \
            memcpy(&score, scores + begin, sizeof score);                                                              \
            memcpy(&label, labels + begin, sizeof label);                                                              \
            there += 1;                                                                                                \
        } else                                                                                                         \
            for (int lane = 0; lane < some; lane++) {                                                                  \
                score[lane] = scores[begin + lane];                                                                    \
                label[lane] = labels[begin + lane];                                                                    \
                there[lane] = 1;                                                                                       \
            }                                                                                                          \
        const Doubles inside = __builtin_convertvector(label, Doubles);                                                \
        const Doubles outside = __builtin_convertvector(there, Doubles) - inside;                                      \
        return (Pixels){__builtin_convertvector(score, Doubles), inside, outside};                                     \
    }                                                                                                                  \
    EVERY_PROCESSOR void NAME(const FLOAT *scores, const uint8_t *labels, int64_t count, double highest, Sums *sums) { \
        const double divisor = highest > 0 ? highest : 1;                                                              \
        Doubles mass = {0}, inside = {0}, outside = {0}, logarithms = {0};                                             \
        for (int64_t begin = 0; begin < count; begin += LANES) {                                                       \
            const Pixels some = NAME##_load(scores, labels, begin, count);                                             \
            const Doubles x = some.score / divisor;                                                                    \
            mass += some.score;                                                                                        \
            inside += x * some.inside;                                                                                 \
            outside += x * some.outside;                                                                               \
            logarithms += x * logarithm(x);                                                                            \
        }                                                                                                              \
        *sums = (Sums){total(mass), total(inside), total(outside), total(logarithms), 0, 0, 0, 0};                     \
        FLOAT example[2] = {0, 0}; /* a score outside, and one inside */                                               \
        uint32_t positives = 0, peaks = 0, hits = 0, uneven_inside = 0, uneven_outside = 0;                            \
        for (int64_t i = 0; i < count; i++) positives += labels[i];                                                    \
        for (int side = 0; side < 2; side++)                                                                           \
            for (int64_t i = 0; i < count; i++)                                                                        \
                if (labels[i] == side) {                                                                               \
                    example[side] = scores[i];                                                                         \
                    break;                                                                                             \
                }                                                                                                      \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const uint32_t inside_here = labels[i], peak = scores[i] == (FLOAT)highest;                                \
            peaks += peak;                                                                                             \
            hits += peak & inside_here;                                                                                \
            uneven_outside += (scores[i] != example[0]) & !inside_here;                                                \
            uneven_inside += (scores[i] != example[1]) & inside_here;                                                  \
        }                                                                                                              \
        sums->peaks = peaks;                                                                                           \
        sums->hits = hits;                                                                                             \
        const double pixels_inside = positives, pixels_outside = count - pixels_inside;                                \
        const double mean_inside = positives ? sums->inside / pixels_inside : 0;                                       \
        const double mean_outside = positives < count ? sums->outside / pixels_outside : 0;                            \
        Doubles squares_inside = {0}, squares_outside = {0};                                                           \
        for (int64_t begin = 0; begin < count; begin += LANES) {                                                       \
            const Pixels some = NAME##_load(scores, labels, begin, count);                                             \
            const Doubles x = some.score / divisor;                                                                    \
            squares_inside += (x - mean_inside) * (x - mean_inside) * some.inside;                                     \
            squares_outside += (x - mean_outside) * (x - mean_outside) * some.outside;                                 \
        }                                                                                                              \
        if (uneven_inside) sums->variance_inside = total(squares_inside) / pixels_inside;                              \
        if (uneven_outside) sums->variance_outside = total(squares_outside) / pixels_outside;                          \
    }

DEFINE_SUMS(sums32, float, Floats)
DEFINE_SUMS(sums64, double, Doubles)
