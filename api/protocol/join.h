/* join - how an agent trades a code for a token of its node
 *
 * The agent makes the token and sends it, so that it may ask again when an answer was lost (server/control/enroll.h).
 */
#ifndef MUSTER_API_PROTOCOL_JOIN_H
#define MUSTER_API_PROTOCOL_JOIN_H

#include <jansson.h>
#include <stdbool.h>

#include "api/protocol/protocol.h"
#include "base/merr.h"

#define JOIN_TEXT_MAX 128     /* bytes of a code or a token, with its NUL */
#define JOIN_REQUEST_MAX 2048 /* bytes of a request for a certificate */
#define JOIN_SECRET_LENGTH 52 /* of either: "mjc_" or "mst_" and 48 hex digits */

struct join {
    char code[JOIN_TEXT_MAX];
    char token[JOIN_TEXT_MAX];
    char request[JOIN_REQUEST_MAX];
};

struct join_answer {
    const char *node;        /* borrowed: that the token is bound to */
    const char *certificate; /* borrowed; NULL: this server asks for none */
};

/* An agent whose certificate will soon be over asks for the next one. */
struct join_renewal {
    char request[JOIN_REQUEST_MAX];
};

struct join_renewed {
    const char *certificate; /* borrowed */
};

extern const struct wire_message join_message, join_answer_message, join_renewal_message, join_renewed_message;

/* Read doc, borrowed. Returns 0, -EINVAL with every fault, -ENOMEM; *ret is unchanged then. */
int join_read(const json_t *doc, struct join *ret, struct merr *err);
json_t *join_write(const struct join *j);
int join_answer_read(const json_t *doc, struct join_answer *ret, struct merr *err);
json_t *join_answer_write(const struct join_answer *a);
int join_renewal_read(const json_t *doc, struct join_renewal *ret, struct merr *err);
json_t *join_renewal_write(const struct join_renewal *r);
int join_renewed_read(const json_t *doc, struct join_renewed *ret, struct merr *err);
json_t *join_renewed_write(const struct join_renewed *r);

/* Whether a text is what a code ("mjc_") or a token ("mst_") looks like: nobody guesses one. */
bool join_secret_ok(const char *text, const char *prefix);

/* Whether a node can have this name. */
bool join_node_ok(const char *node);

#endif
