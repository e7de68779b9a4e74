#include "server/http/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct query_parameter *find(const struct query_parameter *known, const char *name)
{
    for (; known && known->name; known++)
        if (strcmp(known->name, name) == 0)
            return known;
    return NULL;
}

static void say_unknown(const struct query_parameter *known, const char *name, char *ret, size_t size)
{
    int used = snprintf(ret, size, "'%.64s' is no parameter of this; it takes %s", name, known ? "" : "none");

    for (; known && known->name && (size_t)used < size; known++)
        used += snprintf(ret + used, size - (size_t)used, "%s%s", known->name, known[1].name ? ", " : "");
}

static bool in_range(const struct query_parameter *p, const char *text)
{
    char *end;
    long long n;

    errno = 0;
    n = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0 && n >= p->least && n <= p->most;
}

bool query_ok(const struct query_parameter *known, const struct http_fields *given, char *ret_why, size_t size)
{
    for (size_t i = 0; i < given->n; i++) {
        const char *name = given->v[i].name, *value = given->v[i].value;
        const struct query_parameter *p = find(known, name);

        if (!p) {
            say_unknown(known, name, ret_why, size);
            return false;
        }
        for (size_t k = 0; k < i; k++)
            if (strcmp(given->v[k].name, name) == 0) {
                (void)snprintf(ret_why, size, "'%s' is given twice", name);
                return false;
            }
        if (p->number && !in_range(p, value)) {
            (void)snprintf(ret_why, size, "'%s' is a whole number from %lld to %lld, not '%.64s'", name,
                           (long long)p->least, (long long)p->most, value);
            return false;
        }
    }
    return true;
}
