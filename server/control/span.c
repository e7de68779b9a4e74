#include "server/control/span.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "server/cluster/job.h"

#define TRACE_AT 3 /* in a context */
#define PARENT_AT 36
#define FLAGS_AT 53
#define CONTEXT_LEN 55
#define SPAN_ID_MAX 17

/* Kinds of spans as OTLP numbers them. */
#define KIND_INTERNAL 1
#define KIND_SERVER 2
#define STATUS_ERROR 2

static const char *const part_name[] = {"request", "job", "queue", "decide", "attempt", "start", "first step"};

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

bool span_context_read(const char *text, char ret[PROTOCOL_TRACE_MAX])
{
    static const char zeros[] = "00000000000000000000000000000000";

    if (!text || strlen(text) < CONTEXT_LEN || text[2] != '-' || text[TRACE_AT + 32] != '-' ||
        text[PARENT_AT + 16] != '-' || !is_hex(text, 2) || !is_hex(text + TRACE_AT, 32) ||
        !is_hex(text + PARENT_AT, 16) || !is_hex(text + FLAGS_AT, 2) || strncmp(text, "ff", 2) == 0)
        return false;
    if (strncmp(text, "00", 2) == 0 ? text[CONTEXT_LEN] != '\0' : text[CONTEXT_LEN] != '\0' && text[CONTEXT_LEN] != '-')
        return false;
    if (strncmp(text + TRACE_AT, zeros, 32) == 0 || strncmp(text + PARENT_AT, zeros, 16) == 0)
        return false;
    (void)snprintf(ret, PROTOCOL_TRACE_MAX, "00-%.50s%02x", text + TRACE_AT,
                   (unsigned)strtoul(text + FLAGS_AT, NULL, 16) & 1);
    return true;
}

bool span_context_begin(const struct chance *chance, char ret[PROTOCOL_TRACE_MAX])
{
    uint64_t id[2];

    if (!chance_draw(chance, id, sizeof(id)))
        return false;
    (void)snprintf(ret, PROTOCOL_TRACE_MAX, "00-%016llx%016llx-%016llx-01", (unsigned long long)id[0],
                   (unsigned long long)(id[1] | 1), 0ULL);
    return true;
}

bool span_sampled(const char *context)
{
    return strlen(context) == CONTEXT_LEN && context[FLAGS_AT + 1] == '1';
}

static void id_of(const char *trace, uint64_t job, enum span_part part, uint32_t generation, char ret[SPAN_ID_MAX])
{
    char text[PROTOCOL_TRACE_MAX + 80];

    (void)snprintf(text, sizeof(text), "%s/%llu/%s/%u", trace, (unsigned long long)job, part_name[part],
                   (unsigned)generation);
    (void)snprintf(ret, SPAN_ID_MAX, "%016llx", (unsigned long long)(hash_xxh3(text, strlen(text)) | 1));
}

static void span_id(const struct job *j, enum span_part part, uint32_t generation, char ret[SPAN_ID_MAX])
{
    id_of(j->trace, j->id, part, generation, ret);
}

void span_context_of(const struct job *j, uint32_t generation, char ret[PROTOCOL_TRACE_MAX])
{
    char id[SPAN_ID_MAX];

    ret[0] = '\0';
    if (!*j->trace)
        return;
    span_id(j, SPAN_ATTEMPT, generation, id);
    (void)snprintf(ret, PROTOCOL_TRACE_MAX, "%.36s%s%s", j->trace, id, j->trace + FLAGS_AT - 1);
}

/* The span within which a part lies: ids in hex, "" at the top. */
static void parent_of(const struct job *j, const struct span *s, char ret[SPAN_ID_MAX])
{
    static const enum span_part within[] = {
        [SPAN_JOB] = SPAN_REQUEST, [SPAN_QUEUE] = SPAN_JOB,     [SPAN_DECIDE] = SPAN_QUEUE,
        [SPAN_ATTEMPT] = SPAN_JOB, [SPAN_START] = SPAN_ATTEMPT, [SPAN_FIRST_STEP] = SPAN_ATTEMPT};
    enum span_part part = within[s->part];

    if (s->part == SPAN_JOB && j->array)
        id_of(j->trace, j->array, SPAN_JOB, 0, ret);
    else if (s->part != SPAN_REQUEST)
        span_id(j, part, part == SPAN_ATTEMPT || part == SPAN_QUEUE ? s->generation : 0, ret);
    else if (strspn(j->trace + PARENT_AT, "0") < 16)
        (void)snprintf(ret, SPAN_ID_MAX, "%.16s", j->trace + PARENT_AT);
    else
        ret[0] = '\0';
}

static void add(json_t *attributes, const char *key, json_t *value)
{
    (void)json_array_append_new(attributes, json_pack("{s:s, s:o}", "key", key, "value", value));
}

static void add_text(json_t *attributes, const char *key, const char *text)
{
    if (text && *text)
        add(attributes, key, json_pack("{s:s}", "stringValue", text));
}

static void add_number(json_t *attributes, const char *key, int64_t n)
{
    add(attributes, key, json_pack("{s:o}", "intValue", json_sprintf("%lld", (long long)n)));
}

static json_t *attributes_of(const struct job *j, const struct span *s)
{
    json_t *all = json_array();
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    add_text(all, "muster.job.id", id);
    if (s->part == SPAN_REQUEST) {
        add_text(all, "http.request.method", s->method);
        add_text(all, "http.route", s->path);
        add_number(all, "http.response.status_code", s->status);
    }
    if (s->part == SPAN_REQUEST || s->part == SPAN_JOB) {
        add_text(all, "muster.job.name", j->name);
        add_text(all, "muster.job.user", j->user);
        add_text(all, "muster.job.project", j->project);
    }
    if (s->part == SPAN_JOB)
        add_text(all, "muster.job.state", job_state_name(j->state));
    if (s->generation > 0)
        add_number(all, "muster.job.attempt", s->generation);
    if (s->part == SPAN_QUEUE || s->part == SPAN_DECIDE)
        add_number(all, "muster.job.devices", (int64_t)j->n_places);
    return all;
}

static json_t *time_of(int64_t wall_us)
{
    return json_sprintf("%lld000", (long long)wall_us);
}

char *span_print(const struct job *j, const struct span *s)
{
    char id[SPAN_ID_MAX], parent[SPAN_ID_MAX], before[SPAN_ID_MAX], name[96];
    json_auto_t *span = NULL;

    span_id(j, s->part, s->generation, id);
    parent_of(j, s, parent);
    if (s->part == SPAN_REQUEST)
        (void)snprintf(name, sizeof(name), "%.15s %.70s", s->method, s->path);
    else
        (void)snprintf(name, sizeof(name), "%s", part_name[s->part]);
    span = json_pack("{s:o, s:s, s:s, s:i, s:o, s:o, s:o}", "traceId", json_stringn(j->trace + TRACE_AT, 32), "spanId",
                     id, "name", name, "kind", s->part == SPAN_REQUEST ? KIND_SERVER : KIND_INTERNAL,
                     "startTimeUnixNano", time_of(s->begin_us), "endTimeUnixNano",
                     time_of(s->end_us > s->begin_us ? s->end_us : s->begin_us), "attributes", attributes_of(j, s));
    if (*parent)
        (void)json_object_set_new(span, "parentSpanId", json_string(parent));
    if (s->part == SPAN_ATTEMPT && s->generation > 1) {
        span_id(j, SPAN_ATTEMPT, s->generation - 1, before);
        (void)json_object_set_new(
            span, "links",
            json_pack("[{s:o, s:s}]", "traceId", json_stringn(j->trace + TRACE_AT, 32), "spanId", before));
    }
    if (s->fault)
        (void)json_object_set_new(span, "status", json_pack("{s:i, s:s}", "code", STATUS_ERROR, "message", s->fault));
    return span ? json_dumps(span, JSON_COMPACT) : NULL;
}
