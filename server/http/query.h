/* query - the parameters that a route takes behind its "?", and the refusal of all others
 *
 * A route names them in a list (http_route.query) that ends with a row without a name; NULL: it takes none. What a
 * handler is given has passed: known, given once, and a number in its range where it is one. Pure.
 */
#ifndef MUSTER_SERVER_QUERY_H
#define MUSTER_SERVER_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/http_parse.h"

struct query_parameter {
    const char *name;
    bool number; /* a whole one, from least to most; else any text, which its handler checks */
    int64_t least, most;
};

#define QUERY_TEXT(what)                                                                                               \
    {                                                                                                                  \
        .name = (what)                                                                                                 \
    }
#define QUERY_NUMBER(what, lo, hi)                                                                                     \
    {                                                                                                                  \
        .name = (what), .number = true, .least = (lo), .most = (hi)                                                    \
    }

/* Whether all that is given fits; else why not, in words. */
bool query_ok(const struct query_parameter *known, const struct http_fields *given, char *ret_why, size_t size);

#endif
