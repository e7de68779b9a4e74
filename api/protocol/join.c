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
};

const struct wire_message join_answer_message = {
    .name = "join-answer",
    .what = "The answer to it, with status 201, or 200 when it was asked again.",
    WIRE_MESSAGE(join_answer, answer_fields),
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
