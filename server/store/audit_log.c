#include "server/store/audit_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/history_priv.h"

#define RECORDS_MAX "10000000" /* bytes are the limit that counts */
#define RECORDS_READ 32        /* at once, each of 64 KiB at most, but for a single long entry */

void audit_log_add(struct store *s, uint64_t last_id, const char *lines)
{
    char id[32];

    (void)snprintf(id, sizeof(id), "%llu-0", (unsigned long long)last_id);
    store_add(s, "XADD", "muster:audit", "MAXLEN", "~", RECORDS_MAX, id, "l", lines, NULL);
}

void audit_log_put_size(struct store *s, uint64_t newest, uint64_t bytes)
{
    store_put_meta(s, "audit_newest", newest);
    store_put_meta(s, "audit_bytes", bytes);
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

int audit_log_read_records(struct store *s, uint64_t after, size_t most, struct store_rows *ret, uint64_t *ret_end,
                           struct merr *err)
{
    return history_read_stream(s, "muster:audit", after, most, ret, ret_end, err);
}

/* Cut "USER ID ENTRY", which is changed, into a row. False: it is none. */
static bool cut_line(char *line, struct store_row *ret)
{
    char *id = strchr(line, ' '), *text;

    if (!id)
        return false;
    *id++ = '\0';
    ret->name = line;
    ret->id = strtoull(id, &text, 10);
    ret->text = text + 1;
    return *text == ' ';
}

/* The entries of records, whose texts are cut up, that come after an id. */
static int cut_records(const struct store_rows *records, uint64_t after, struct store_rows *ret)
{
    size_t most = 0;

    for (size_t i = 0; i < records->n; i++) {
        most++;
        for (const char *p = records->v[i].text; (p = strchr(p, '\n')); p++)
            most++;
    }
    ret->v = calloc(most + 1, sizeof(*ret->v));
    if (!ret->v)
        return -ENOMEM;
    for (size_t i = 0; i < records->n; i++) {
        char *rest = NULL;

        if (*records->v[i].text == '{') { /* an older musterd's */
            ret->v[ret->n++] = records->v[i];
            continue;
        }
        for (char *l = strtok_r(records->v[i].text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
            if (cut_line(l, &ret->v[ret->n]) && ret->v[ret->n].id > after)
                ret->n++;
    }
    return 0;
}

int audit_log_read(struct store *s, uint64_t after, struct store_rows *ret, uint64_t *ret_end, struct merr *err)
{
    struct store_rows records = {0}, entries = {0};
    int r = audit_log_read_records(s, after, RECORDS_READ, &records, ret_end, err);

    if (r == 0 && cut_records(&records, after, &entries) < 0)
        r = merr_set(err, -ENOMEM, "out of memory");
    if (r < 0) {
        store_rows_clear(&records);
        return r;
    }
    entries.from = records.from;
    free(records.v);
    *ret = entries;
    return 0;
}
