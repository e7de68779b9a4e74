#include "server/store/audit_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/store/history_priv.h"

#define ENTRIES_MAX "10000000" /* bytes are the limit that counts */

void audit_log_add(struct store *s, uint64_t id, const char *user, const char *text)
{
    char entry[32];

    (void)snprintf(entry, sizeof(entry), "%llu-0", (unsigned long long)id);
    store_add(s, "XADD", "muster:audit", "MAXLEN", "~", ENTRIES_MAX, entry, "e", text, "u", user, NULL);
}

void audit_log_put_size(struct store *s, uint64_t newest, uint64_t bytes)
{
    char id[24], size[24];

    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)newest);
    (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
    store_add(s, "HSET", "muster:meta", "audit_newest", id, "audit_bytes", size, NULL);
}

void audit_log_trim(struct store *s, uint64_t id)
{
    char first[32];

    (void)snprintf(first, sizeof(first), "%llu-0", (unsigned long long)id);
    store_add(s, "XTRIM", "muster:audit", "MINID", first, NULL);
}

int audit_log_size(struct store *s, uint64_t *ret_newest, uint64_t *ret_bytes, struct merr *err)
{
    redisReply *reply = store_read(s, err, "HMGET muster:meta audit_newest audit_bytes");
    int r = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 ? 0 : -EIO;

    if (r == 0) {
        *ret_newest = reply->element[0]->str ? strtoull(reply->element[0]->str, NULL, 10) : 0;
        *ret_bytes = reply->element[1]->str ? strtoull(reply->element[1]->str, NULL, 10) : 0;
    }
    if (reply)
        freeReplyObject(reply);
    return r < 0 ? merr_set(err, r, "cannot read the size of the store's audit log") : 0;
}

int audit_log_read(struct store *s, uint64_t after, size_t most, struct store_rows *ret, uint64_t *ret_end,
                   struct merr *err)
{
    return history_read_stream(s, "muster:audit", after, most, ret, ret_end, err);
}
