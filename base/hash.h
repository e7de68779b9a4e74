/* hash - checksums: CRC-32C (Castagnoli) for stored bytes, XXH3 for logical ones */
#ifndef MUSTER_BASE_HASH_H
#define MUSTER_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C of data appended to what crc covers; start with 0. Uses the processor's instruction where
 * there is one. */
uint32_t hash_crc32c(uint32_t crc, const void *data, size_t len);

/* The plain twin of hash_crc32c: byte by byte from a table, for its test. */
uint32_t hash_crc32c_plain(uint32_t crc, const void *data, size_t len);

uint64_t hash_xxh3(const void *data, size_t len);

/* XXH3-128 of a stream of any length. hash128_new gives NULL when memory is short. */
struct hash128;
struct hash128 *hash128_new(void);
void hash128_free(struct hash128 *h);
void hash128_add(struct hash128 *h, const void *data, size_t len);
/* 32 hex digits and NUL of all added so far; more may be added after. */
void hash128_hex(const struct hash128 *h, char ret[33]);

#endif
