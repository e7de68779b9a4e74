#include "api/protocol/join.h"

#include <errno.h>
#include <string.h>

static const struct wire_field fields[] = {
    {.name = "code",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED | WIRE_NAME,
     WIRE_AT(join, code),
     .min = 1,
     .what = "that `muster node enroll` printed: `mjc_` and 48 hexadecimal digits"},
    {.name = "token",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED | WIRE_NAME,
     WIRE_AT(join, token),
     .min = 1,
     .what = "that is to be the node's, made by the agent: `mst_` and 48 hexadecimal digits"},
    {.name = "request",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(join, request),
     .what = "for a certificate (PKCS #10, PEM) of a P-256 key of the agent's"},
};

const struct wire_message join_message = {
    .name = "join",
    .what = "`POST /v1/agents/join`, without a token.",
    WIRE_MESSAGE(join, fields),
};

static const struct wire_field answer_fields[] = {
    {.name = "node",
     .kind = WIRE_STRING,
     .flags = WIRE_NEEDED,
     WIRE_AT(join_answer, node),
     .what = "that the token is bound to"},
    {.name = "certificate",
     .kind = WIRE_STRING,
     .flags = WIRE_OMIT,
     WIRE_AT(join_answer, certificate),
     .what = "of the node (PEM), to be shown with each call; left out: this server asks for none"},
};

const struct wire_message join_answer_message = {
    .name = "join-answer",
    .what = "The answer to it, with status 201, or 200 when it was asked again.",
    WIRE_MESSAGE(join_answer, answer_fields),
};

static const struct wire_field renewal_fields[] = {
    {.name = "request",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED,
     WIRE_AT(join_renewal, request),
     .min = 1,
     .what = "for a certificate, as in `join`, of a new key"},
};

const struct wire_message join_renewal_message = {
    .name = "renewal",
    .what = "`POST /v1/agents/{node}/certificate`.",
    WIRE_MESSAGE(join_renewal, renewal_fields),
};

static const struct wire_field renewed_fields[] = {
    {.name = "certificate",
     .kind = WIRE_STRING,
     .flags = WIRE_NEEDED,
     WIRE_AT(join_renewed, certificate),
     .what = "of the node (PEM)"},
};

const struct wire_message join_renewed_message = {
    .name = "renewal-answer",
    .what = "The answer to it. The certificate before it stays good until it expires.",
    WIRE_MESSAGE(join_renewed, renewed_fields),
};

bool join_secret_ok(const char *text, const char *prefix)
{
    return strlen(text) == JOIN_SECRET_LENGTH && strncmp(text, prefix, 4) == 0 &&
           strspn(text + 4, "0123456789abcdef") == JOIN_SECRET_LENGTH - 4;
}

bool join_node_ok(const char *node)
{
    size_t n = strlen(node);

    return n > 0 && n < PROTOCOL_NODE_MAX && *node != '.' &&
           strspn(node, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

int join_read(const json_t *doc, struct join *ret, struct merr *err)
{
    struct join j;
    int r = wire_read(&join_message, doc, &j, err);

    if (r < 0)
        return r;
    if (!join_secret_ok(j.code, "mjc_"))
        return merr_set(err, -EINVAL, "'code' is no join code: want mjc_ and 48 hexadecimal digits");
    if (!join_secret_ok(j.token, "mst_"))
        return merr_set(err, -EINVAL, "'token' is no token: want mst_ and 48 hexadecimal digits");
    *ret = j;
    return 0;
}

json_t *join_write(const struct join *j)
{
    return wire_write(&join_message, j);
}

int join_answer_read(const json_t *doc, struct join_answer *ret, struct merr *err)
{
    struct join_answer a;
    int r = wire_read(&join_answer_message, doc, &a, err);

    if (r < 0)
        return r;
    if (!join_node_ok(a.node))
        return merr_set(err, -EINVAL, "the server gives '%.64s', which is no node's name", a.node);
    *ret = a;
    return 0;
}

json_t *join_answer_write(const struct join_answer *a)
{
    return wire_write(&join_answer_message, a);
}

int join_renewal_read(const json_t *doc, struct join_renewal *ret, struct merr *err)
{
    return wire_read(&join_renewal_message, doc, ret, err);
}

json_t *join_renewal_write(const struct join_renewal *r)
{
    return wire_write(&join_renewal_message, r);
}

int join_renewed_read(const json_t *doc, struct join_renewed *ret, struct merr *err)
{
    return wire_read(&join_renewed_message, doc, ret, err);
}

json_t *join_renewed_write(const struct join_renewed *r)
{
    return wire_write(&join_renewed_message, r);
}
