#include "tests/memory/provider_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));

    return value ? value : "";
}

static int request(struct provider_memory *m, const json_t *ask, json_t **ret, struct merr *err)
{
    struct provider_memory_one *one = &m->v[m->n];

    m->requests++;
    if (m->refuse > 0 || m->n == PROVIDER_MEMORY_MAX) {
        m->refuse--;
        return merr_set(err, -EIO, "no partition of this name");
    }
    *one = (struct provider_memory_one){.count = (int)json_integer_value(json_object_get(ask, "count")),
                                        .nodes = json_incref(json_object_get(ask, "nodes"))};
    (void)snprintf(one->name, sizeof(one->name), "%s", text(ask, "name"));
    (void)snprintf(one->queue, sizeof(one->queue), "%s", text(ask, "queue"));
    (void)snprintf(one->account, sizeof(one->account), "%s", text(ask, "account"));
    m->n++;
    if (m->lose_answers > 0) {
        m->lose_answers--;
        return merr_set(err, -ETIMEDOUT, "it did not end in time");
    }
    *ret = json_pack("{s:s}", "reference", "17");
    return 0;
}

static int release(struct provider_memory *m, const json_t *ask, json_t **ret)
{
    m->releases++;
    *ret = json_object();
    if (m->keep > 0) {
        m->keep--;
        return 0;
    }
    for (size_t i = m->n; i-- > 0;)
        if (strcmp(m->v[i].name, text(ask, "name")) == 0)
            provider_memory_end(m, i);
    return 0;
}

static int list(struct provider_memory *m, json_t **ret, struct merr *err)
{
    json_t *all = json_array();

    m->lists++;
    if (m->silent) {
        json_decref(all);
        return merr_set(err, -EIO, "the controller does not answer");
    }
    for (size_t i = 0; i < m->n * (m->twice ? 2 : 1); i++) {
        const struct provider_memory_one *one = &m->v[i % m->n];

        (void)json_array_append_new(all,
                                    json_pack("{s:s, s:s, s:s, s:s}", "name", one->name, "state",
                                              one->runs ? "running" : "waiting", "reference", "17", "why", "Priority"));
    }
    *ret = json_pack("{s:o}", "allocations", all);
    return 0;
}

static int make_call(void *self, enum provider_verb verb, const json_t *ask, const _Atomic int *stop, json_t **ret,
                     struct merr *err)
{
    (void)stop;
    return verb == PROVIDER_REQUEST   ? request(self, ask, ret, err)
           : verb == PROVIDER_RELEASE ? release(self, ask, ret)
                                      : list(self, ret, err);
}

struct provider_way provider_memory_way(struct provider_memory *m)
{
    return (struct provider_way){.call = make_call, .self = m};
}

void provider_memory_clear(struct provider_memory *m)
{
    while (m->n > 0)
        provider_memory_end(m, m->n - 1);
}

void provider_memory_grant(struct provider_memory *m)
{
    m->v[m->n - 1].runs = true;
}

void provider_memory_end(struct provider_memory *m, size_t i)
{
    json_decref(m->v[i].nodes);
    memmove(&m->v[i], &m->v[i + 1], (--m->n - i) * sizeof(m->v[0]));
}
