/* The packed sort of ranking.py, and the two sums over its ties that AUROC and average precision are made of.
 *
 * Keys hold a score's bits and, lowest, its label; they are sorted by digits of eleven bits. Of maps in which equal keys
 * follow each other (upsampled by the nearest cell), runs of them are sorted instead. Built by hatch_build.py; without a
 * compiler ranking.py does the same with NumPy, with the same result.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DIGIT 11
#define BUCKETS (1 << DIGIT)
#define DIGIT_OF(KEY, PASS) (((KEY) >> ((PASS) * DIGIT)) & (BUCKETS - 1))

typedef struct {
    int64_t wins;     /* twice the pairs (positive, negative) in which the positive scores higher, ties counting one */
    double precision; /* precision at each positive's score, added up */
} Curve;

#define TRIED 256 /* runs at the beginning whose length tells whether to look for more */
#define ITSELF(RECORD) (RECORD)
#define KEY_OF_RUN(RECORD) ((RECORD).key)

/* Sort `count` records by their keys, with room for as many in `to` and zeros in `starts`; return where they are: there
 * or in `from`. */
#define DEFINE_SORT(NAME, RECORD, KEY_OF, PASSES)                                                                      \
    static RECORD *NAME(RECORD *from, RECORD *to, int64_t count, uint32_t (*starts)[BUCKETS]) {                        \
        for (int64_t i = 0; i < count; i++)                                                                            \
            for (int pass = 0; pass < PASSES; pass++) starts[pass][DIGIT_OF(KEY_OF(from[i]), pass)]++;                 \
        for (int pass = 0; pass < PASSES; pass++) {                                                                    \
            uint32_t *start = starts[pass], position = 0;                                                              \
            if (start[DIGIT_OF(KEY_OF(from[0]), pass)] == count) continue; /* all keys share this digit */             \
            for (int bucket = 0; bucket < BUCKETS; bucket++) {                                                         \
                uint32_t size = start[bucket];                                                                         \
                start[bucket] = position;                                                                              \
                position += size;                                                                                      \
            }                                                                                                          \
            for (int64_t i = 0; i < count; i++) to[start[DIGIT_OF(KEY_OF(from[i]), pass)]++] = from[i];                \
            RECORD *swap = from;                                                                                       \
            from = to;                                                                                                 \
            to = swap;                                                                                                 \
        }                                                                                                              \
        return from;                                                                                                   \
    }

/* Pack and sort `count` scores into `keys`; write the positives' positions (and one place more) to `where`, the sums to
 * `curve`. Return the number of positives, -1 if there was no memory. */
#define DEFINE_RANK(NAME, KEY, PASSES)                                                                                 \
    typedef struct {                                                                                                   \
        KEY key;                                                                                                       \
        uint32_t length;                                                                                               \
    } NAME##_run;                                                                                                      \
    DEFINE_SORT(NAME##_sort, KEY, ITSELF, PASSES)                                                                      \
    DEFINE_SORT(NAME##_sort_runs, NAME##_run, KEY_OF_RUN, PASSES)                                                      \
    /* Write the runs of equal keys to `runs`; return their number, 0 if they are short or more than `most`. */        \
    static int64_t NAME##_find_runs(const KEY *keys, int64_t count, NAME##_run *runs, int64_t most) {                  \
        int64_t found = 0, begin = 0;                                                                                  \
        for (int64_t i = 1; i <= count; i++)                                                                           \
            if (i == count || keys[i] != keys[i - 1]) {                                                                \
                if (found == most || (found == TRIED && i < 2 * TRIED)) return 0;                                      \
                runs[found++] = (NAME##_run){keys[begin], (uint32_t)(i - begin)};                                      \
                begin = i;                                                                                             \
            }                                                                                                          \
        return found;                                                                                                  \
    }                                                                                                                  \
    int64_t NAME(const KEY *bits, const uint8_t *labels, int64_t count, KEY *keys, int64_t *where, Curve *curve) {     \
        if (count < 1 || count > UINT32_MAX) return count ? -1 : 0;                                                    \
        uint32_t(*starts)[BUCKETS] = calloc(PASSES, sizeof *starts);                                                   \
        void *spare = malloc((size_t)count * sizeof *keys);                                                            \
        int64_t positives = 0;                                                                                         \
        if (!starts || !spare) {                                                                                       \
            free(starts);                                                                                              \
            free(spare);                                                                                               \
            return -1;                                                                                                 \
        }                                                                                                              \
        for (int64_t i = 0; i < count; i++) keys[i] = (KEY)(bits[i] << 1) | (labels[i] != 0);                          \
        const int64_t most = count / (2 * sizeof(NAME##_run) / sizeof *keys);                                          \
        const int64_t runs = NAME##_find_runs(keys, count, spare, most);                                               \
        if (runs) {                                                                                                    \
            const NAME##_run *run = NAME##_sort_runs(spare, (NAME##_run *)spare + most, runs, starts);                 \
            KEY *end = keys;                                                                                           \
            for (int64_t i = 0; i < runs; i++)                                                                         \
                for (uint32_t left = run[i].length; left; left--) *end++ = run[i].key;                                 \
        } else if (NAME##_sort(keys, spare, count, starts) != keys)                                                    \
            memcpy(keys, spare, (size_t)count * sizeof *keys);                                                         \
        free(starts);                                                                                                  \
        free(spare);                                                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            where[positives] = i; /* kept only if the next line moves on */                                            \
            positives += keys[i] & 1;                                                                                  \
        }                                                                                                              \
        curve->wins = 0;                                                                                               \
        curve->precision = 0;                                                                                          \
        for (int64_t below = 0, next; below < positives; below = next) { /* one tie of positives after the other */    \
            const int64_t first = where[below];                                                                        \
            const KEY key = keys[first];                                                                               \
            int64_t tied = 0; /* negatives, which come right before the positives of their tie */                      \
            for (next = below + 1; next < positives && keys[where[next]] == key; next++) continue;                     \
            while (tied < first && keys[first - tied - 1] == key - 1) tied++;                                          \
            const int64_t negatives_below = first - below - tied;                                                      \
            curve->wins += (next - below) * (2 * negatives_below + tied);                                              \
            curve->precision +=                                                                                        \
                (double)(next - below) * ((double)(positives - below) / (double)(count - below - negatives_below));    \
        }                                                                                                              \
        return positives;                                                                                              \
    }

DEFINE_RANK(rank32, uint32_t, 3)
DEFINE_RANK(rank64, uint64_t, 6)
