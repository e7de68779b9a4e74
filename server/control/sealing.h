/* sealing - a text closed with the server's key, so that whoever reads the store does not learn it
 *
 * AES-256-GCM with a nonce of its own for each; what it belongs to (`of`) is sealed with it, so that a sealed text put
 * in the place of another does not open. Pure but for the nonce.
 */
#ifndef MUSTER_SERVER_SEALING_H
#define MUSTER_SERVER_SEALING_H

#include <stddef.h>

#include "base/chance.h"
#include "base/merr.h"

#define SEALING_KEY_BYTES 32

struct sealing_key {
    unsigned char bytes[SEALING_KEY_BYTES];
};

/* The key in a file of the state folder, made when it is missing (0600). 0 or a negative errno with words. */
int sealing_read_key(const char *path, struct sealing_key *ret, struct merr *err);

/* The sealed text as hexadecimal digits, new; NULL: no memory, or no chance. */
char *sealing_close(const struct chance *chance, const struct sealing_key *key, const char *of, const char *text);

/* What was sealed, new. NULL: it was changed, is of something else or of another key. */
char *sealing_open(const struct sealing_key *key, const char *of, const char *sealed);

#endif
