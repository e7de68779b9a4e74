#include "server/store/store_priv.h"

#include <assert.h>
#include <errno.h>
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
#define META_MAX 4 /* numbers that there are */

struct store {
    struct store_backend b;
    uint64_t epoch, batch; /* batch: number of the one being collected, from 1 */
    struct store_mark mark;
    char who[80 + STORE_ADVERTISE_MAX]; /* and where, a space between */
    int lease_s;
    bool force; /* nobody else can lead */
    char lease_ms[16];
    struct buf ops; /* the batch as RESP bulk strings */
    size_t n_args;  /* in ops */
    struct {
        const char *name;
        char value[24];
    } meta[META_MAX]; /* of the batch, too: one command when it is sent */
    size_t n_meta;
    bool failed;
    bool noted, notes_stored; /* the batch has notes of what was set aside; an earlier one had */
};

const struct store_mark *store_mark(const struct store *s)
{
    return &s->mark;
}

uint64_t store_epoch(const struct store *s)
{
    return s->epoch;
}

bool store_up(const struct store *s)
{
    return s->b.ops->up(s->b.self);
}

void store_job_key(uint64_t job, char ret[STORE_KEY_MAX])
{
    (void)snprintf(ret, STORE_KEY_MAX, "muster:job:%llu", (unsigned long long)job);
}

static void add_bulk(struct store *s, const char *data, size_t len)
{
    char head[32] = "$", digits[24];
    size_t n = 0, at = 1;

    for (size_t rest = len; rest > 0 || n == 0; rest /= 10) /* dozens in each batch: snprintf() takes its time */
        digits[n++] = (char)('0' + rest % 10);
    while (n > 0)
        head[at++] = digits[--n];
    memcpy(head + at, "\r\n", 2);
    if (buf_add(&s->ops, head, at + 2) < 0 || buf_add(&s->ops, data, len) < 0 || buf_add(&s->ops, "\r\n", 2) < 0)
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

void store_put_meta(struct store *s, const char *name, uint64_t number)
{
    size_t i = 0;

    while (i < s->n_meta && strcmp(s->meta[i].name, name) != 0)
        i++;
    assert(i < META_MAX);
    s->meta[i].name = name;
    (void)snprintf(s->meta[i].value, sizeof(s->meta[i].value), "%llu", (unsigned long long)number);
    s->n_meta = i == s->n_meta ? i + 1 : s->n_meta;
}

static void add_meta(struct store *s)
{
    const char *argv[2 + 2 * META_MAX] = {"HSET", "muster:meta"};
    int argc = 2;

    for (size_t i = 0; i < s->n_meta; i++) {
        argv[argc++] = s->meta[i].name;
        argv[argc++] = s->meta[i].value;
    }
    if (s->n_meta > 0)
        store_addv(s, argc, argv, NULL);
    s->n_meta = 0;
}

bool store_batch_empty(const struct store *s)
{
    return s->n_args == 0 && s->n_meta == 0;
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

static int64_t mono_us(const struct store *s)
{
    return clock_read_mono_us(s->b.clock);
}

static int reconnect(struct store *s, const _Atomic int *stop, struct merr *err)
{
    bool told = false;

    while (s->b.ops->connect(s->b.self, 1000000, err) < 0) {
        if (*stop)
            return merr_set(err, -ECANCELED, "stopped while the store was away");
        if (!told)
            log_warn("the store is away: %s", err->text);
        told = true;
    }
    return 0;
}

/* What was in the way of the last batch: names with a space behind each. Their notes go into the next one. */
static void tell_aside(struct store *s, char *names)
{
    for (char *rest = NULL, *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char at[CLOCK_RFC3339_MAX], id[192], note[640];

        log_error("the store's key '%s' was not what it should be, and was set aside; see `muster quarantine list`",
                  name);
        clock_rfc3339(clock_read_wall_us(s->b.clock), at);
        (void)snprintf(id, sizeof(id), "key:%s", name);
        (void)snprintf(note, sizeof(note),
                       "{\"id\":\"%s\",\"kind\":\"key\",\"name\":\"%s\",\"at\":\"%s\",\"why\":\"it was of "
                       "another kind than the server keeps there\"}",
                       id, name, at);
        store_add(s, "HSET", "muster:aside", id, note, NULL);
    }
}

int store_commit(struct store *s, const _Atomic int *stop, struct merr *err)
{
    struct store_batch batch = {.epoch = s->epoch, .number = s->batch};
    struct merr local = {""};
    int r = 0;

    add_meta(s);
    batch.args = s->ops.data;
    batch.len = s->ops.len;
    batch.n_args = s->n_args;
    if (s->failed)
        return merr_set(err, s->ops.len >= s->ops.limit / 2 ? -EMSGSIZE : -ENOMEM, "cannot build a batch of %zu bytes",
                        s->ops.len);
    if (s->n_args == 0)
        return 0;
    for (bool told = false;;) {
        r = s->b.ops->commit(s->b.self, &batch, &local);
        if (r >= 0)
            break;
        if (r == -ESTALE)
            return merr_set(err, r, "%s", local.text);
        if (r == -EAGAIN && !told)
            log_error("the store refuses a write, trying again: %s", local.text);
        told = told || r == -EAGAIN;
        if (*stop)
            return merr_set(err, -ECANCELED, "stopped while the store was away");
        if (r == -EAGAIN) /* it answers but cannot write: a full disk, say */
            s->b.ops->wait(s->b.self, 200);
        r = reconnect(s, stop, &local);
        if (r < 0)
            return merr_set(err, r, "%s", local.text);
    }
    buf_reset(&s->ops);
    s->n_args = 0;
    s->mark.epoch = s->epoch;
    s->mark.batch = s->batch++;
    s->notes_stored = s->notes_stored || s->noted;
    s->noted = r > 0;
    if (s->noted)
        tell_aside(s, local.text);
    return 0;
}

bool store_take_notes(struct store *s)
{
    bool stored = s->notes_stored;

    s->notes_stored = false;
    return stored;
}

/* A command as RESP, once. NULL when the connection broke. */
static redisReply *read_once(struct store *s, const char *command, size_t len)
{
    redisReply *reply = NULL;

    if (s->b.ops->ask(s->b.self, command, len) < 0 || s->b.ops->answer(s->b.self, &reply) < 0)
        return NULL;
    return reply;
}

redisReply *store_read(struct store *s, struct merr *err, const char *fmt, ...)
{
    int64_t deadline_us = mono_us(s) + READ_WAIT_S * INT64_C(1000000);
    redisReply *reply = NULL;
    char *command = NULL;
    va_list ap;
    int len;

    va_start(ap, fmt);
    len = redisvFormatCommand(&command, fmt, ap);
    va_end(ap);
    if (len < 0) {
        (void)merr_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    while (!(reply = read_once(s, command, (size_t)len))) {
        int64_t left_us = deadline_us - mono_us(s);

        if (left_us < 0) {
            (void)merr_set(err, -ETIMEDOUT, "the store does not answer");
            break;
        }
        if (s->b.ops->connect(s->b.self, left_us, err) < 0)
            break;
    }
    redisFreeCommand(command);
    if (reply && reply->type == REDIS_REPLY_ERROR) {
        (void)merr_set(err, -EIO, "the store answers: %s", reply->str);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

/* Drop the connection with all that is queued or unread on it. */
static void start_over(struct store *s)
{
    struct merr ignored;

    (void)s->b.ops->connect(s->b.self, 0, &ignored);
}

static int ask_number(struct store *s, const char *fmt, uint64_t number)
{
    char *command = NULL;
    int len = redisFormatCommand(&command, fmt, (unsigned long long)number), r;

    if (len < 0)
        return -ENOMEM;
    r = s->b.ops->ask(s->b.self, command, (size_t)len);
    redisFreeCommand(command);
    return r;
}

int store_read_each(struct store *s, const char *fmt, const uint64_t *numbers, size_t n, store_each_fn *fn, void *arg,
                    struct merr *err)
{
    int r = 0;

    if (!s->b.ops->connected(s->b.self))
        return merr_set(err, -EIO, "the store is away; try again");
    for (size_t i = 0; i < n; i++)
        if (ask_number(s, fmt, numbers[i]) < 0) {
            start_over(s);
            return merr_set(err, -ENOMEM, "out of memory for %zu reads of the store", n);
        }
    for (size_t i = 0; i < n; i++) {
        redisReply *reply = NULL;

        if (s->b.ops->answer(s->b.self, &reply) < 0) {
            start_over(s);
            return merr_set(err, -EIO, "the store is away; try again");
        }
        r = r < 0 ? r : fn(arg, i, reply, err);
        freeReplyObject(reply);
    }
    return r;
}

/* One attempt to lead, made again while the store is away. As store_ops.lead, or -EIO. */
static int try_lead(struct store *s, uint64_t *ret_epoch, int64_t *ret_left_ms, struct merr *err)
{
    int64_t deadline_us = mono_us(s) + READ_WAIT_S * INT64_C(1000000);
    struct store_claim claim = {
        .who = s->who, .force = s->force, .lease_ms = s->lease_s * 1000, .above = s->mark.epoch};

    for (;;) {
        int r = s->b.ops->lead(s->b.self, &claim, ret_epoch, ret_left_ms, err);
        int64_t left_us = deadline_us - mono_us(s);

        if (r != -ENOTCONN)
            return r;
        if (left_us < 0)
            return merr_set(err, -EIO, "the store does not answer");
        if (s->b.ops->connect(s->b.self, left_us, err) < 0)
            return -EIO;
    }
}

/* Take the lead as soon as another's lease ends. One that grows meanwhile is renewed: the other is alive. */
static int lead(struct store *s, bool at_once, struct merr *err)
{
    int64_t deadline_us = INT64_MAX, left_ms = 0, was_ms = INT64_MAX;

    for (bool told = false;; told = true) {
        int r = try_lead(s, &s->epoch, &left_ms, err);

        if (r < 0)
            return r;
        if (s->epoch > 0)
            break;
        if (at_once || left_ms > was_ms || mono_us(s) > deadline_us)
            return merr_set(err, -EBUSY,
                            "another musterd leads on this Redis and is alive; stop it, give this one its own "
                            "--redis, or let it wait with --standby");
        if (!told)
            log_info("another musterd led on this Redis; waiting for its lease to end, %.1f s", (double)left_ms / 1000);
        deadline_us = told ? deadline_us : mono_us(s) + (left_ms + LEASE_SLACK_S * 1000) * 1000;
        was_ms = left_ms;
        s->b.ops->wait(s->b.self, 250);
    }
    s->batch = 1;
    s->mark.epoch = s->epoch;
    s->mark.batch = 0;
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

static uint64_t number_of(const redisReply *reply)
{
    return reply->str ? strtoull(reply->str, NULL, 10) : 0;
}

/* How far the store has come, as it says itself. */
static int read_mark(struct store *s, struct store_mark *ret, struct merr *err)
{
    redisReply *reply = store_read(s, err, "HMGET muster:meta epoch batch next_job next_event");
    int r = 0;

    if (!reply)
        return -EIO;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 4)
        *ret = (struct store_mark){.epoch = number_of(reply->element[0]),
                                   .batch = number_of(reply->element[1]),
                                   .next_job = number_of(reply->element[2]),
                                   .next_event = number_of(reply->element[3])};
    else
        r = merr_set(err, -EIO, "cannot read the store's counters");
    freeReplyObject(reply);
    return r;
}

/* What of its mark the store lacks, in words. False: nothing. */
static bool find_loss(const struct store_mark *has, const struct store_mark *had, char *ret, size_t size)
{
    uint64_t first = has->next_job ? has->next_job : 1, lost = had->next_job > first ? had->next_job - first : 0;
    size_t n;

    if (has->epoch > had->epoch)
        return false;
    if (has->epoch == had->epoch && has->batch >= had->batch)
        return false;
    n = (size_t)snprintf(ret, size,
                         "the store is at change %llu of leader %llu, and change %llu of leader %llu was made",
                         (unsigned long long)has->batch, (unsigned long long)has->epoch, (unsigned long long)had->batch,
                         (unsigned long long)had->epoch);
    if (lost == 1)
        (void)snprintf(ret + n, size - n, "; job j%llu is missing", (unsigned long long)first);
    else if (lost > 1)
        (void)snprintf(ret + n, size - n, "; %llu jobs are missing, j%llu to j%llu", (unsigned long long)lost,
                       (unsigned long long)first, (unsigned long long)(had->next_job - 1));
    else
        (void)snprintf(ret + n, size - n, "; no job is missing, what happened to jobs since is");
    return true;
}

static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Hold the store against its mark. Whoever leads meanwhile only adds to it. */
static int check_mark(struct store *s, const struct store_cfg *cfg, struct merr *err)
{
    char loss[256];
    struct store_mark has = {0};
    int r = read_mark(s, &has, err);

    if (r < 0)
        return r;
    if (find_loss(&has, &cfg->mark, loss, sizeof(loss))) {
        if (!cfg->accept_loss)
            return merr_set(err, -ENODATA,
                            "what was acknowledged is lost: %s. Bring the store back as it was, or start once with "
                            "--accept-loss to go on without",
                            loss);
        log_error("what was acknowledged is lost, which --accept-loss accepts: %s", loss);
        s->mark = cfg->mark;
    }
    s->mark.next_job = more(has.next_job, cfg->mark.next_job);
    s->mark.next_event = more(has.next_event, cfg->mark.next_event);
    return 0;
}

int store_leader(const struct store_backend *backend, bool *ret_leads, char ret[STORE_ADVERTISE_MAX])
{
    static const char ask[] = "*2\r\n$3\r\nGET\r\n$12\r\nmuster:lease\r\n";
    const struct store_ops *ops = backend->ops;
    struct merr ignored = {""};
    redisReply *reply = NULL;
    const char *space;

    if (ops->ask(backend->self, ask, sizeof(ask) - 1) < 0 || ops->answer(backend->self, &reply) < 0) {
        (void)ops->connect(backend->self, 0, &ignored); /* for the next time */
        return -ENOTCONN;
    }
    if (reply->type == REDIS_REPLY_ERROR) { /* it is loading, say */
        freeReplyObject(reply);
        return -ENOTCONN;
    }
    *ret_leads = reply->str != NULL;
    space = reply->str ? strchr(reply->str, ' ') : NULL;
    (void)snprintf(ret, STORE_ADVERTISE_MAX, "%s", space ? space + 1 : "");
    freeReplyObject(reply);
    return 0;
}

int store_open(const struct store_backend *backend, const struct store_cfg *cfg, struct store **ret, struct merr *err)
{
    struct store *s = calloc(1, sizeof(*s));
    char host[40] = "";
    int status;

    if (!s)
        return merr_set(err, -ENOMEM, "out of memory");
    s->b = *backend;
    s->lease_s = cfg->lease_s;
    s->force = cfg->force;
    (void)snprintf(s->lease_ms, sizeof(s->lease_ms), "%d", s->lease_s * 1000);
    buf_init(&s->ops, STORE_BATCH_BYTES);
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(s->who, sizeof(s->who), "%s:%d:%lld %s", host, (int)getpid(),
                   (long long)clock_read_wall_us(backend->clock), cfg->advertise ? cfg->advertise : "");
    status = check_mark(s, cfg, err);
    if (status == 0)
        status = lead(s, cfg->at_once, err);
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
    if (!s)
        return;
    s->b.ops->resign(s->b.self, s->who);
    buf_clear(&s->ops);
    free(s);
}

/* --- tables ------------------------------------------------------------------------------------------ */

static const char *const table_key[STORE_TABLES] = {
    [STORE_NODES] = "muster:nodes",
    [STORE_PROJECTS] = "muster:projects",
    [STORE_TOKENS] = "muster:tokens",
    [STORE_LINKS] = "muster:links",
    [STORE_SPEEDS] = "muster:speeds",
    [STORE_ENDED] = "muster:jobs:catalog",
    [STORE_JOINS] = "muster:joins",
    [STORE_KEYS] = "muster:keys",
    [STORE_FILE_TOKENS] = "muster:file_tokens",
    [STORE_SECRETS] = "muster:secrets",
    [STORE_ARRAYS] = "muster:arrays",
    [STORE_USAGE] = "muster:usage",
    [STORE_LEDGER] = "muster:ledger",
    [STORE_KINDS] = "muster:kinds",
    [STORE_ESTIMATES] = "muster:estimates",
    [STORE_PREDICTIONS] = "muster:predictions",
    [STORE_BOOKINGS] = "muster:bookings",
    [STORE_WEBHOOKS] = "muster:webhooks",
    [STORE_DELIVERIES] = "muster:deliveries",
    [STORE_ALLOCATIONS] = "muster:allocations",
    [STORE_SCHEDULES] = "muster:schedules",
};

void store_put(struct store *s, enum store_table table, const char *name, const char *text)
{
    store_add(s, "HSET", table_key[table], name, text, NULL);
}

void store_drop(struct store *s, enum store_table table, const char *name)
{
    store_add(s, "HDEL", table_key[table], name, NULL);
}

int store_rows_take(redisReply *reply, struct store_rows *ret, struct merr *err)
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
        rows.v[rows.n] = (struct store_row){.name = reply->element[2 * rows.n]->str,
                                            .text = reply->element[2 * rows.n + 1]->str,
                                            .len = reply->element[2 * rows.n + 1]->len};
    *ret = rows;
    return 0;
}

int store_read_rows(struct store *s, enum store_table table, struct store_rows *ret, struct merr *err)
{
    struct merr why = {""};
    redisReply *reply = store_read(s, &why, "HGETALL %s", table_key[table]);

    if (reply)
        return store_rows_take(reply, ret, err);
    if (strstr(why.text, "WRONGTYPE")) {
        log_error("the store's key '%s' is not what it should be: nothing of it is read", table_key[table]);
        store_drop(s, table, ""); /* what is in the way of a batch is set aside, and told of */
        *ret = (struct store_rows){0};
        return 0;
    }
    return merr_set(err, -EIO, "%s", why.text);
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
    return store_rows_take(store_read(s, err, "ZRANGE muster:removed 0 -1 WITHSCORES"), ret, err);
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
