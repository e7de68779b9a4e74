/* The decisions of top: order, choice, keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/top.h"
#include "base/clock.h"

const char *top_order_name(enum top_order order)
{
    static const char *const names[TOP_ORDERS] = {"state", "devices", "time", "name"};

    return names[order];
}

struct ranked {
    const json_t *job;
    enum top_order order;
    int class; /* running, waiting, ended */
    size_t was;
};

static int class_of(const json_t *job)
{
    const char *state = cli_str(job, "state");

    return cli_job_ended(job) ? 2 : strcmp(state, "queued") == 0 || strcmp(state, "suspended") == 0;
}

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    long long more = 0;

    if (x->order == TOP_BY_NAME)
        more = strcmp(cli_str(x->job, "name"), cli_str(y->job, "name"));
    else if (x->order == TOP_BY_DEVICES)
        more = cli_int(json_object_get(y->job, "devices"), "assigned") -
               cli_int(json_object_get(x->job, "devices"), "assigned");
    else if (x->order == TOP_BY_TIME) /* RFC 3339: as text it is as in time; those never started come last */
        more = strcmp(*cli_str(x->job, "started_at") ? cli_str(x->job, "started_at") : "~",
                      *cli_str(y->job, "started_at") ? cli_str(y->job, "started_at") : "~");
    more = more ? more : x->class - y->class;
    more = more ? more : (x->was > y->was) - (x->was < y->was);
    return more < 0 ? -1 : more > 0;
}

json_t *top_sort_new(const json_t *jobs, enum top_order order, int64_t now_us)
{
    size_t n = json_array_size(jobs), kept = 0;
    struct ranked *v = calloc(n + 1, sizeof(*v));
    json_t *sorted = json_array();
    char oldest[CLOCK_RFC3339_MAX];

    clock_rfc3339(now_us - TOP_ENDED_US, oldest);
    for (size_t i = 0; v && i < n; i++) {
        const json_t *job = json_array_get(jobs, i);

        if (!cli_job_ended(job) || strcmp(cli_str(job, "finished_at"), oldest) >= 0)
            v[kept++] = (struct ranked){.job = job, .order = order, .class = class_of(job), .was = i};
    }
    if (v && sorted)
        qsort(v, kept, sizeof(*v), compare);
    for (size_t i = 0; v && sorted && i < kept; i++)
        if (json_array_append(sorted, (json_t *)v[i].job) < 0) {
            json_decref(sorted);
            sorted = NULL;
        }
    if (!v) {
        json_decref(sorted);
        sorted = NULL;
    }
    free(v);
    return sorted;
}

size_t top_find(const json_t *jobs, const char *id)
{
    for (size_t i = 0; *id && i < json_array_size(jobs); i++)
        if (strcmp(cli_str(json_array_get(jobs, i), "id"), id) == 0)
            return i;
    return SIZE_MAX;
}

static void choose(struct top_choice *t, const json_t *jobs, size_t at)
{
    size_t n = json_array_size(jobs);

    t->at = n == 0 ? 0 : at < n ? at : n - 1;
    (void)snprintf(t->id, sizeof(t->id), "%s", n == 0 ? "" : cli_str(json_array_get(jobs, t->at), "id"));
}

void top_keep(struct top_choice *t, const json_t *jobs)
{
    size_t at = top_find(jobs, t->id);

    if (at == SIZE_MAX)
        t->asks = false; /* it was about a job that is gone */
    choose(t, jobs, at == SIZE_MAX ? t->at : at);
}

enum top_key top_key(const char *text, size_t n, size_t *ret_used)
{
    static const struct {
        const char *text;
        enum top_key key;
    } keys[] = {
        {"\033[A", TOP_KEY_UP},   {"\033OA", TOP_KEY_UP}, {"k", TOP_KEY_UP},         {"\033[B", TOP_KEY_DOWN},
        {"\033OB", TOP_KEY_DOWN}, {"j", TOP_KEY_DOWN},    {"\033[H", TOP_KEY_FIRST}, {"g", TOP_KEY_FIRST},
        {"\033[F", TOP_KEY_LAST}, {"G", TOP_KEY_LAST},    {"q", TOP_KEY_QUIT},       {"\003", TOP_KEY_QUIT},
        {"\r", TOP_KEY_SHOW},     {"\n", TOP_KEY_SHOW},   {"l", TOP_KEY_LOGS},       {"e", TOP_KEY_EXPLAIN},
        {"c", TOP_KEY_CANCEL},    {"s", TOP_KEY_SORT},    {"y", TOP_KEY_YES},
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        *ret_used = strlen(keys[i].text);
        if (*ret_used <= n && memcmp(text, keys[i].text, *ret_used) == 0)
            return keys[i].key;
    }
    *ret_used = 1;
    if (n > 2 && text[0] == '\033' && text[1] == '[') { /* of a key without a use: to its last byte */
        for (*ret_used = 2; *ret_used < n && (text[*ret_used] < '@' || text[*ret_used] > '~'); ++*ret_used)
            ;
        *ret_used += *ret_used < n;
    }
    return TOP_KEY_OTHER;
}

enum top_action top_press(struct top_choice *t, const json_t *jobs, enum top_key key)
{
    const json_t *job = json_array_get(jobs, top_find(jobs, t->id));

    if (t->asks) {
        t->asks = false;
        return key == TOP_KEY_YES && job ? TOP_CANCEL : TOP_STAY;
    }
    switch (key) {
    case TOP_KEY_QUIT:
        return TOP_QUIT;
    case TOP_KEY_UP:
        choose(t, jobs, t->at > 0 ? t->at - 1 : 0);
        break;
    case TOP_KEY_DOWN:
        choose(t, jobs, t->at + 1);
        break;
    case TOP_KEY_FIRST:
        choose(t, jobs, 0);
        break;
    case TOP_KEY_LAST:
        choose(t, jobs, SIZE_MAX);
        break;
    case TOP_KEY_SORT:
        t->order = (t->order + 1) % TOP_ORDERS; /* with the next list */
        break;
    case TOP_KEY_CANCEL:
        t->asks = job && !cli_job_ended(job);
        if (t->asks)
            (void)snprintf(t->question, sizeof(t->question), "cancel %s (%.60s)? y: yes, any other key: no", t->id,
                           cli_str(job, "name"));
        break;
    case TOP_KEY_SHOW:
        return job ? TOP_SHOW : TOP_STAY;
    case TOP_KEY_LOGS:
        return job ? TOP_LOGS : TOP_STAY;
    case TOP_KEY_EXPLAIN:
        return job ? TOP_EXPLAIN : TOP_STAY;
    case TOP_KEY_OTHER:
    case TOP_KEY_YES:
        break;
    }
    return TOP_STAY;
}
