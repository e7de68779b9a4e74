#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

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
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t c = ~crc, word;

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
