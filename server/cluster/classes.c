/* Classes of devices: their numbers, whose jobs they are for, and how fast runs have shown them to be. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/core.h"

static uint8_t find(const struct core *c, const char *name)
{
    uint8_t i = 0;

    while (i < c->n_classes && strcmp(c->classes[i], name) != 0)
        i++;
    return i < c->n_classes ? i : CORE_CLASSES_MAX;
}

void classes_of_spec(const struct core *c, struct entry *e, const struct job_spec *spec)
{
    e->classes = spec->devices.n_classes ? 0 : CORE_ANY_CLASS;
    e->classes_missing = false;
    for (size_t i = 0; i < spec->devices.n_classes; i++) {
        uint8_t bit = find(c, spec->devices.classes[i]);

        if (bit < CORE_CLASSES_MAX)
            e->classes |= UINT64_C(1) << bit;
        else
            e->classes_missing = true;
    }
}

/* A class is new: the jobs that named it before it was there may use it. */
static void tell_jobs(struct core *c)
{
    for (size_t i = 0; i < c->n_order; i++) {
        struct entry *e = core_find(c, c->order[i]);
        struct job_spec *spec = e && e->classes_missing ? core_spec_of(e) : NULL;

        if (spec)
            classes_of_spec(c, e, spec);
        spec_free(spec);
    }
}

uint8_t core_class(struct core *c, const char *name)
{
    uint8_t at = find(c, name);

    if (at < CORE_CLASSES_MAX || c->n_classes == CORE_CLASSES_MAX)
        return at;
    at = (uint8_t)c->n_classes++;
    (void)snprintf(c->classes[at], SPEC_NAME_MAX, "%s", name);
    tell_jobs(c);
    return at;
}

/* --- speeds ------------------------------------------------------------------------------------------ */

void classes_learned(struct core *c)
{
    c->speeds_learned = true;
}

void classes_keep(struct core *c)
{
    if (!c->speeds_learned)
        return;
    c->speeds_learned = false;
    for (size_t i = 0; i < c->n_classes; i++) {
        char text[64];

        if (!(c->speeds[i][0] > 0 || c->speeds[i][1] > 0))
            continue;
        (void)snprintf(text, sizeof(text), "%.9g %.9g", c->speeds[i][0], c->speeds[i][1]);
        store_put(c->store, STORE_SPEEDS, c->classes[i], text);
    }
}

int classes_load(struct core *c, struct merr *err)
{
    struct store_rows all;
    int r = store_read_rows(c->store, STORE_SPEEDS, &all, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < all.n; i++) {
        uint8_t at = find(c, all.v[i].name);
        double f32, bf16;

        if (at == CORE_CLASSES_MAX) /* no node has it any more */
            store_drop(c->store, STORE_SPEEDS, all.v[i].name);
        else if (sscanf(all.v[i].text, "%lf %lf", &f32, &bf16) == 2 && f32 >= 0 && bf16 >= 0) {
            c->speeds[at][0] = f32;
            c->speeds[at][1] = bf16;
        }
    }
    store_rows_clear(&all);
    return 0;
}
