/* ops - what ranks do together, in a word: by it an operation of one rank is held against that of another
 *
 * The digest of an operation is the same on all ranks that make the same call, also in other groups of the same name:
 * 4 bits say which call, 3 the kind of its group, and 25 are a hash of all that must agree. So it can be told in words.
 */
#ifndef MUSTER_BASE_OPS_H
#define MUSTER_BASE_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OPS_WINDOW 128 /* digests of a rank's newest operations that are kept */

static inline const char *ops_name(uint32_t op) /* "all_reduce"; "unknown": there is no such call */
{
    static const char *const name[] = {"none",       "all_reduce", "reduce_scatter", "all_gather",
                                       "all_to_all", "broadcast",  "barrier",        "send",
                                       "recv",       "reduce",     "gather",         "scatter"};

    return op < sizeof(name) / sizeof(name[0]) ? name[op] : "unknown";
}

static inline const char *ops_group(uint32_t kind) /* "?": it is none of those with a number */
{
    static const char *const name[] = {"?", "world", "tp", "kv", "cp", "dp", "pp", "pair"};

    return kind < sizeof(name) / sizeof(name[0]) ? name[kind] : "?";
}

/* agree: a hash of what else members must agree on. */
static inline uint32_t ops_digest(uint32_t op, const char *group, uint64_t agree)
{
    uint32_t kind = 7;

    while (kind > 0 && strcmp(ops_group(kind), group) != 0)
        kind--;
    return (op & 15) << 28 | kind << 25 | (uint32_t)((agree ^ agree >> 32) & 0x1ffffff);
}

/* "all_reduce", and the kind of its group: "tp" */
static inline const char *ops_of_digest(uint32_t digest, const char **ret_group)
{
    *ret_group = ops_group(digest >> 25 & 7);
    return ops_name(digest >> 28);
}

#endif
