#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the library's loops for this processor instead of those for any */
#endif

static uint32_t table[256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;

        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        table[i] = c;
    }
}

uint32_t hash_crc32c_plain(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    (void)pthread_once(&table_once, make_table);
    crc = ~crc;
    while (len--)
        crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
#define LANE 1024u /* bytes of each of three lanes: the instruction takes three cycles, but one begins each cycle */
#define LINE 64u   /* of the cache: the processor does not foresee three lanes, so the next ones are asked for */

static uint32_t past_lane[4][256]; /* what LANE zero bytes make of each byte of a sum */
static pthread_once_t past_lane_once = PTHREAD_ONCE_INIT;

/* A sum over bits is the sum of the bits' own: so one walk a bit gives the tables. */
static void make_past_lane(void)
{
    (void)pthread_once(&table_once, make_table);
    for (uint32_t bit = 0; bit < 32; bit++) {
        uint32_t c = 1u << bit;

        for (uint32_t i = 0; i < LANE; i++)
            c = table[c & 0xff] ^ c >> 8;
        for (uint32_t b = 0; b < 256; b++)
            if (b >> bit % 8 & 1)
                past_lane[bit / 8][b] ^= c;
    }
}

static uint64_t pass_lane(uint64_t c)
{
    return past_lane[0][c & 0xff] ^ past_lane[1][c >> 8 & 0xff] ^ past_lane[2][c >> 16 & 0xff] ^
           past_lane[3][c >> 24 & 0xff];
}

__attribute__((target("sse4.2"))) static uint64_t three_lanes(uint64_t c, const uint8_t *p)
{
    uint64_t d = 0, e = 0, word[3];

    for (size_t line = 0; line < LANE; line += LINE) {
        for (size_t lane = 3; lane < 6; lane++)
            __builtin_prefetch(p + lane * LANE + line); /* harmless past the end */
        for (size_t i = line; i < line + LINE; i += 8) {
            memcpy(&word[0], p + i, 8);
            memcpy(&word[1], p + LANE + i, 8);
            memcpy(&word[2], p + 2 * LANE + i, 8);
            c = __builtin_ia32_crc32di(c, word[0]);
            d = __builtin_ia32_crc32di(d, word[1]);
            e = __builtin_ia32_crc32di(e, word[2]);
        }
    }
    return pass_lane(pass_lane(c) ^ d) ^ e;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t c = ~crc, word;

    (void)pthread_once(&past_lane_once, make_past_lane);
    for (; len >= 3 * (size_t)LANE; len -= 3 * (size_t)LANE, p += 3 * (size_t)LANE)
        c = three_lanes(c, p);
    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    for (; len; len--)
        c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
    return ~(uint32_t)c;
}

uint32_t hash_crc32c(uint32_t crc, const void *data, size_t len)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, len) : hash_crc32c_plain(crc, data, len);
}
#else
uint32_t hash_crc32c(uint32_t crc, const void *data, size_t len)
{
    return hash_crc32c_plain(crc, data, len);
}
#endif

uint64_t hash_xxh3(const void *data, size_t len)
{
    return XXH3_64bits(data, len);
}

/* A hash128 is xxhash's own state under our name. */
struct hash128 *hash128_new(void)
{
    XXH3_state_t *s = XXH3_createState();

    if (s)
        (void)XXH3_128bits_reset(s);
    return (struct hash128 *)s;
}

void hash128_free(struct hash128 *h)
{
    (void)XXH3_freeState((XXH3_state_t *)h);
}

void hash128_add(struct hash128 *h, const void *data, size_t len)
{
    (void)XXH3_128bits_update((XXH3_state_t *)h, data, len);
}

void hash128_hex(const struct hash128 *h, char ret[33])
{
    XXH128_hash_t v = XXH3_128bits_digest((const XXH3_state_t *)h);

    (void)snprintf(ret, 33, "%016llx%016llx", (unsigned long long)v.high64, (unsigned long long)v.low64);
}
