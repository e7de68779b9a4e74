#include "server/control/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/rendezvous.h"
#include "server/control/state.h"
#include "server/control/waiters.h"

#define BYTES_MAX (256 << 20) /* of all runs */
#define ANSWER_BYTES (8 << 20)

void rendezvous_drop(struct core *c, struct entry *e)
{
    struct entry_run *run = &e->run;

    for (size_t i = 0; i < run->n_keys; i++) {
        free(run->keys[i].key);
        free(run->keys[i].value);
    }
    c->rendezvous_bytes -= run->keys_bytes;
    free(run->keys);
    run->keys = NULL;
    run->n_keys = run->keys_bytes = 0;
}

uint64_t rendezvous_next(const struct core *c, const struct entry *e)
{
    return c->first_version + e->run.n_keys;
}

json_t *rendezvous_view(const struct core *c, const struct entry *e, uint64_t since)
{
    const struct entry_run *run = &e->run;
    uint64_t first = c->first_version, from = since >= first && since <= first + run->n_keys ? since - first : 0, i;
    struct rendezvous r = {.keys = calloc(run->n_keys - from + 1, sizeof(*r.keys))};
    size_t bytes = 0;
    json_t *doc;

    for (i = from; r.keys && i < run->n_keys && bytes < ANSWER_BYTES; i++) {
        struct rendezvous_entry *one = &r.keys[r.n_keys++];

        bytes += strlen(run->keys[i].value);
        (void)snprintf(one->key, sizeof(one->key), "%s", run->keys[i].key);
        one->value = run->keys[i].value;
    }
    r.next = (int64_t)(first + i);
    doc = r.keys ? rendezvous_write(&r) : NULL;
    rendezvous_clear(&r);
    return doc;
}

int rendezvous_put(struct core *c, struct entry *e, const char *key, const char *value)
{
    size_t bytes = strlen(key) + strlen(value) + sizeof(struct rendezvous_key);
    struct entry_run *run = &e->run;
    struct rendezvous_key new, *grown;

    for (size_t i = 0; i < run->n_keys; i++)
        if (strcmp(run->keys[i].key, key) == 0)
            return 0; /* sent again: the first one stands */
    if (run->n_keys == RENDEZVOUS_KEYS_MAX || c->rendezvous_bytes + bytes > BYTES_MAX)
        return -ENOSPC;
    if ((run->n_keys & (run->n_keys - 1)) == 0) {
        grown = realloc(run->keys, (run->n_keys ? run->n_keys * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        run->keys = grown;
    }
    new = (struct rendezvous_key){.key = strdup(key), .value = strdup(value)};
    if (!new.key || !new.value) {
        free(new.key);
        free(new.value);
        return -ENOMEM;
    }
    run->keys[run->n_keys++] = new;
    run->keys_bytes += bytes;
    c->rendezvous_bytes += bytes;
    waiters_wake(c->waiters, e->job.id);
    return 0;
}
