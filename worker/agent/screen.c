#include "worker/agent/screen.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#define BACKLOG_US INT64_C(86400000000) /* lines that wait for longer are taken to be as old */

static bool name_ok(const char *name)
{
    size_t n = strlen(name);

    return n >= 1 && n <= SCREEN_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-") == n;
}

/* A new document; NULL: the line is no metrics. */
static json_t *read_line(const char *line, size_t n)
{
    json_t *doc = n <= SCREEN_LINE_MAX ? json_loadb(line, n, 0, NULL) : NULL, *value;
    bool ok = json_is_object(doc);
    const char *name;

    if (json_integer_value(json_object_get(doc, "v")) == 1) {
        ok = json_object_size(doc) <= SCREEN_NAMES_MAX + 3 && /* v, step, t */
             json_is_integer(json_object_get(doc, "step")) && json_integer_value(json_object_get(doc, "step")) >= 0;
        json_object_foreach (doc, name, value)
            ok = ok && name_ok(name);
    }
    if (ok)
        return doc;
    json_decref(doc);
    return NULL;
}

/* When a line was written. */
static int64_t time_of(struct screen *s, const json_t *doc, int64_t now_us)
{
    double t = json_number_value(json_object_get(doc, "t")) * 1e6;

    if (s->last_us < now_us - BACKLOG_US)
        s->last_us = now_us - BACKLOG_US;
    if (t > (double)s->last_us && t <= (double)now_us)
        s->last_us = (int64_t)t;
    else if (!(t > 0 && t <= (double)now_us))
        s->last_us = now_us;
    return s->last_us;
}

static bool passes(struct screen *s, const char *line, size_t n, int64_t now_us)
{
    static const struct bucket_rule rule = {.per_s = SCREEN_PER_S, .burst = SCREEN_BURST};
    json_t *doc = read_line(line, n);
    bool ok = doc != NULL;

    s->damaged += !ok;
    if (ok && bucket_take(&s->rate, &rule, 1, time_of(s, doc, now_us)) > 0) {
        s->thinned++;
        ok = false;
    }
    json_decref(doc);
    return ok;
}

void screen_lines(struct screen *s, char *text, size_t n, int64_t now_wall_us)
{
    char *end = text + n;

    for (char *line = text, *next; line < end; line = next) {
        char *nl = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((nl ? nl : end) - line);

        next = line + len + 1;
        if (len > 0 && !passes(s, line, len, now_wall_us))
            memset(line, ' ', len);
    }
}
