/* The packed sort of ranking.py, and the two sums over its ties that AUROC and average precision are made of.
 *
 * Keys hold a score's bits and, lowest, its label; they are sorted by digits of eleven bits. Built by hatch_build.py;
 * without a compiler ranking.py does the same with NumPy, with the same result.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DIGIT 11
#define BUCKETS (1 << DIGIT)

typedef struct {
    int64_t wins;     /* twice the pairs (positive, negative) in which the positive scores higher, ties counting one */
    double precision; /* precision at each positive's score, added up */
} Curve;

/* Pack and sort `count` scores into `keys`; write the positives' positions (and one place more) to `where`, the sums to
 * `curve`. Return the number of positives, -1 if there was no memory. */
#define DEFINE_RANK(NAME, KEY, PASSES)                                                                                 \
    int64_t NAME(const KEY *bits, const uint8_t *labels, int64_t count, KEY *keys, int64_t *where, Curve *curve) {     \
        if (count < 1 || count > UINT32_MAX) return count ? -1 : 0;                                                    \
        uint32_t(*starts)[BUCKETS] = calloc(PASSES, sizeof *starts);                                                   \
        KEY *spare = malloc((size_t)count * sizeof *spare);                                                            \
        int64_t positives = 0;                                                                                         \
        if (!starts || !spare) {                                                                                       \
            free(starts);                                                                                              \
            free(spare);                                                                                               \
            return -1;                                                                                                 \
        }                                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            KEY key = (KEY)(bits[i] << 1) | (labels[i] != 0);                                                          \
            keys[i] = key;                                                                                             \
            for (int pass = 0; pass < PASSES; pass++) starts[pass][(key >> (pass * DIGIT)) & (BUCKETS - 1)]++;          \
        }                                                                                                              \
        KEY *from = keys, *to = spare;                                                                                 \
        for (int pass = 0; pass < PASSES; pass++) {                                                                    \
            uint32_t *start = starts[pass], position = 0;                                                              \
            const int shift = pass * DIGIT;                                                                            \
            if (start[(from[0] >> shift) & (BUCKETS - 1)] == count) continue; /* all keys share this digit */           \
            for (int bucket = 0; bucket < BUCKETS; bucket++) {                                                         \
                uint32_t size = start[bucket];                                                                         \
                start[bucket] = position;                                                                              \
                position += size;                                                                                      \
            }                                                                                                          \
            for (int64_t i = 0; i < count; i++) to[start[(from[i] >> shift) & (BUCKETS - 1)]++] = from[i];              \
            KEY *swap = from;                                                                                          \
            from = to;                                                                                                 \
            to = swap;                                                                                                 \
        }                                                                                                              \
        if (from != keys) memcpy(keys, from, (size_t)count * sizeof *keys);                                            \
        free(starts);                                                                                                  \
        free(spare);                                                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            where[positives] = i; /* kept only if the next line moves on */                                            \
            positives += keys[i] & 1;                                                                                  \
        }                                                                                                              \
        curve->wins = 0;                                                                                               \
        curve->precision = 0;                                                                                          \
        for (int64_t below = 0, next; below < positives; below = next) { /* one tie of positives after the other */     \
            const int64_t first = where[below];                                                                        \
            const KEY key = keys[first];                                                                               \
            int64_t tied = 0; /* negatives, which come right before the positives of their tie */                       \
            for (next = below + 1; next < positives && keys[where[next]] == key; next++) continue;                      \
            while (tied < first && keys[first - tied - 1] == key - 1) tied++;                                          \
            const int64_t negatives_below = first - below - tied;                                                      \
            curve->wins += (next - below) * (2 * negatives_below + tied);                                              \
            curve->precision +=                                                                                        \
                (double)(next - below) * ((double)(positives - below) / (double)(count - below - negatives_below));     \
        }                                                                                                              \
        return positives;                                                                                              \
    }

DEFINE_RANK(rank32, uint32_t, 3)
DEFINE_RANK(rank64, uint64_t, 6)
