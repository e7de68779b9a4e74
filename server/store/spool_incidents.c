#include "server/store/spool_incidents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/incident.h"
#include "base/clock.h"

#define FILE_BYTES (INCIDENT_BYTES / FILES)

enum file { VERDICT, PARTS, FILES };
static const char *const ends[FILES] = {"json", "parts"};

struct id {
    int generation, number;
};

static void name_of(struct id id, enum file file, char ret[SPOOL_NAME_MAX])
{
    (void)snprintf(ret, SPOOL_NAME_MAX, "incident.g%d.n%d.%s", id.generation, id.number, ends[file]);
}

/* --- which there are --------------------------------------------------------------------------------- */

#define SEEN_MAX (4 * INCIDENTS_MAX)

struct seen { /* the newest, newest first */
    enum file file;
    struct id v[SEEN_MAX];
    size_t n;
};

static bool newer(struct id a, struct id b)
{
    return a.generation != b.generation ? a.generation > b.generation : a.number > b.number;
}

static void see(void *arg, const char *name)
{
    struct seen *s = arg;
    struct id id;
    char same[SPOOL_NAME_MAX];
    size_t at = 0;

    if (sscanf(name, "incident.g%9d.n%9d.", &id.generation, &id.number) != 2)
        return;
    name_of(id, s->file, same);
    if (strcmp(name, same) != 0)
        return;
    while (at < s->n && newer(s->v[at], id))
        at++;
    if (at == SEEN_MAX)
        return;
    s->n += s->n < SEEN_MAX;
    memmove(&s->v[at + 1], &s->v[at], (s->n - at - 1) * sizeof(s->v[0]));
    s->v[at] = id;
}

/* Those beyond the newest go. */
static void prune(const struct spool *s, uint64_t job)
{
    for (int f = 0; f < FILES; f++) {
        struct seen seen = {.file = (enum file)f};
        char name[SPOOL_NAME_MAX];

        (void)s->ops->list(s->self, job, see, &seen);
        for (size_t i = INCIDENTS_MAX; i < seen.n; i++) {
            name_of(seen.v[i], (enum file)f, name);
            s->ops->drop_file(s->self, job, name);
        }
    }
}

/* --- keeping ----------------------------------------------------------------------------------------- */

static int64_t length_of(const struct spool *s, uint64_t job, const char *name)
{
    int64_t length = 0;

    return s->ops->read(s->self, job, name, 0, NULL, 0, &length) < 0 ? -1 : length;
}

/* Append a line to a file; less of it than all is never kept. */
static int append(const struct spool *s, uint64_t job, const char *name, const json_t *doc)
{
    char *text = json_dumps(doc, JSON_COMPACT);
    int64_t at = length_of(s, job, name), r;
    bool is_new = false;
    size_t len;

    if (!text)
        return -ENOMEM;
    len = strlen(text);
    text[len] = '\n'; /* in place of its end: append() takes bytes */
    if ((at < 0 ? 0 : at) + (int64_t)len + 1 > FILE_BYTES)
        r = -EFBIG;
    else
        r = s->ops->append(s->self, job, name, at < 0 ? 0 : at, text, len + 1, &is_new);
    free(text);
    if (r >= 0 && at < 0)
        prune(s, job);
    return r < 0 ? (int)r : is_new ? 0 : -EAGAIN;
}

int spool_incidents_put(const struct spool *s, uint64_t job, int generation, int number, const json_t *incident)
{
    char name[SPOOL_NAME_MAX];

    if (!s->ops->known(s->self, job))
        return -ENOENT;
    name_of((struct id){generation, number}, VERDICT, name);
    s->ops->drop_file(s->self, job, name);
    return append(s, job, name, incident);
}

int spool_incidents_add(const struct spool *s, uint64_t job, int generation, int number, json_t *part)
{
    char name[SPOOL_NAME_MAX];
    json_t *rank;
    size_t i;

    if (!s->ops->known(s->self, job))
        return -ENOENT;
    json_array_foreach (json_object_get(part, "ranks"), i, rank) {
        if (json_dumpb(rank, NULL, 0, JSON_COMPACT) <= INCIDENT_RANK_BYTES)
            continue;
        (void)json_object_del(rank, "processes");
        if (json_dumpb(rank, NULL, 0, JSON_COMPACT) > INCIDENT_RANK_BYTES)
            (void)json_object_del(rank, "log");
        if (json_dumpb(rank, NULL, 0, JSON_COMPACT) > INCIDENT_RANK_BYTES)
            (void)json_object_del(rank, "flight");
        (void)json_object_set_new(rank, "left_out",
                                  json_sprintf("more than %d KiB were told", INCIDENT_RANK_BYTES >> 10));
    }
    name_of((struct id){generation, number}, PARTS, name);
    return append(s, job, name, part);
}

/* --- reading ----------------------------------------------------------------------------------------- */

/* The whole of a file, new, with an end; NULL: it is not there, or no memory. */
static char *read_all(const struct spool *s, uint64_t job, const char *name)
{
    int64_t length = length_of(s, job, name), at = 0;
    char *text = length >= 0 && length <= FILE_BYTES ? malloc((size_t)length + 1) : NULL;

    while (text && at < length) {
        ssize_t got = s->ops->read(s->self, job, name, at, text + at, (size_t)(length - at), &length);

        if (got <= 0)
            break;
        at += got;
    }
    if (text)
        text[at] = '\0';
    return text;
}

static json_t *read_verdict(const struct spool *s, uint64_t job, struct id id)
{
    char name[SPOOL_NAME_MAX], *text;
    json_t *doc;

    name_of(id, VERDICT, name);
    text = read_all(s, job, name);
    doc = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return doc;
}

static json_t *describe(const struct spool *s, uint64_t job, struct id id)
{
    json_auto_t *doc = read_verdict(s, job, id);
    const json_t *verdict = json_object_get(doc, "verdict"), *text = json_object_get(verdict, "text");
    char name[32], at[CLOCK_RFC3339_MAX];

    if (!doc)
        return NULL;
    (void)snprintf(name, sizeof(name), "%d-%d", id.generation, id.number);
    clock_rfc3339(json_integer_value(json_object_get(doc, "at_ms")) * 1000, at);
    return json_pack("{s:s, s:i, s:i, s:O?, s:s, s:O?, s:s}", "id", name, "generation", id.generation, "number",
                     id.number, "kind", json_object_get(doc, "kind"), "at", at, "class",
                     json_object_get(verdict, "class"), "text", json_is_string(text) ? json_string_value(text) : "");
}

json_t *spool_incidents_list(const struct spool *s, uint64_t job)
{
    struct seen seen = {.file = VERDICT};
    json_t *list = json_array();

    (void)s->ops->list(s->self, job, see, &seen);
    for (size_t i = 0; i < seen.n && i < INCIDENTS_MAX; i++)
        (void)json_array_append_new(list, describe(s, job, seen.v[i]));
    return json_pack("{s:o}", "incidents", list);
}

/* What a node told first stands: then its ranks were as they failed. */
static void add_part_new(json_t *parts, json_t *part)
{
    const json_t *node = json_object_get(part, "node"), *other;
    size_t i;

    json_array_foreach (parts, i, other)
        if (json_equal(json_object_get(other, "node"), node)) {
            json_decref(part);
            return;
        }
    if (part)
        (void)json_array_append_new(parts, part);
}

json_t *spool_incidents_read(const struct spool *s, uint64_t job, int generation, int number)
{
    struct id id = {generation, number};
    json_t *doc = read_verdict(s, job, id), *parts = json_array();
    char name[SPOOL_NAME_MAX], *text, *nl;

    name_of(id, PARTS, name);
    text = doc ? read_all(s, job, name) : NULL;
    for (char *p = text; p && (nl = strchr(p, '\n')); p = nl + 1)
        add_part_new(parts, json_loadb(p, (size_t)(nl - p), 0, NULL));
    free(text);
    if (doc && json_object_set(doc, "parts", parts) < 0) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(parts);
    return doc;
}
