#include "tests/memory/store_memory.h"

#include <assert.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tests/memory/values.h"

#define REPLY_BYTES (1 << 30)
#define STREAMS_MAX 4 /* that there are */

struct store_memory {
    const struct clock *clock; /* borrowed */
    struct values *values;
    struct store_memory_hooks hooks;
};

struct store_connection {
    struct store_memory *m;
    bool connected;
    redisReader *reader; /* holds the replies that nobody has taken; NULL: none was asked for */
};

/* --- the backend ------------------------------------------------------------------------------------- */

static enum store_fault fault_at(const struct store_memory *m, enum store_moment at)
{
    return m->hooks.fault ? m->hooks.fault(m->hooks.arg, at) : STORE_FINE;
}

static void disconnect(struct store_connection *c)
{
    if (c->reader)
        redisReaderFree(c->reader);
    c->reader = NULL;
    c->connected = false;
}

/* Whether a call arrives; *ret_answered: and its answer does. */
static bool arrives(struct store_connection *c, enum store_moment at, bool *ret_answered)
{
    enum store_fault f = c->connected ? fault_at(c->m, at) : STORE_LOST;

    *ret_answered = f == STORE_FINE;
    if (f != STORE_FINE)
        disconnect(c);
    return f == STORE_FINE || f == STORE_UNANSWERED;
}

static const char *meta(const struct store_memory *m, const char *name)
{
    const char *text = values_field(m->values, "muster:meta", name);

    return text ? text : "";
}

/* A command of C strings that is never refused. */
#define WRITE(m, ...)                                                                                                  \
    values_write((m)->values, &(struct values_args){.v = {__VA_ARGS__},                                                \
                                                    .n = sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)})

static int lead(void *self, const struct store_claim *claim, uint64_t *ret_epoch, int64_t *ret_left_ms,
                struct merr *err)
{
    struct store_connection *c = self;
    struct store_memory *m = c->m;
    char ms[16], above[24];
    bool answered;

    (void)err;
    if (!arrives(c, STORE_AT_LEAD, &answered))
        return -ENOTCONN;
    if (values_text(m->values, "muster:lease") && !claim->force) {
        *ret_epoch = 0;
        *ret_left_ms = (values_left_us(m->values, "muster:lease") + 999) / 1000;
        return answered ? 0 : -ENOTCONN;
    }
    (void)snprintf(ms, sizeof(ms), "%d", claim->lease_ms);
    (void)snprintf(above, sizeof(above), "%llu", (unsigned long long)claim->above);
    WRITE(m, "SET", "muster:lease", claim->who, "PX", ms);
    if (strtoull(meta(m, "epoch"), NULL, 10) < claim->above)
        WRITE(m, "HSET", "muster:meta", "epoch", above);
    WRITE(m, "HSET", "muster:meta", "batch", "0");
    WRITE(m, "HINCRBY", "muster:meta", "epoch", "1");
    *ret_epoch = strtoull(meta(m, "epoch"), NULL, 10);
    *ret_left_ms = 0;
    return answered ? 0 : -ENOTCONN;
}

static void resign(void *self, const char *who)
{
    struct store_connection *c = self;
    const char *lease = c->connected ? values_text(c->m->values, "muster:lease") : NULL;

    if (lease && strcmp(lease, who) == 0)
        WRITE(c->m, "DEL", "muster:lease");
}

/* A batch's next command. */
static void next_command(char **at, struct values_args *a)
{
    a->n = (int)strtol(values_next_bulk(at), NULL, 10);
    assert(a->n > 0 && a->n <= VALUES_ARGS_MAX);
    for (int i = 0; i < a->n; i++)
        a->v[i] = values_next_bulk(at);
}

/* Whether all commands can be carried out. */
static int check(struct store_memory *m, char *at, const char *end, struct merr *err)
{
    struct {
        const char *key;
        uint64_t newest;
    } streams[STREAMS_MAX] = {{NULL, 0}};
    struct values_args a;

    while (at < end) {
        const char *v;

        next_command(&at, &a);
        if (values_is(&a, "XADD")) {
            int i = 0;

            while (i < STREAMS_MAX && streams[i].key && strcmp(streams[i].key, a.v[1]) != 0)
                i++;
            assert(i < STREAMS_MAX);
            if (!streams[i].key)
                streams[i].newest = values_newest(m->values, a.v[1]);
            streams[i].key = a.v[1];
            if (strtoull(a.v[5], NULL, 10) <= streams[i].newest)
                return merr_set(err, -ESTALE, "the event %s is not newer than the newest", a.v[5]);
            streams[i].newest = strtoull(a.v[5], NULL, 10);
        }
        if (!values_is(&a, "GUARD"))
            continue;
        v = values_field(m->values, a.v[1], "v");
        if (strcmp(v ? v : "0", a.v[2]) != 0)
            return merr_set(err, -ESTALE, "%s has version %s, not %s", a.v[1], v ? v : "0", a.v[2]);
    }
    return 0;
}

static int apply(struct store_memory *m, const struct store_batch *b, struct merr *err)
{
    char number[24], epoch[24], *copy = malloc(b->len + 1), *at = copy;
    struct values_args a;
    int r;

    (void)snprintf(epoch, sizeof(epoch), "%llu", (unsigned long long)b->epoch);
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)b->number);
    assert(copy);
    memcpy(copy, b->args, b->len);
    r = strcmp(meta(m, "epoch"), epoch) == 0 ? 0 : merr_set(err, -ESTALE, "another musterd leads");
    if (r < 0 || strcmp(meta(m, "batch"), number) == 0) {
        free(copy);
        return r;
    }
    if (strtoull(meta(m, "batch"), NULL, 10) + 1 != b->number)
        r = merr_set(err, -ESTALE, "the store has lost changes: it is at %s, and %s is the next", meta(m, "batch"),
                     number);
    if (r == 0)
        r = check(m, copy, copy + b->len, err);
    while (r == 0 && at < copy + b->len) {
        next_command(&at, &a);
        if (!values_is(&a, "GUARD"))
            values_write(m->values, &a);
    }
    if (r == 0)
        WRITE(m, "HSET", "muster:meta", "batch", number);
    free(copy);
    return r;
}

static int commit(void *self, const struct store_batch *b, struct merr *err)
{
    struct store_connection *c = self;
    enum store_fault f = c->connected ? fault_at(c->m, STORE_AT_COMMIT) : STORE_LOST;
    int r;

    if (f == STORE_REFUSED)
        return merr_set(err, -EAGAIN, "it cannot write");
    r = f == STORE_LOST ? -ENOTCONN : apply(c->m, b, err);
    if (f == STORE_FINE)
        return r;
    disconnect(c);
    return -ENOTCONN;
}

/* A command as hiredis prints it: "*n", then as many bulk strings. */
static int ask(void *self, const char *command, size_t len)
{
    struct store_connection *c = self;
    char *copy, *at;
    struct values_args a;
    struct buf b;
    bool answered;

    if (!arrives(c, STORE_AT_READ, &answered) || !answered)
        return -ENOTCONN;
    if (!c->reader)
        c->reader = redisReaderCreate();
    copy = strndup(command, len);
    assert(c->reader && copy);
    a.n = (int)strtol(copy + 1, &at, 10);
    assert(a.n > 0 && a.n <= VALUES_ARGS_MAX);
    at += 2;
    for (int i = 0; i < a.n; i++)
        a.v[i] = values_next_bulk(&at);
    buf_init(&b, REPLY_BYTES);
    values_read(c->m->values, &a, &b);
    if (redisReaderFeed(c->reader, b.data, b.len) != REDIS_OK)
        disconnect(c);
    buf_clear(&b);
    free(copy);
    return 0;
}

static int answer(void *self, struct redisReply **ret)
{
    struct store_connection *c = self;
    void *reply = NULL;

    if (!c->reader || redisReaderGetReply(c->reader, &reply) != REDIS_OK || !reply)
        return -ENOTCONN;
    *ret = reply;
    return 0;
}

static bool connected(const void *self)
{
    return ((const struct store_connection *)self)->connected;
}

static void wait_ms(void *self, int ms)
{
    const struct store_memory *m = ((struct store_connection *)self)->m;

    if (m->hooks.wait)
        m->hooks.wait(m->hooks.arg, ms * INT64_C(1000));
}

static int reconnect(void *self, int64_t wait_us, struct merr *err)
{
    struct store_connection *c = self;

    disconnect(c);
    if (fault_at(c->m, STORE_AT_CONNECT) != STORE_FINE) {
        wait_ms(c, (int)((wait_us + 999) / 1000));
        return merr_set(err, -ETIMEDOUT, "the store in memory does not answer");
    }
    c->connected = true;
    return 0;
}

struct store_connection *store_memory_connect(struct store_memory *m, struct store_backend *ret_backend)
{
    static const struct store_ops ops = {
        .lead = lead,
        .resign = resign,
        .commit = commit,
        .ask = ask,
        .answer = answer,
        .connected = connected,
        .connect = reconnect,
        .wait = wait_ms,
        .up = connected,
    };
    struct store_connection *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->m = m;
    c->connected = true;
    *ret_backend = (struct store_backend){.ops = &ops, .self = c, .clock = m->clock};
    return c;
}

void store_connection_free(struct store_connection *c)
{
    if (!c)
        return;
    disconnect(c);
    free(c);
}

void store_connection_break(struct store_connection *c)
{
    disconnect(c);
}

int64_t store_memory_lease_us(struct store_memory *m)
{
    return values_left_us(m->values, "muster:lease");
}

/* --- the memory -------------------------------------------------------------------------------------- */

struct store_memory *store_memory_new(const struct clock *clock)
{
    struct store_memory *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->clock = clock;
    m->values = values_new(clock);
    if (!m->values) {
        free(m);
        return NULL;
    }
    return m;
}

void store_memory_free(struct store_memory *m)
{
    if (!m)
        return;
    values_free(m->values);
    free(m);
}

void store_memory_set_hooks(struct store_memory *m, const struct store_memory_hooks *hooks)
{
    m->hooks = *hooks;
}

json_t *store_memory_dump(struct store_memory *m)
{
    return values_dump(m->values);
}
