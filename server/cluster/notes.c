#include "server/cluster/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void notes_add_new(struct notes *all, uint64_t job, const char *code, json_t *data, const char *fmt, ...)
{
    va_list ap;

    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 4;
        struct note *v = realloc(all->v, cap * sizeof(*v));

        if (!v) {
            json_decref(data);
            return;
        }
        all->v = v;
        all->cap = cap;
    }
    all->v[all->n] = (struct note){.job = job, .code = code, .data = data};
    va_start(ap, fmt);
    (void)vsnprintf(all->v[all->n++].text, NOTES_TEXT_MAX, fmt, ap);
    va_end(ap);
}

void notes_clear(struct notes *all)
{
    for (size_t i = 0; i < all->n; i++)
        json_decref(all->v[i].data);
    free(all->v);
    *all = (struct notes){.n = 0};
}
