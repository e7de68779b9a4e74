#include "tests/memory/values.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STREAM_SLACK 100 /* entries beyond its length that a stream may have, as in Redis */

enum kind { TEXT, HASH, SET, ZSET, LIST, STREAM };

/* One key's value. Rows (HASH: texts, SET: true, ZSET: scores) are in o, items (LIST: texts, STREAM: arrays of the id
 * and its fields) in item[first] to item[first + n - 1]. */
struct value {
    char *key;
    enum kind kind;
    int64_t ends_us; /* monotonic; 0: never */
    json_t *o;       /* TEXT: a string */
    json_t **item;
    size_t first, n, cap;
    struct value *next; /* of its bucket */
};

struct values {
    const struct clock *clock;
    struct value **bucket;
    size_t n_buckets, n_values;
};

/* --- values ------------------------------------------------------------------------------------------ */

static size_t bucket_of(const struct values *m, const char *key)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (const char *p = key; *p; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 32) & (m->n_buckets - 1);
}

static void value_free(struct value *v)
{
    for (size_t i = 0; i < v->n; i++)
        json_decref(v->item[v->first + i]);
    free(v->item);
    json_decref(v->o);
    free(v->key);
    free(v);
}

static void grow(struct values *m)
{
    size_t n = m->n_buckets * 2, was = m->n_buckets;
    struct value **old = m->bucket, **bucket = calloc(n, sizeof(struct value *));

    if (!bucket)
        return; /* chains get longer, nothing else */
    m->bucket = bucket;
    m->n_buckets = n;
    for (size_t i = 0; i < was; i++)
        for (struct value *v = old[i], *next; v; v = next) {
            struct value **at = &bucket[bucket_of(m, v->key)];

            next = v->next;
            v->next = *at;
            *at = v;
        }
    free(old);
}

static void drop(struct values *m, const char *key)
{
    struct value **at = &m->bucket[bucket_of(m, key)], *v;

    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    v = *at;
    if (!v)
        return;
    *at = v->next;
    m->n_values--;
    value_free(v);
}

/* The value of a key; NULL: there is none, or it has ended. */
static struct value *find(struct values *m, const char *key)
{
    struct value *v = m->bucket[bucket_of(m, key)];

    while (v && strcmp(v->key, key) != 0)
        v = v->next;
    if (v && v->ends_us != 0 && clock_read_mono_us(m->clock) >= v->ends_us) {
        drop(m, key);
        return NULL;
    }
    return v;
}

static bool empty(const struct value *v)
{
    return v->kind == LIST ? v->n == 0 : v->kind != TEXT && v->kind != STREAM && json_object_size(v->o) == 0;
}

/* What has lost its last row or item goes, as in Redis. */
static void settle(struct values *m, struct value *v)
{
    if (empty(v))
        drop(m, v->key);
}

/* The value of a key, made when new. All keys are of one kind for ever: another is a fault of ours. */
static struct value *get(struct values *m, const char *key, enum kind kind)
{
    struct value *v = find(m, key), **at;

    if (v) {
        assert(v->kind == kind);
        return v;
    }
    if (m->n_values >= m->n_buckets)
        grow(m);
    v = calloc(1, sizeof(*v));
    assert(v);
    v->key = strdup(key);
    v->kind = kind;
    v->o = kind == HASH || kind == SET || kind == ZSET ? json_object() : NULL;
    assert(v->key);
    at = &m->bucket[bucket_of(m, key)];
    v->next = *at;
    *at = v;
    m->n_values++;
    return v;
}

/* item is taken over. */
static void push_new(struct value *v, json_t *item)
{
    assert(item);
    if (v->first > 0 && v->first + v->n == v->cap) {
        memmove(v->item, v->item + v->first, v->n * sizeof(json_t *));
        v->first = 0;
    }
    if (v->n == v->cap) {
        v->cap = v->cap ? v->cap * 2 : 16;
        v->item = realloc(v->item, v->cap * sizeof(json_t *));
        assert(v->item);
    }
    v->item[v->first + v->n++] = item;
}

static void drop_first(struct value *v, size_t n)
{
    assert(n <= v->n);
    for (size_t i = 0; i < n; i++)
        json_decref(v->item[v->first + i]);
    v->first += n;
    v->n -= n;
}

static json_t *text_new(const char *text)
{
    return json_string_nocheck(text);
}

/* --- commands: arguments in RESP --------------------------------------------------------------------- */

char *values_next_bulk(char **at)
{
    char *text;
    unsigned long len;

    assert(**at == '$');
    len = strtoul(*at + 1, &text, 10);
    text += 2;
    text[len] = '\0';
    *at = text + len + 2;
    return text;
}

bool values_is(const struct values_args *a, const char *name)
{
    return strcasecmp(a->v[0], name) == 0;
}

/* --- commands that write ----------------------------------------------------------------------------- */

static void end_after(const struct values *m, struct value *v, int64_t us)
{
    v->ends_us = clock_read_mono_us(m->clock) + us;
}

static void do_set(struct values *m, const struct values_args *a)
{
    struct value *v;

    drop(m, a->v[1]);
    v = get(m, a->v[1], TEXT);
    v->o = text_new(a->v[2]);
    if (a->n == 5)
        end_after(m, v, strtoll(a->v[4], NULL, 10) * (strcmp(a->v[3], "PX") == 0 ? 1000 : 1000000));
}

static void do_hset(struct values *m, const struct values_args *a)
{
    struct value *v = get(m, a->v[1], HASH);

    for (int i = 2; i + 1 < a->n; i += 2)
        (void)json_object_set_new_nocheck(v->o, a->v[i], text_new(a->v[i + 1]));
}

/* HDEL, SREM, ZREM */
static void do_remove(struct values *m, const struct values_args *a)
{
    struct value *v = find(m, a->v[1]);

    for (int i = 2; v && i < a->n; i++)
        (void)json_object_del(v->o, a->v[i]);
    if (v)
        settle(m, v);
}

static void do_hincrby(struct values *m, const struct values_args *a)
{
    struct value *v = get(m, a->v[1], HASH);
    const char *was = json_string_value(json_object_get(v->o, a->v[2]));
    char text[24];

    (void)snprintf(text, sizeof(text), "%lld",
                   (was ? strtoll(was, NULL, 10) : 0) + (long long)strtoll(a->v[3], NULL, 10));
    (void)json_object_set_new_nocheck(v->o, a->v[2], text_new(text));
}

static void do_sadd(struct values *m, const struct values_args *a)
{
    struct value *v = get(m, a->v[1], SET);

    for (int i = 2; i < a->n; i++)
        (void)json_object_set_new_nocheck(v->o, a->v[i], json_true());
}

static void do_zadd(struct values *m, const struct values_args *a)
{
    struct value *v = get(m, a->v[1], ZSET);

    for (int i = 2; i + 1 < a->n; i += 2)
        (void)json_object_set_new_nocheck(v->o, a->v[i + 1], json_real(strtod(a->v[i], NULL)));
}

struct scored {
    const char *member;
    double score;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    return x->score < y->score ? -1 : x->score > y->score ? 1 : strcmp(x->member, y->member);
}

/* A sorted set in order: free(); its members are borrowed. *ret_n is 0 where v is NULL. */
static struct scored *sorted(const struct value *v, size_t *ret_n)
{
    struct scored *all = calloc((v ? json_object_size(v->o) : 0) + 1, sizeof(*all));
    const char *member;
    json_t *score;

    assert(all);
    *ret_n = 0;
    if (v)
        json_object_foreach (v->o, member, score)
            all[(*ret_n)++] = (struct scored){member, json_real_value(score)};
    qsort(all, *ret_n, sizeof(*all), by_score);
    return all;
}

/* "(7": below or above 7, "7": 7 too, "-inf", "+inf". */
struct limit {
    double at;
    bool open;
};

static struct limit limit_read(const char *text)
{
    bool open = *text == '(';

    return (struct limit){.at = strtod(text + open, NULL), .open = open};
}

static bool within(double score, struct limit low, struct limit high)
{
    return (low.open ? score > low.at : score >= low.at) && (high.open ? score < high.at : score <= high.at);
}

/* Redis' way to name a range of n: from the end where below 0. False: it is empty. */
static bool range(const char *from, const char *to, size_t n, size_t *ret_from, size_t *ret_to)
{
    long long a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10), size = (long long)n;

    a = a < 0 ? a + size : a;
    b = b < 0 ? b + size : b;
    a = a < 0 ? 0 : a;
    b = b >= size ? size - 1 : b;
    *ret_from = (size_t)a;
    *ret_to = (size_t)b;
    return a <= b;
}

/* ZREMRANGEBYSCORE, ZREMRANGEBYRANK */
static void do_zremrange(struct values *m, const struct values_args *a, bool rank)
{
    struct value *v = find(m, a->v[1]);
    size_t n, from = 0, to = 0;
    struct scored *all = sorted(v, &n);
    bool some = !rank || range(a->v[2], a->v[3], n, &from, &to);

    for (size_t i = 0; some && i < n; i++)
        if (rank ? i >= from && i <= to : within(all[i].score, limit_read(a->v[2]), limit_read(a->v[3]))) {
            char *member = strdup(all[i].member);

            assert(member);
            (void)json_object_del(v->o, member);
            free(member);
        }
    free(all);
    if (v)
        settle(m, v);
}

static void do_rpush(struct values *m, const struct values_args *a)
{
    struct value *v = get(m, a->v[1], LIST);

    for (int i = 2; i < a->n; i++)
        push_new(v, text_new(a->v[i]));
}

static void do_ltrim(struct values *m, const struct values_args *a)
{
    struct value *v = find(m, a->v[1]);
    size_t from, to;

    if (!v)
        return;
    if (range(a->v[2], a->v[3], v->n, &from, &to)) {
        while (v->n > to + 1)
            json_decref(v->item[v->first + --v->n]);
        drop_first(v, from);
    } else {
        drop_first(v, v->n);
    }
    settle(m, v);
}

uint64_t values_newest(struct values *m, const char *key)
{
    const struct value *v = find(m, key);

    return v && v->n > 0 ? strtoull(json_string_value(json_array_get(v->item[v->first + v->n - 1], 0)), NULL, 10) : 0;
}

/* XADD key MAXLEN ~ n id field value ... */
static void do_xadd(struct values *m, const struct values_args *a)
{
    struct value *v = get(m, a->v[1], STREAM);
    size_t most = strtoull(a->v[4], NULL, 10);
    json_t *entry = json_array();

    assert(strcmp(a->v[2], "MAXLEN") == 0 && strcmp(a->v[3], "~") == 0);
    assert(strtoull(a->v[5], NULL, 10) > values_newest(m, a->v[1]));
    for (int i = 5; i < a->n; i++)
        (void)json_array_append_new(entry, text_new(a->v[i]));
    push_new(v, entry);
    if (v->n >= most + STREAM_SLACK)
        drop_first(v, v->n - most);
}

/* XTRIM key MINID id */
static void do_xtrim(struct values *m, const struct values_args *a)
{
    struct value *v = find(m, a->v[1]);
    size_t n = 0;

    assert(strcmp(a->v[2], "MINID") == 0);
    while (v && n < v->n &&
           strtoull(json_string_value(json_array_get(v->item[v->first + n], 0)), NULL, 10) <
               strtoull(a->v[3], NULL, 10))
        n++;
    if (v)
        drop_first(v, n);
}

static void do_expire(struct values *m, const struct values_args *a)
{
    struct value *v = find(m, a->v[1]);

    if (v)
        end_after(m, v, strtoll(a->v[2], NULL, 10) * 1000000);
}

void values_write(struct values *m, const struct values_args *a)
{
    if (values_is(a, "SET"))
        do_set(m, a);
    else if (values_is(a, "DEL"))
        drop(m, a->v[1]);
    else if (values_is(a, "HSET"))
        do_hset(m, a);
    else if (values_is(a, "HDEL") || values_is(a, "SREM") || values_is(a, "ZREM"))
        do_remove(m, a);
    else if (values_is(a, "HINCRBY"))
        do_hincrby(m, a);
    else if (values_is(a, "SADD"))
        do_sadd(m, a);
    else if (values_is(a, "ZADD"))
        do_zadd(m, a);
    else if (values_is(a, "ZREMRANGEBYSCORE") || values_is(a, "ZREMRANGEBYRANK"))
        do_zremrange(m, a, values_is(a, "ZREMRANGEBYRANK"));
    else if (values_is(a, "RPUSH"))
        do_rpush(m, a);
    else if (values_is(a, "LTRIM"))
        do_ltrim(m, a);
    else if (values_is(a, "EXPIRE"))
        do_expire(m, a);
    else if (values_is(a, "XADD"))
        do_xadd(m, a);
    else if (values_is(a, "XTRIM"))
        do_xtrim(m, a);
    else
        assert(!"a command that the store in memory does not know");
}

/* --- commands that read: replies in RESP ------------------------------------------------------------- */

static void say(struct buf *b, const char *text)
{
    int r = text ? buf_printf(b, "$%zu\r\n%s\r\n", strlen(text), text) : buf_addstr(b, "$-1\r\n");

    assert(r == 0);
}

static void say_text(struct buf *b, const json_t *text)
{
    say(b, json_string_value(text));
}

static void say_size(struct buf *b, char type, size_t n)
{
    int r = buf_printf(b, "%c%zu\r\n", type, n);

    assert(r == 0);
}

static const json_t *field(const struct value *v, const char *name)
{
    return v ? json_object_get(v->o, name) : NULL;
}

/* HGETALL, SMEMBERS */
static void do_all(const struct value *v, struct buf *b)
{
    const char *name;
    json_t *text;

    say_size(b, '*', v ? json_object_size(v->o) * (v->kind == HASH ? 2 : 1) : 0);
    if (v)
        json_object_foreach (v->o, name, text) {
            say(b, name);
            if (v->kind == HASH)
                say_text(b, text);
        }
}

static void do_hmget(const struct value *v, const struct values_args *a, struct buf *b)
{
    say_size(b, '*', (size_t)a->n - 2);
    for (int i = 2; i < a->n; i++)
        say_text(b, field(v, a->v[i]));
}

/* ZRANGE key from to [WITHSCORES] */
static void do_zrange(const struct value *v, const struct values_args *a, struct buf *b)
{
    size_t n, from, to;
    struct scored *all = sorted(v, &n);
    bool some = range(a->v[2], a->v[3], n, &from, &to), scores = a->n == 5;
    char text[32];

    say_size(b, '*', some ? (to - from + 1) * (scores ? 2 : 1) : 0);
    for (size_t i = from; some && i <= to; i++) {
        say(b, all[i].member);
        (void)snprintf(text, sizeof(text), "%.17g", all[i].score);
        if (scores)
            say(b, text);
    }
    free(all);
}

/* ZREVRANGEBYSCORE key high low LIMIT 0 most */
static void do_zrevrangebyscore(const struct value *v, const struct values_args *a, struct buf *b)
{
    struct limit high = limit_read(a->v[2]), low = limit_read(a->v[3]);
    size_t n, most = strtoull(a->v[6], NULL, 10), count = 0;
    struct scored *all = sorted(v, &n);

    assert(a->n == 7 && strcmp(a->v[5], "0") == 0);
    for (size_t i = n; i-- > 0 && count < most;)
        count += within(all[i].score, low, high);
    say_size(b, '*', count);
    for (size_t i = n; i-- > 0 && count > 0;)
        if (within(all[i].score, low, high)) {
            say(b, all[i].member);
            count--;
        }
    free(all);
}

static void do_lindex(const struct value *v, const struct values_args *a, struct buf *b)
{
    size_t at = strtoull(a->v[2], NULL, 10);

    say_text(b, v && at < v->n ? v->item[v->first + at] : NULL);
}

static void do_lrange(const struct value *v, const struct values_args *a, struct buf *b)
{
    size_t from, to;
    bool some = range(a->v[2], a->v[3], v ? v->n : 0, &from, &to);

    say_size(b, '*', some ? to - from + 1 : 0);
    for (size_t i = from; some && i <= to; i++)
        say_text(b, v->item[v->first + i]);
}

static uint64_t entry_number(const struct value *v, size_t i)
{
    return strtoull(json_string_value(json_array_get(v->item[v->first + i], 0)), NULL, 10);
}

/* XRANGE key (number-0 + COUNT most */
static void do_xrange(const struct value *v, const struct values_args *a, struct buf *b)
{
    uint64_t after = strtoull(a->v[2] + 1, NULL, 10);
    size_t most = strtoull(a->v[5], NULL, 10), lo = 0, hi = v ? v->n : 0, n;

    assert(a->n == 6 && a->v[2][0] == '(' && strcmp(a->v[3], "+") == 0);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (entry_number(v, mid) <= after)
            lo = mid + 1;
        else
            hi = mid;
    }
    n = v ? v->n - lo : 0;
    n = n < most ? n : most;
    say_size(b, '*', n);
    for (size_t i = lo; i < lo + n; i++) {
        const json_t *entry = v->item[v->first + i];

        say_size(b, '*', 2);
        say_text(b, json_array_get(entry, 0));
        say_size(b, '*', json_array_size(entry) - 1);
        for (size_t k = 1; k < json_array_size(entry); k++)
            say_text(b, json_array_get(entry, k));
    }
}

void values_read(struct values *m, const struct values_args *a, struct buf *b)
{
    const struct value *v = a->n > 1 ? find(m, a->v[1]) : NULL;

    if (values_is(a, "GET"))
        say_text(b, v ? v->o : NULL);
    else if (values_is(a, "HGET"))
        say_text(b, field(v, a->v[2]));
    else if (values_is(a, "HMGET"))
        do_hmget(v, a, b);
    else if (values_is(a, "HGETALL") || values_is(a, "SMEMBERS"))
        do_all(v, b);
    else if (values_is(a, "ZRANGE"))
        do_zrange(v, a, b);
    else if (values_is(a, "ZREVRANGEBYSCORE"))
        do_zrevrangebyscore(v, a, b);
    else if (values_is(a, "ZCARD"))
        say_size(b, ':', v ? json_object_size(v->o) : 0);
    else if (values_is(a, "LLEN"))
        say_size(b, ':', v ? v->n : 0);
    else if (values_is(a, "LINDEX"))
        do_lindex(v, a, b);
    else if (values_is(a, "LRANGE"))
        do_lrange(v, a, b);
    else if (values_is(a, "XRANGE"))
        do_xrange(v, a, b);
    else if (values_is(a, "CONFIG")) /* it is asked whether it is durable, which it is as much as it shall be */
        (void)buf_addstr(b, "*4\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n");
    else
        assert(!"a command that the store in memory does not know");
}

/* --- all of them ------------------------------------------------------------------------------------- */

const char *values_text(struct values *m, const char *key)
{
    const struct value *v = find(m, key);

    return v ? json_string_value(v->o) : NULL;
}

const char *values_field(struct values *m, const char *key, const char *name)
{
    return json_string_value(field(find(m, key), name));
}

int64_t values_left_us(struct values *m, const char *key)
{
    const struct value *v = find(m, key);

    return v && v->ends_us != 0 ? v->ends_us - clock_read_mono_us(m->clock) : 0;
}

struct values *values_new(const struct clock *clock)
{
    struct values *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->clock = clock;
    m->n_buckets = 1024;
    m->bucket = calloc(m->n_buckets, sizeof(struct value *));
    if (!m->bucket) {
        free(m);
        return NULL;
    }
    return m;
}

void values_free(struct values *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_buckets; i++)
        for (struct value *v = m->bucket[i], *next; v; v = next) {
            next = v->next;
            value_free(v);
        }
    free(m->bucket);
    free(m);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_t *dump_set(const struct value *v)
{
    size_t n = 0;
    const char **member = calloc(json_object_size(v->o) + 1, sizeof(*member)), *name;
    json_t *all = json_array(), *ignored;

    json_object_foreach (v->o, name, ignored)
        if (member)
            member[n++] = name;
    if (member)
        qsort(member, n, sizeof(*member), by_text);
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, text_new(member[i]));
    free(member);
    return all;
}

static json_t *dump_value(const struct value *v)
{
    json_t *all;

    if (v->kind == SET)
        return dump_set(v);
    if (v->kind != LIST && v->kind != STREAM)
        return json_incref(v->o);
    all = json_array();
    for (size_t i = 0; i < v->n; i++)
        (void)json_array_append(all, v->item[v->first + i]);
    return all;
}

json_t *values_dump(struct values *m)
{
    json_t *all = json_object();

    for (size_t i = 0; i < m->n_buckets; i++)
        for (struct value *v = m->bucket[i], *next; v; v = next) {
            next = v->next;
            if (find(m, v->key)) /* which may drop it */
                (void)json_object_set_new_nocheck(all, v->key, dump_value(v));
        }
    return all;
}
