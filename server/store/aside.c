#include "server/store/aside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/store_priv.h"

#define NOTES "muster:aside"
#define TEXTS "muster:aside:texts"

void aside_put(struct store *s, const char *id, const char *note, const char *text, size_t len)
{
    store_add(s, "HSET", NOTES, id, note, NULL);
    if (text)
        store_addv(s, 4, (const char *const[]){"HSET", TEXTS, id, text},
                   (const size_t[]){4, strlen(TEXTS), strlen(id), len});
}

void aside_drop(struct store *s, const char *id)
{
    char key[640];

    store_add(s, "HDEL", NOTES, id, NULL);
    store_add(s, "HDEL", TEXTS, id, NULL);
    (void)snprintf(key, sizeof(key), NOTES ":%s", id); /* a whole key, where it is one (redis.c) */
    store_add(s, "DEL", key, NULL);
}

int aside_read(struct store *s, struct store_rows *ret, struct merr *err)
{
    return store_rows_take(store_read(s, err, "HGETALL " NOTES), ret, err);
}

char *aside_read_text(struct store *s, const char *id)
{
    redisReply *reply = store_read(s, NULL, "HGET " TEXTS " %s", id);
    char *text = reply && reply->str ? strdup(reply->str) : NULL;

    if (reply)
        freeReplyObject(reply);
    return text;
}

void aside_hide_job(struct store *s, uint64_t job)
{
    char id[24];

    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)job);
    store_add(s, "SREM", "muster:jobs:active", id, NULL);
    store_add(s, "ZREM", "muster:jobs:ended", id, NULL);
}

void aside_show_job(struct store *s, uint64_t job, bool ended)
{
    char id[24];

    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)job);
    if (ended)
        store_add(s, "ZADD", "muster:jobs:ended", id, id, NULL);
    else
        store_add(s, "SADD", "muster:jobs:active", id, NULL);
}
