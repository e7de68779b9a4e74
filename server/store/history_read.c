#include "server/store/history_read.h"

#include <errno.h>
#include <stdlib.h>

#include "server/store/history_priv.h"

#define CHUNK 32 /* events read at once: large ones are many bytes */

static char no_user[] = "";

static uint64_t id_of(const json_t *event)
{
    const char *id = json_string_value(json_object_get(event, "id"));

    return id ? strtoull(id, NULL, 10) : 0;
}

static json_t *parse(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? json_loadb(reply->str, reply->len, 0, NULL) : NULL;
}

/* The id of the event at a place of a list, or of the last before it that can be read; 0: there is none. */
static int id_at(struct store *s, const char *key, size_t at, uint64_t *ret, struct merr *err)
{
    for (*ret = 0; *ret == 0; at--) {
        redisReply *reply = store_read(s, err, "LINDEX %s %llu", key, (unsigned long long)at);
        json_t *event;

        if (!reply)
            return -EIO;
        event = parse(reply);
        *ret = id_of(event);
        json_decref(event);
        freeReplyObject(reply);
        if (at == 0)
            break;
    }
    return 0;
}

/* What is told in place of an event that cannot be read. New. */
static json_t *unreadable(uint64_t id)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
    return json_pack("{s:s, s:s, s:n, s:s, s:n, s:n, s:i, s:s, s:{s:s, s:n, s:s}, s:{}}", "id", text, "at",
                     "1970-01-01T00:00:00Z", "job", "type", "unreadable", "from", "to", "generation", 0, "actor",
                     "server", "cause", "code", "unreadable", "class", "text",
                     "an event was kept here, and what the store has of it cannot be read", "data");
}

json_t *history_parse(const char *text, uint64_t id)
{
    json_t *event = json_loads(text, 0, NULL);

    if (json_is_string(json_object_get(event, "type")) && id_of(event) > 0)
        return event;
    id = id_of(event) > 0 ? id_of(event) : id;
    json_decref(event);
    return unreadable(id);
}

/* How many events of a list of n have ids up to `after`. */
static int count_to(struct store *s, const char *key, size_t n, uint64_t after, size_t *ret, struct merr *err)
{
    size_t lo = 0, hi = after ? n : 0;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        uint64_t id;
        int r = id_at(s, key, mid, &id, err);

        if (r < 0)
            return r;
        if (id <= after)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret = lo;
    return 0;
}

struct part { /* of a page: what of one kind of events is on it */
    json_t *to;
    size_t most, bytes;
    bool cut;       /* there is more, and no room for it */
    size_t from, n; /* of a list: where to go on, and its length */
};

static int append(struct store *s, const char *key, struct part *p, struct merr *err)
{
    uint64_t last = 0;

    while (p->from < p->n && json_array_size(p->to) < p->most && !p->cut) {
        size_t some = p->most - json_array_size(p->to) < CHUNK ? p->most - json_array_size(p->to) : CHUNK;
        redisReply *reply = store_read(s, err, "LRANGE %s %llu %llu", key, (unsigned long long)p->from,
                                       (unsigned long long)(p->from + some - 1));

        if (!reply)
            return -EIO;
        for (size_t i = 0; i < reply->elements && !p->cut; i++) {
            p->bytes += reply->element[i]->len;
            p->cut = p->bytes > HISTORY_PAGE_BYTES && json_array_size(p->to) > 0;
            if (p->cut)
                break;
            json_t *event = history_parse(reply->element[i]->str ? reply->element[i]->str : "", last);

            last = id_of(event);
            (void)json_array_append_new(p->to, event);
        }
        p->from += reply->elements > 0 ? reply->elements : p->n; /* one that is not there any more ends it */
        freeReplyObject(reply);
    }
    return 0;
}

/* Two lists in order of id, at most `most` of them. New; NULL: no memory. */
static json_t *merge(const struct part *a, const struct part *b, size_t most)
{
    json_t *all = json_array();
    size_t i = 0, k = 0;

    while (all && json_array_size(all) < most) {
        json_t *x = json_array_get(a->to, i), *y = json_array_get(b->to, k);
        bool first = x && (!y || id_of(x) < id_of(y));

        if ((!x && !y) || (!x && a->cut) || (!y && b->cut)) /* what was cut off may come before the other's next */
            break;
        (void)json_array_append(all, first ? x : y);
        i += first;
        k += !first;
    }
    return all;
}

static uint64_t number(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING    ? strtoull(reply->str, NULL, 10)
           : reply->type == REDIS_REPLY_INTEGER ? (uint64_t)reply->integer
                                                : 0;
}

/* What was left out, by how many there have been. */
static int find_gap(struct store *s, uint64_t job, const size_t n[HISTORY_LISTS], struct history_gap *ret,
                    struct merr *err)
{
    uint64_t states, notes, kept = n[HISTORY_LIST_FIRST] + n[HISTORY_LIST_RECENT];
    char key[STORE_KEY_MAX];
    redisReply *reply = store_read(s, err, "HMGET muster:job:%llu v notes", (unsigned long long)job);

    if (!reply)
        return -EIO;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        freeReplyObject(reply);
        return merr_set(err, -EIO, "the store's record of job 'j%llu' cannot be read; look at its log",
                        (unsigned long long)job);
    }
    states = number(reply->element[0]);
    notes = number(reply->element[1]);
    freeReplyObject(reply);
    *ret = (struct history_gap){.events = notes > n[HISTORY_LIST_NOTES] ? notes - n[HISTORY_LIST_NOTES] : 0};
    if (states <= kept)
        return 0;
    ret->events += states - kept;
    history_key(job, HISTORY_LIST_RECENT, key);
    return id_at(s, key, 0, &ret->before, err);
}

static int list_length(struct store *s, const char *key, size_t *ret, struct merr *err)
{
    redisReply *reply = store_read(s, err, "LLEN %s", key);

    if (!reply)
        return -EIO;
    *ret = (size_t)number(reply);
    freeReplyObject(reply);
    return 0;
}

int history_read_job(struct store *s, uint64_t job, uint64_t after, size_t most, bool notes_only, json_t **ret,
                     uint64_t *ret_end, struct history_gap *ret_gap, struct merr *err)
{
    struct part states = {.to = json_array(), .most = most}, notes = {.to = json_array(), .most = most};
    json_t *all = NULL;
    size_t n[HISTORY_LISTS] = {0};
    int r = states.to && notes.to ? 0 : merr_set(err, -ENOMEM, "out of memory");

    for (int list = 0; r == 0 && list < HISTORY_LISTS; list++) {
        struct part *p = list == HISTORY_LIST_NOTES ? &notes : &states;
        char key[STORE_KEY_MAX];

        history_key(job, (enum history_list)list, key);
        r = list_length(s, key, &n[list], err);
        if (r < 0 || (notes_only && list != HISTORY_LIST_NOTES))
            continue;
        p->n = n[list];
        r = count_to(s, key, p->n, after, &p->from, err);
        if (r == 0)
            r = append(s, key, p, err);
    }
    if (r == 0 && ret_gap)
        r = find_gap(s, job, n, ret_gap, err);
    if (r == 0 && !(all = merge(&states, &notes, most)))
        r = merr_set(err, -ENOMEM, "out of memory");
    json_decref(states.to);
    json_decref(notes.to);
    if (r < 0) {
        json_decref(all);
        return r;
    }
    *ret_end = json_array_size(all) == most || states.cut || notes.cut
                   ? id_of(json_array_get(all, json_array_size(all) - 1))
                   : 0;
    *ret = all;
    return 0;
}

int history_read_all(struct store *s, uint64_t after, size_t most, struct store_rows *ret, uint64_t *ret_end,
                     struct merr *err)
{
    return history_read_stream(s, "muster:events", after, most, ret, ret_end, err);
}

int history_read_stream(struct store *s, const char *key, uint64_t after, size_t most, struct store_rows *ret,
                        uint64_t *ret_end, struct merr *err)
{
    redisReply *reply =
        store_read(s, err, "XRANGE %s (%llu-0 + COUNT %llu", key, (unsigned long long)after, (unsigned long long)most);
    struct store_rows rows = {.from = reply};

    if (!reply)
        return -EIO;
    rows.v = calloc(reply->elements + 1, sizeof(*rows.v));
    if (!rows.v) {
        freeReplyObject(reply);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    *ret_end = 0;
    for (; rows.n < reply->elements; rows.n++) {
        const redisReply *id = reply->element[rows.n]->element[0], *fields = reply->element[rows.n]->element[1];

        rows.v[rows.n].name = fields->elements == 4 ? fields->element[3]->str : no_user;
        rows.v[rows.n].text = fields->elements > 1 ? fields->element[1]->str : no_user;
        rows.v[rows.n].id = strtoull(id->str, NULL, 10);
        if (rows.n + 1 == most)
            *ret_end = rows.v[rows.n].id;
    }
    *ret = rows;
    return 0;
}
