/* rendezvous - small files by which the ranks of a run meet, carried between nodes through the server
 *
 * A key is the name of a file in the run's rendezvous/ folder, its value the file's bytes as base64. The server numbers
 * the keys of a run: an agent asks for those from a number on, and is told the number to go on from.
 */
#ifndef MUSTER_API_PROTOCOL_RENDEZVOUS_H
#define MUSTER_API_PROTOCOL_RENDEZVOUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/protocol/wire.h"
#include "base/merr.h"

#define RENDEZVOUS_NAME_MAX 96           /* bytes of a key */
#define RENDEZVOUS_BYTES_MAX 65536       /* of a file */
#define RENDEZVOUS_VALUE_MAX (88 * 1024) /* of a file as base64 */
#define RENDEZVOUS_KEYS_MAX 16384        /* of a run */

struct rendezvous_entry {
    char key[RENDEZVOUS_NAME_MAX + 1];
    const char *value; /* borrowed */
};

struct rendezvous {
    int64_t next; /* ask from here on */
    struct rendezvous_entry *keys;
    size_t n_keys;
};

extern const struct wire_message rendezvous_message, rendezvous_entry_message;

/* Whether a file of this name is carried: not hidden, of letters, digits, '.', '_', '-'. */
bool rendezvous_key_ok(const char *key);

/* Read doc, borrowed; values are borrowed from it. Returns 0, -EINVAL with every fault, -ENOMEM; *ret is unchanged
 * then. */
int rendezvous_read(const json_t *doc, struct rendezvous *ret, struct merr *err);
json_t *rendezvous_write(const struct rendezvous *r); /* new; NULL without memory */
void rendezvous_clear(struct rendezvous *r);

#endif
