#include "server/store/metrics_priv.h"

#include <string.h>

bool metrics_named(const char *names, const char *key)
{
    size_t n = strlen(key);

    if (!names || !*names || strcmp(key, "step") == 0)
        return true;
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, key, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

void metrics_below(const struct of_job *o, int64_t ret[SPOOL_GENERATIONS])
{
    int64_t below = INT64_MAX;

    for (size_t f = o->n; f-- > 0;) {
        const struct metrics_index *x = &o->v[f];

        ret[f] = below;
        if (x->n_lines > 0 && x->first_step < below)
            below = x->first_step;
    }
}
