#include "server/store/job_store.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/history.h"
#include "server/store/store_priv.h"

#define FIELD_MAX 160
#define SUBMIT_KEY_MAX (JOB_STORE_SUBMIT_KEY_MAX + 16)

static void print_number(uint64_t n, char ret[24])
{
    (void)snprintf(ret, 24, "%llu", (unsigned long long)n);
}

static uint64_t number(const redisReply *reply)
{
    return reply->str ? strtoull(reply->str, NULL, 10) : 0;
}

/* --- records ----------------------------------------------------------------------------------------- */

void job_store_put(struct store *s, uint64_t job, uint64_t before, uint64_t version, const char *record,
                   const char *spec)
{
    char key[STORE_KEY_MAX], id[24], v[24];

    store_job_key(job, key);
    print_number(job, id);
    print_number(version, v);
    store_guard_job(s, job, before);
    if (spec) {
        store_add(s, "HSET", key, "rec", record, "v", v, "spec", spec, NULL);
        store_add(s, "SADD", "muster:jobs:active", id, NULL);
    } else {
        store_add(s, "HSET", key, "rec", record, "v", v, NULL);
    }
}

void job_store_end(struct store *s, uint64_t job, const char *state)
{
    char id[24], field[32];

    print_number(job, id);
    (void)snprintf(field, sizeof(field), "ended_%s", state);
    store_add(s, "SREM", "muster:jobs:active", id, NULL);
    store_add(s, "ZADD", "muster:jobs:ended", id, id, NULL);
    store_add(s, "HINCRBY", "muster:meta", field, "1", NULL);
}

void job_store_begin_again(struct store *s, uint64_t job, const char *state)
{
    char id[24], field[32];

    print_number(job, id);
    (void)snprintf(field, sizeof(field), "ended_%s", state);
    store_add(s, "SADD", "muster:jobs:active", id, NULL);
    store_add(s, "ZREM", "muster:jobs:ended", id, NULL);
    store_add(s, "HINCRBY", "muster:meta", field, "-1", NULL);
}

void job_store_drop(struct store *s, uint64_t job)
{
    char key[STORE_KEY_MAX], id[24];

    store_job_key(job, key);
    print_number(job, id);
    store_add(s, "DEL", key, NULL);
    history_drop(s, job);
    store_add(s, "ZREM", "muster:jobs:ended", id, NULL);
}

struct taking {
    job_store_fn *fn;
    void *arg;
};

/* reply: rec, v and, if it was asked for, spec. */
static int take(void *arg, size_t i, const redisReply *reply, struct merr *err)
{
    const struct taking *t = arg;
    struct job_stored stored;

    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGTYPE", 9) == 0)
        stored = (struct job_stored){.record = ""}; /* something is there, and it is no record */
    else if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        return merr_set(err, -EIO, "the store does not give the job");
    else
        stored = (struct job_stored){.record = reply->element[0]->str,
                                     .version = number(reply->element[1]),
                                     .spec = reply->elements > 2 ? reply->element[2]->str : NULL};
    return t->fn(t->arg, i, &stored, err);
}

int job_store_read_each(struct store *s, const uint64_t *ids, size_t n, bool with_spec, job_store_fn *fn, void *arg,
                        struct merr *err)
{
    struct taking t = {.fn = fn, .arg = arg};

    return store_read_each(s, with_spec ? "HMGET muster:job:%llu rec v spec" : "HMGET muster:job:%llu rec v", ids, n,
                           take, &t, err);
}

int job_store_read(struct store *s, uint64_t job, job_store_fn *fn, void *arg, struct merr *err)
{
    redisReply *reply = store_read(s, err, "HMGET muster:job:%llu rec v spec", (unsigned long long)job);
    struct taking t = {.fn = fn, .arg = arg};
    int r = reply ? take(&t, 0, reply, err) : -EIO;

    if (reply)
        freeReplyObject(reply);
    return r;
}

char *job_store_read_spec(struct store *s, uint64_t job)
{
    redisReply *reply = store_read(s, NULL, "HGET muster:job:%llu spec", (unsigned long long)job);
    char *text = reply && reply->str ? strdup(reply->str) : NULL;

    if (reply)
        freeReplyObject(reply);
    return text;
}

/* --- which there are --------------------------------------------------------------------------------- */

void job_ids_clear(struct job_ids *ids)
{
    free(ids->v);
    *ids = (struct job_ids){0};
}

/* The reply is taken over. */
static int ids_take(redisReply *reply, struct job_ids *ret, struct merr *err)
{
    struct job_ids ids = {0};

    if (!reply)
        return -EIO;
    ids.v = calloc(reply->elements + 1, sizeof(*ids.v));
    for (; ids.v && ids.n < reply->elements; ids.n++)
        ids.v[ids.n] = number(reply->element[ids.n]);
    freeReplyObject(reply);
    if (!ids.v)
        return merr_set(err, -ENOMEM, "out of memory");
    *ret = ids;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

int job_store_active(struct store *s, struct job_ids *ret, struct merr *err)
{
    int r = ids_take(store_read(s, err, "SMEMBERS muster:jobs:active"), ret, err);

    if (r == 0)
        qsort(ret->v, ret->n, sizeof(*ret->v), by_number);
    return r;
}

int job_store_ended_below(struct store *s, uint64_t below, size_t most, struct job_ids *ret, struct merr *err)
{
    return ids_take(store_read(s, err, "ZREVRANGEBYSCORE muster:jobs:ended (%llu -inf LIMIT 0 %llu",
                               (unsigned long long)below, (unsigned long long)most),
                    ret, err);
}

int job_store_ended_oldest(struct store *s, size_t most, struct job_ids *ret, struct merr *err)
{
    return ids_take(store_read(s, err, "ZRANGE muster:jobs:ended 0 %llu", (unsigned long long)most - 1), ret, err);
}

int job_store_ended_count(struct store *s, uint64_t *ret, struct merr *err)
{
    redisReply *reply = store_read(s, err, "ZCARD muster:jobs:ended");

    if (!reply)
        return -EIO;
    *ret = (uint64_t)reply->integer;
    freeReplyObject(reply);
    return 0;
}

/* --- counters ---------------------------------------------------------------------------------------- */

void job_store_put_counters(struct store *s, uint64_t next_job, uint64_t next_event)
{
    store_put_meta(s, "next_job", next_job);
    store_put_meta(s, "next_event", next_event);
}

int job_store_read_counters(struct store *s, struct job_counters *ret, struct merr *err)
{
    redisReply *reply = store_read(s, err,
                                   "HMGET muster:meta next_job next_event ended_succeeded "
                                   "ended_failed ended_cancelled");

    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 5) {
        if (reply)
            freeReplyObject(reply);
        return merr_set(err, -EIO, "cannot read the store's counters");
    }
    *ret = (struct job_counters){.next_job = number(reply->element[0]), .next_event = number(reply->element[1])};
    for (int i = 0; i < 3; i++)
        ret->ended[i] = number(reply->element[2 + i]);
    freeReplyObject(reply);
    return 0;
}

/* --- what is remembered with jobs -------------------------------------------------------------------- */

static void offset_field(const char *node, uint32_t generation, char ret[FIELD_MAX])
{
    (void)snprintf(ret, FIELD_MAX, "evoff:%s:%u", node, generation);
}

void job_store_put_offset(struct store *s, uint64_t job, const char *node, uint32_t generation, int64_t offset)
{
    char key[STORE_KEY_MAX], field[FIELD_MAX], value[24];

    store_job_key(job, key);
    offset_field(node, generation, field);
    (void)snprintf(value, sizeof(value), "%lld", (long long)offset);
    store_add(s, "HSET", key, field, value, NULL);
}

void job_store_drop_offset(struct store *s, uint64_t job, const char *node, uint32_t generation)
{
    char key[STORE_KEY_MAX], field[FIELD_MAX];

    store_job_key(job, key);
    offset_field(node, generation, field);
    store_add(s, "HDEL", key, field, NULL);
}

int job_store_read_offset(struct store *s, uint64_t job, const char *node, uint32_t generation, int64_t *ret)
{
    char field[FIELD_MAX];
    redisReply *reply;
    int r = 0;

    offset_field(node, generation, field);
    reply = store_read(s, NULL, "HMGET muster:job:%llu %s v", (unsigned long long)job, field);
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        r = -EIO;
    else if (!reply->element[1]->str)
        r = -ENOENT;
    else
        *ret = (int64_t)number(reply->element[0]);
    if (reply)
        freeReplyObject(reply);
    return r;
}

static void submit_key(const char *key, char ret[SUBMIT_KEY_MAX])
{
    assert(strlen(key) < JOB_STORE_SUBMIT_KEY_MAX);
    (void)snprintf(ret, SUBMIT_KEY_MAX, "muster:idem:%s", key);
}

void job_store_put_submit(struct store *s, const char *key, uint64_t job, uint64_t hash)
{
    char name[SUBMIT_KEY_MAX], value[48], ttl[16];

    submit_key(key, name);
    (void)snprintf(value, sizeof(value), "%llu %llx", (unsigned long long)job, (unsigned long long)hash);
    (void)snprintf(ttl, sizeof(ttl), "%d", JOB_STORE_SUBMIT_S);
    store_add(s, "SET", name, value, "EX", ttl, NULL);
}

int job_store_find_submit(struct store *s, const char *key, uint64_t *ret_job, uint64_t *ret_hash, struct merr *err)
{
    char name[SUBMIT_KEY_MAX];
    unsigned long long job, hash;
    redisReply *reply;
    int r = 0;

    submit_key(key, name);
    reply = store_read(s, err, "GET %s", name);
    if (!reply)
        return -EIO;
    if (reply->str && sscanf(reply->str, "%llu %llx", &job, &hash) == 2) {
        *ret_job = job;
        *ret_hash = hash;
    } else {
        r = -ENOENT;
    }
    freeReplyObject(reply);
    return r;
}
