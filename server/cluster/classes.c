#include "server/cluster/classes.h"

#include <stdio.h>
#include <string.h>

uint8_t classes_find(const struct classes *k, const char *name)
{
    uint8_t i = 0;

    while (i < k->n && strcmp(k->name[i], name) != 0)
        i++;
    return i < k->n ? i : CLASSES_MAX;
}

uint8_t classes_add(struct classes *k, const char *name)
{
    uint8_t at = classes_find(k, name);

    if (at < CLASSES_MAX || k->n == CLASSES_MAX)
        return at;
    at = (uint8_t)k->n++;
    (void)snprintf(k->name[at], SPEC_NAME_MAX, "%s", name);
    return at;
}

bool classes_of_spec(const struct classes *k, const struct job_spec *spec, uint64_t *ret)
{
    bool all = true;

    *ret = spec->devices.classes.n ? 0 : CLASSES_ANY;
    for (size_t i = 0; i < spec->devices.classes.n; i++) {
        uint8_t bit = classes_find(k, spec->devices.classes.v[i]);

        all = all && bit < CLASSES_MAX;
        if (bit < CLASSES_MAX)
            *ret |= UINT64_C(1) << bit;
    }
    return all;
}

uint64_t classes_usable(const struct classes *k, enum job_kind kind, uint64_t mask)
{
    return kind == JOB_TRAIN ? mask & ~k->command : mask;
}

uint64_t classes_roomy(const struct classes *k, uint64_t mask, int memory_mib, double cpus)
{
    for (size_t i = 0; i < k->n && i < CLASSES_MAX; i++)
        if ((k->memory_mib[i] > 0 && memory_mib > k->memory_mib[i]) || (k->threads[i] > 0 && cpus > k->threads[i]))
            mask &= ~(UINT64_C(1) << i);
    return mask;
}

double classes_speed(const struct classes *k, uint8_t class_, bool bf16)
{
    return k->speed[class_][bf16] > 0 ? k->speed[class_][bf16] : 1;
}

void classes_learn_speed(struct classes *k, uint8_t class_, bool bf16, double times, double share)
{
    double *at = &k->speed[class_][bf16];

    *at = *at > 0 ? (1 - share) * *at + share * times : times;
    k->learned = true;
}
