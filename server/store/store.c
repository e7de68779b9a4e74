#include "server/store/store_impl.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

#define LEASE_SLACK_S 5 /* waited beyond another's lease */
#define READ_WAIT_S 30

/* ARGV: epoch, batch, then for each command its number of arguments and those. GUARD is ours: key, version. */
static const char commit_script[] =
    "if redis.call('HGET', 'muster:meta', 'epoch') ~= ARGV[1] then return redis.error_reply('FENCED another musterd "
    "leads') end\n"
    "if redis.call('HGET', 'muster:meta', 'batch') == ARGV[2] then return 'AGAIN' end\n"
    "local i, n, later = 3, #ARGV, {}\n"
    "while i <= n do\n"
    "  local c = tonumber(ARGV[i])\n"
    "  if ARGV[i + 1] == 'GUARD' then\n"
    "    local v = redis.call('HGET', ARGV[i + 2], 'v') or '0'\n"
    "    if v ~= ARGV[i + 3] then return redis.error_reply('FENCED ' .. ARGV[i + 2] .. ' has version ' .. v .. ', not '"
    " .. ARGV[i + 3]) end\n"
    "  else later[#later + 1] = i end\n"
    "  i = i + c + 1\n"
    "end\n"
    "for _, at in ipairs(later) do redis.call(unpack(ARGV, at + 1, at + tonumber(ARGV[at]))) end\n"
    "redis.call('HSET', 'muster:meta', 'batch', ARGV[2])\n"
    "return 'OK'\n";

/* ARGV: who, force, milliseconds. Returns the new epoch; when another holds the lease, what is left of it, in
 * milliseconds below 0. */
static const char lead_script[] = "local holder = redis.call('GET', 'muster:lease')\n"
                                  "if holder and ARGV[2] == '0' then\n"
                                  "  return math.min(-1, -redis.call('PTTL', 'muster:lease'))\n"
                                  "end\n"
                                  "redis.call('SET', 'muster:lease', ARGV[1], 'PX', ARGV[3])\n"
                                  "redis.call('HSET', 'muster:meta', 'batch', '0')\n"
                                  "return redis.call('HINCRBY', 'muster:meta', 'epoch', 1)\n";

struct store {
    struct redis *redis;   /* borrowed */
    uint64_t epoch, batch; /* batch: number of the one being collected, from 1 */
    char who[80];
    char epoch_text[24];
    int lease_s;
    bool force; /* nobody else can lead */
    char lease_ms[16];
    struct buf ops; /* the batch as RESP bulk strings */
    size_t n_args;  /* in ops */
    bool failed;
};

uint64_t store_epoch(const struct store *s)
{
    return s->epoch;
}

bool store_up(const struct store *s)
{
    return redis_up(s->redis);
}

void store_job_key(uint64_t job, char ret[STORE_KEY_MAX])
{
    (void)snprintf(ret, STORE_KEY_MAX, "muster:job:%llu", (unsigned long long)job);
}

static void add_bulk(struct store *s, const char *data, size_t len)
{
    char head[32];
    int n = snprintf(head, sizeof(head), "$%zu\r\n", len);

    if (buf_add(&s->ops, head, (size_t)n) < 0 || buf_add(&s->ops, data, len) < 0 || buf_add(&s->ops, "\r\n", 2) < 0)
        s->failed = true;
    s->n_args++;
}

void store_addv(struct store *s, int argc, const char *const *argv, const size_t *lens)
{
    char count[16];

    assert(argc > 0);
    (void)snprintf(count, sizeof(count), "%d", argc);
    add_bulk(s, count, strlen(count));
    for (int i = 0; i < argc; i++)
        add_bulk(s, argv[i], lens ? lens[i] : strlen(argv[i]));
}

void store_add(struct store *s, const char *arg, ...)
{
    const char *argv[24];
    int argc = 0;
    va_list ap;

    va_start(ap, arg);
    for (const char *a = arg; a; a = va_arg(ap, const char *)) {
        assert(argc < 24);
        argv[argc++] = a;
    }
    va_end(ap);
    store_addv(s, argc, argv, NULL);
}

void store_guard_job(struct store *s, uint64_t job, uint64_t version)
{
    char key[STORE_KEY_MAX], v[24];

    store_job_key(job, key);
    (void)snprintf(v, sizeof(v), "%llu", (unsigned long long)version);
    store_add(s, "GUARD", key, v, NULL);
}

bool store_batch_empty(const struct store *s)
{
    return s->n_args == 0;
}

size_t store_batch_bytes(const struct store *s)
{
    return s->ops.len;
}

void store_renew(struct store *s)
{
    store_add(s, "SET", "muster:lease", s->who, "PX", s->lease_ms, NULL);
}

int64_t store_renew_every_us(const struct store *s)
{
    return s->force ? INT64_MAX : s->lease_s * INT64_C(250000);
}

/* Send the batch once and read the answer. NULL when the connection broke. */
static redisReply *send_batch(struct store *s, redisContext *c)
{
    char head[256], batch[24];
    void *reply = NULL;
    int n;

    (void)snprintf(batch, sizeof(batch), "%llu", (unsigned long long)s->batch);
    n = snprintf(head, sizeof(head), "*%zu\r\n$4\r\nEVAL\r\n$%zu\r\n", s->n_args + 5, sizeof(commit_script) - 1);
    if (redisAppendFormattedCommand(c, head, (size_t)n) != REDIS_OK ||
        redisAppendFormattedCommand(c, commit_script, sizeof(commit_script) - 1) != REDIS_OK)
        return NULL;
    n = snprintf(head, sizeof(head), "\r\n$1\r\n0\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(s->epoch_text),
                 s->epoch_text, strlen(batch), batch);
    if (redisAppendFormattedCommand(c, head, (size_t)n) != REDIS_OK ||
        redisAppendFormattedCommand(c, s->ops.data, s->ops.len) != REDIS_OK)
        return NULL;
    return redisGetReply(c, &reply) == REDIS_OK ? reply : NULL;
}

static int reconnect(struct store *s, const _Atomic int *stop, struct merr *err)
{
    bool told = false;

    while (redis_connect(s->redis, clock_mono_us() + 1000000, err) < 0) {
        if (*stop)
            return merr_set(err, -ECANCELED, "stopped while the store was away");
        if (!told)
            log_warn("the store is away: %s", err->text);
        told = true;
    }
    return 0;
}

int store_commit(struct store *s, const _Atomic int *stop, struct merr *err)
{
    struct merr local = {""};
    int r = 0;

    if (s->failed)
        return merr_set(err, s->ops.len >= s->ops.limit / 2 ? -EMSGSIZE : -ENOMEM, "cannot build a batch of %zu bytes",
                        s->ops.len);
    for (bool told = false; s->n_args > 0;) {
        redisContext *c = redis_context(s->redis);
        redisReply *reply = c ? send_batch(s, c) : NULL;
        bool done = reply && reply->type != REDIS_REPLY_ERROR;

        if (reply && !done && strncmp(reply->str, "FENCED", 6) == 0) {
            r = merr_set(err, -ESTALE, "%s", reply->str + 7);
            freeReplyObject(reply);
            return r;
        }
        if (reply && !done && !told)
            log_error("the store refuses a write, trying again: %s", reply->str);
        told = told || (reply && !done);
        freeReplyObject(reply);
        if (done)
            break;
        redis_set_up(s->redis, false);
        if (*stop)
            return merr_set(err, -ECANCELED, "stopped while the store was away");
        if (reply) /* it answers but cannot write: a full disk, say */
            (void)poll(NULL, 0, 200);
        r = reconnect(s, stop, &local);
        if (r < 0)
            return merr_set(err, r, "%s", local.text);
    }
    buf_reset(&s->ops);
    s->n_args = 0;
    s->batch++;
    return 0;
}

redisReply *store_read(struct store *s, struct merr *err, const char *fmt, ...)
{
    int64_t deadline = clock_mono_us() + READ_WAIT_S * 1000000LL;

    for (;;) {
        redisContext *c = redis_context(s->redis);
        redisReply *reply = NULL;
        va_list ap;

        if (c) {
            va_start(ap, fmt);
            reply = redisvCommand(c, fmt, ap);
            va_end(ap);
        }
        if (reply && reply->type != REDIS_REPLY_ERROR)
            return reply;
        if (reply) {
            (void)merr_set(err, -EIO, "the store answers: %s", reply->str);
            freeReplyObject(reply);
            return NULL;
        }
        if (clock_mono_us() > deadline) {
            (void)merr_set(err, -ETIMEDOUT, "the store does not answer");
            return NULL;
        }
        if (redis_connect(s->redis, deadline, err) < 0)
            return NULL;
    }
}

/* Drop the connection with all that is queued or unread on it. */
static void start_over(struct store *s)
{
    struct merr ignored;

    (void)redis_connect(s->redis, clock_mono_us(), &ignored);
}

int store_read_each(struct store *s, const char *fmt, const uint64_t *numbers, size_t n, store_each_fn *fn, void *arg,
                    struct merr *err)
{
    redisContext *c = redis_context(s->redis);
    int r = 0;

    if (!c)
        return merr_set(err, -EIO, "the store is away; try again");
    for (size_t i = 0; i < n; i++)
        if (redisAppendCommand(c, fmt, (unsigned long long)numbers[i]) != REDIS_OK) {
            start_over(s);
            return merr_set(err, -ENOMEM, "out of memory for %zu reads of the store", n);
        }
    for (size_t i = 0; i < n; i++) {
        void *reply = NULL;

        if (redisGetReply(c, &reply) != REDIS_OK || !reply) {
            start_over(s);
            return merr_set(err, -EIO, "the store is away; try again");
        }
        r = r < 0 ? r : fn(arg, i, reply, err);
        freeReplyObject(reply);
    }
    return r;
}

/* One attempt to lead. Returns 0 with the epoch, or with 0 as the epoch what is left of another's lease; -EIO. */
static int try_lead(struct store *s, bool force, int64_t *ret_epoch, int64_t *ret_left_ms, struct merr *err)
{
    redisReply *reply = store_read(s, err, "EVAL %s 0 %s %s %s", lead_script, s->who, force ? "1" : "0", s->lease_ms);
    int r = 0;

    if (!reply)
        return -EIO;
    if (reply->type != REDIS_REPLY_INTEGER)
        r = merr_set(err, -EPROTO, "the store answers no number to who leads");
    *ret_epoch = reply->integer > 0 ? reply->integer : 0;
    *ret_left_ms = reply->integer < 0 ? -reply->integer : 0;
    freeReplyObject(reply);
    return r;
}

/* Take the lead as soon as another's lease ends. One that grows meanwhile is renewed: the other is alive. */
static int lead(struct store *s, bool force, struct merr *err)
{
    int64_t deadline = INT64_MAX, epoch, left_ms, was_ms = INT64_MAX;

    for (bool told = false;; told = true) {
        int r = try_lead(s, force, &epoch, &left_ms, err);

        if (r < 0)
            return r;
        if (epoch > 0)
            break;
        if (left_ms > was_ms || clock_mono_us() > deadline)
            return merr_set(err, -EBUSY,
                            "another musterd leads on this Redis and is alive; this version runs one "
                            "musterd a Redis: stop the other, or give this one its own --redis");
        if (!told)
            log_info("another musterd led on this Redis; waiting for its lease to end, %.1f s", (double)left_ms / 1000);
        deadline = told ? deadline : clock_mono_us() + (left_ms + LEASE_SLACK_S * 1000) * 1000;
        was_ms = left_ms;
        (void)poll(NULL, 0, 250);
    }
    s->epoch = (uint64_t)epoch;
    s->batch = 1;
    (void)snprintf(s->epoch_text, sizeof(s->epoch_text), "%llu", (unsigned long long)epoch);
    return 0;
}

/* Say so when what is acknowledged may be lost. */
static void check_durable(struct store *s)
{
    redisReply *reply = store_read(s, NULL, "CONFIG GET append*");
    bool on = false, always = false;

    for (size_t i = 0; reply && i + 1 < reply->elements; i += 2) {
        const char *name = reply->element[i]->str, *value = reply->element[i + 1]->str;

        on = on || (strcmp(name, "appendonly") == 0 && strcmp(value, "yes") == 0);
        always = always || (strcmp(name, "appendfsync") == 0 && strcmp(value, "always") == 0);
    }
    if (!on || !always)
        log_warn("this Redis does not run with appendonly yes and appendfsync always: a crash may lose what was "
                 "acknowledged");
    freeReplyObject(reply);
}

int store_open(struct redis *r, bool force, int lease_s, struct store **ret, struct merr *err)
{
    struct store *s = calloc(1, sizeof(*s));
    char host[40] = "";
    int status;

    if (!s)
        return merr_set(err, -ENOMEM, "out of memory");
    s->redis = r;
    s->lease_s = lease_s;
    s->force = force;
    (void)snprintf(s->lease_ms, sizeof(s->lease_ms), "%d", lease_s * 1000);
    buf_init(&s->ops, STORE_BATCH_BYTES);
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(s->who, sizeof(s->who), "%s:%d:%lld", host, (int)getpid(), (long long)clock_wall_us());
    status = lead(s, force, err);
    if (status < 0) {
        buf_clear(&s->ops);
        free(s);
        return status;
    }
    check_durable(s);
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    redisContext *c;

    if (!s)
        return;
    c = redis_context(s->redis);
    if (c) { /* only our own lease is given back */
        redisReply *reply = redisCommand(
            c, "EVAL %s 0 %s", "if redis.call('GET','muster:lease')==ARGV[1] then redis.call('DEL','muster:lease') end",
            s->who);

        freeReplyObject(reply);
    }
    buf_clear(&s->ops);
    free(s);
}

/* --- tables ------------------------------------------------------------------------------------------ */

static const char *const table_key[STORE_TABLES] = {
    [STORE_NODES] = "muster:nodes", [STORE_PROJECTS] = "muster:projects", [STORE_TOKENS] = "muster:tokens",
    [STORE_LINKS] = "muster:links", [STORE_SPEEDS] = "muster:speeds",
};

void store_put(struct store *s, enum store_table table, const char *name, const char *text)
{
    store_add(s, "HSET", table_key[table], name, text, NULL);
}

void store_drop(struct store *s, enum store_table table, const char *name)
{
    store_add(s, "HDEL", table_key[table], name, NULL);
}

/* A reply of names and texts by turns, which is taken over. */
static int rows_take(redisReply *reply, struct store_rows *ret, struct merr *err)
{
    struct store_rows rows = {.from = reply};

    if (!reply)
        return -EIO;
    rows.v = calloc(reply->elements / 2 + 1, sizeof(*rows.v));
    if (!rows.v) {
        freeReplyObject(reply);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    for (; 2 * rows.n + 1 < reply->elements; rows.n++)
        rows.v[rows.n] = (struct store_row){reply->element[2 * rows.n]->str, reply->element[2 * rows.n + 1]->str};
    *ret = rows;
    return 0;
}

int store_read_rows(struct store *s, enum store_table table, struct store_rows *ret, struct merr *err)
{
    return rows_take(store_read(s, err, "HGETALL %s", table_key[table]), ret, err);
}

void store_rows_clear(struct store_rows *rows)
{
    if (rows->from)
        freeReplyObject(rows->from);
    free(rows->v);
    *rows = (struct store_rows){0};
}

void store_put_removed(struct store *s, const char *agent, int64_t at_s, int keep_s, int most)
{
    char at[24], before[24], last[24], ttl[24];

    (void)snprintf(at, sizeof(at), "%lld", (long long)at_s);
    (void)snprintf(before, sizeof(before), "(%lld", (long long)(at_s - keep_s));
    (void)snprintf(last, sizeof(last), "%d", -most - 1);
    (void)snprintf(ttl, sizeof(ttl), "%d", keep_s);
    store_add(s, "ZADD", "muster:removed", at, agent, NULL);
    store_add(s, "ZREMRANGEBYSCORE", "muster:removed", "-inf", before, NULL);
    store_add(s, "ZREMRANGEBYRANK", "muster:removed", "0", last, NULL);
    store_add(s, "EXPIRE", "muster:removed", ttl, NULL);
}

int store_read_removed(struct store *s, struct store_rows *ret, struct merr *err)
{
    return rows_take(store_read(s, err, "ZRANGE muster:removed 0 -1 WITHSCORES"), ret, err);
}

void store_add_device_us(struct store *s, const char *project, int64_t us)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%lld", (long long)us);
    store_add(s, "HINCRBY", "muster:device_us", project, text, NULL);
}

int64_t store_read_device_us(struct store *s, const char *project)
{
    redisReply *reply = store_read(s, NULL, "HGET muster:device_us %s", project);
    int64_t us = reply && reply->str ? strtoll(reply->str, NULL, 10) : 0;

    if (reply)
        freeReplyObject(reply);
    return us;
}
