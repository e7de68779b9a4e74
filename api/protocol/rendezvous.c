#include "api/protocol/rendezvous.h"

#include <string.h>

static const struct wire_field entry_fields[] = {
    {.name = "key",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED | WIRE_NAME,
     WIRE_AT(rendezvous_entry, key),
     .min = 1,
     .what = "name of the file, which is not hidden"},
    {.name = "value",
     .kind = WIRE_STRING,
     .flags = WIRE_NEEDED,
     WIRE_AT(rendezvous_entry, value),
     .what = "its bytes, as base64"},
};

const struct wire_message rendezvous_entry_message = {
    .name = "rendezvous-key",
    .what = "A file of a run's `rendezvous/`.",
    WIRE_MESSAGE(rendezvous_entry, entry_fields),
};

static const struct wire_field fields[] = {
    {.name = "next",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(rendezvous, next),
     .min = 0,
     .max = INT64_MAX,
     .what = "ask from here on (`since`)"},
    {.name = "keys",
     .kind = WIRE_LIST,
     WIRE_AT(rendezvous, keys),
     WIRE_COUNT(rendezvous, n_keys),
     .most = RENDEZVOUS_KEYS_MAX,
     .of = &rendezvous_entry_message,
     .what = "that were put since, in order"},
};

const struct wire_message rendezvous_message = {
    .name = "rendezvous",
    .what = "The answer to `GET` and, without keys, to `PUT /v1/agents/{node}/rendezvous/…`.",
    WIRE_MESSAGE(rendezvous, fields),
};

bool rendezvous_key_ok(const char *key)
{
    size_t n = strlen(key);

    return n > 0 && n <= RENDEZVOUS_NAME_MAX && key[0] != '.' &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

int rendezvous_read(const json_t *doc, struct rendezvous *ret, struct merr *err)
{
    return wire_read(&rendezvous_message, doc, ret, err);
}

json_t *rendezvous_write(const struct rendezvous *r)
{
    return wire_write(&rendezvous_message, r);
}

void rendezvous_clear(struct rendezvous *r)
{
    wire_clear(&rendezvous_message, r);
}
