#include "server/store/history_priv.h"

#include <errno.h>
#include <stdio.h>

void history_key(uint64_t job, enum history_list list, char ret[STORE_KEY_MAX])
{
    static const char *const list_name[HISTORY_LISTS] = {"events", "recent", "notes"};

    (void)snprintf(ret, STORE_KEY_MAX, "muster:job:%llu:%s", (unsigned long long)job, list_name[list]);
}

static void add(struct store *s, uint64_t job, enum history_list list, int limit, const char *text)
{
    char key[STORE_KEY_MAX], from[16];

    history_key(job, (enum history_list)list, key);
    (void)snprintf(from, sizeof(from), "-%d", limit);
    store_add(s, "RPUSH", key, text, NULL);
    store_add(s, "LTRIM", key, from, "-1", NULL);
}

void history_add_state(struct store *s, uint64_t job, uint64_t n, const char *text)
{
    char key[STORE_KEY_MAX];

    if (n > HISTORY_FIRST) {
        add(s, job, HISTORY_LIST_RECENT, HISTORY_RECENT, text);
        return;
    }
    history_key(job, HISTORY_LIST_FIRST, key);
    store_add(s, "RPUSH", key, text, NULL);
}

void history_add_note(struct store *s, uint64_t job, const char *text, size_t keep)
{
    add(s, job, HISTORY_LIST_NOTES, (int)(keep < HISTORY_NOTES ? keep : HISTORY_NOTES), text);
    history_skip_note(s, job);
}

ssize_t history_read_note_bytes(struct store *s, uint64_t job, uint16_t *ret, size_t most)
{
    char key[STORE_KEY_MAX];
    redisReply *reply;
    ssize_t n = 0;

    history_key(job, HISTORY_LIST_NOTES, key);
    reply = store_read(s, NULL, "LRANGE %s -%llu -1", key, (unsigned long long)most);
    if (!reply)
        return -EIO;
    for (; (size_t)n < reply->elements; n++)
        ret[n] = reply->element[n]->len < UINT16_MAX ? (uint16_t)reply->element[n]->len : UINT16_MAX;
    freeReplyObject(reply);
    return n;
}

void history_skip_note(struct store *s, uint64_t job)
{
    char key[STORE_KEY_MAX];

    store_job_key(job, key);
    store_add(s, "HINCRBY", key, "notes", "1", NULL);
}

void history_drop(struct store *s, uint64_t job)
{
    for (int list = 0; list < HISTORY_LISTS; list++) {
        char key[STORE_KEY_MAX];

        history_key(job, (enum history_list)list, key);
        store_add(s, "DEL", key, NULL);
    }
}

void history_add_all(struct store *s, uint64_t id, const char *text, const char *user)
{
    char entry[32], most[16];

    (void)snprintf(entry, sizeof(entry), "%llu-0", (unsigned long long)id);
    (void)snprintf(most, sizeof(most), "%d", HISTORY_ALL);
    store_add(s, "XADD", "muster:events", "MAXLEN", "~", most, entry, "e", text, "u", user, NULL);
}
