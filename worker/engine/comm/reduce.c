#include "worker/engine/comm/reduce.h"

#include <assert.h>
#include <string.h>

#define TILE 1024 /* elements held in the first cache while all sources are added to them */

#define ADD(a, b) ((a) + (b))
#define MAX_INT(a, b) ((a) > (b) ? (a) : (b))
#define MAX_REAL(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

/* One for wider vectors, chosen where the program starts, before what sanitizers need is there. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define WIDER __attribute__((target_clones("avx2", "default")))
#else
#define WIDER
#endif

/* Sums of integers are taken in an unsigned type U, where wrapping is defined. */
#define FOLD(name, T, COMBINE)                                                                                         \
    WIDER static void name(char *dst, const void *const *src, int n, size_t count)                                     \
    {                                                                                                                  \
        T acc[TILE];                                                                                                   \
                                                                                                                       \
        for (size_t at = 0; at < count; at += TILE) {                                                                  \
            size_t m = count - at < TILE ? count - at : TILE;                                                          \
                                                                                                                       \
            memcpy(acc, (const char *)src[0] + at * sizeof(T), m * sizeof(T));                                         \
            for (int k = 1; k < n; k++) {                                                                              \
                const char *s = (const char *)src[k] + at * sizeof(T);                                                 \
                                                                                                                       \
                for (size_t i = 0; i < m; i++) {                                                                       \
                    T x;                                                                                               \
                                                                                                                       \
                    memcpy(&x, s + i * sizeof(T), sizeof(T));                                                          \
                    acc[i] = (T)COMBINE(acc[i], x);                                                                    \
                }                                                                                                      \
            }                                                                                                          \
            memcpy(dst + at * sizeof(T), acc, m * sizeof(T));                                                          \
        }                                                                                                              \
    }

FOLD(sum_u8, uint8_t, ADD)
FOLD(sum_i64, uint64_t, ADD)
FOLD(sum_f32, float, ADD)
FOLD(sum_f64, double, ADD)
FOLD(max_u8, uint8_t, MAX_INT)
FOLD(max_i64, int64_t, MAX_INT)
FOLD(max_f32, float, MAX_REAL)
FOLD(max_f64, double, MAX_REAL)

size_t reduce_size(enum comm_type type)
{
    static const size_t size[] = {[COMM_U8] = 1, [COMM_I64] = 8, [COMM_F32] = 4, [COMM_F64] = 8};

    return (unsigned)type <= COMM_F64 ? size[type] : 0;
}

void reduce_fold(void *dst, const void *const *src, int n, size_t count, enum comm_type type, enum comm_op op)
{
    static void (*const fold[][2])(char *, const void *const *, int, size_t) = {
        [COMM_U8] = {sum_u8, max_u8},
        [COMM_I64] = {sum_i64, max_i64},
        [COMM_F32] = {sum_f32, max_f32},
        [COMM_F64] = {sum_f64, max_f64},
    };

    assert(n >= 1 && (unsigned)type <= COMM_F64 && (unsigned)op <= COMM_MAX);
    fold[type][op](dst, src, n, count);
}
