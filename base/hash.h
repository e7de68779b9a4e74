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

#endif
