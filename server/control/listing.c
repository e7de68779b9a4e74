#include "server/control/listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/arrays.h"
#include "server/control/auth.h"
#include "server/control/files.h"
#include "server/control/quarantine.h"
#include "server/control/readers.h"
#include "server/control/records.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/control/view.h"
#include "server/http/call.h"
#include "server/store/job_store.h"

#define LIST_DEFAULT 50
#define LIST_MAX 1000     /* as queries.c says */
#define LIST_LOOKS 4000   /* rows of the catalog looked at for one page */
#define LIST_MEASURED 100 /* tasks of one page whose metrics are read: no other user waits long for one read */
#define LIST_RECORDS 500  /* ended jobs read for one page that asks for a name or labels */

/* --- filters ----------------------------------------------------------------------------------------- */

/* "running,queued", or NULL for all. 0 or -EINVAL. */
static int read_states(const char *text, bool states[JOB_STATES])
{
    char name[24];

    for (int i = 0; i < JOB_STATES; i++)
        states[i] = !text || !*text;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        enum job_state s;

        if (n >= sizeof(name))
            return -EINVAL;
        memcpy(name, text, n);
        name[n] = '\0';
        if (strcmp(name, "active") == 0)
            for (int i = 0; i < JOB_SUCCEEDED; i++)
                states[i] = true;
        else if (job_state_parse(name, &s) == 0)
            states[s] = true;
        else
            return -EINVAL;
        text += n + (text[n] == ',');
    }
    return 0;
}

/* A key or value at the beginning of text. Its length; 0: there is none. */
static size_t read_word(const char *text, char ret[SPEC_LABEL_BYTES + 1])
{
    size_t n = strspn(text, SPEC_LABEL_LETTERS);

    if (n == 0 || n > SPEC_LABEL_BYTES)
        return 0;
    memcpy(ret, text, n);
    ret[n] = '\0';
    return n;
}

/* "a=b" or "a!=b" up to a comma or the end. Its length; 0: it is neither. */
static size_t read_label(const char *text, struct listing_label *ret)
{
    size_t key = read_word(text, ret->key), sign, value;

    ret->differs = text[key] == '!';
    sign = key + ret->differs;
    if (key == 0 || text[sign] != '=')
        return 0;
    value = read_word(text + sign + 1, ret->value);
    return value > 0 ? sign + 1 + value : 0;
}

/* "a=b,c!=d", or NULL. 0 or -EINVAL. */
static int read_labels(const char *text, struct listing_wish *w)
{
    for (; text && *text; text++) {
        struct listing_label l;
        size_t n = read_label(text, &l);

        if (n == 0 || w->n_labels == SPEC_LABELS_MAX || (text[n] && (text[n] != ',' || !text[n + 1])))
            return -EINVAL;
        w->labels[w->n_labels++] = l;
        text += n;
        if (!*text)
            break;
    }
    return 0;
}

bool listing_read(struct call *call, listing_get_fn *get, const void *arg, struct listing_wish *ret)
{
    const char *state = get(arg, "state"), *label = get(arg, "label");

    *ret = (struct listing_wish){.user = get(arg, "user"), .project = get(arg, "project"), .name = get(arg, "name~")};
    if (read_states(state, ret->states) < 0)
        call_problem(call, 422, "query-invalid",
                     "'%s' is no list of states; they are queued, starting, running, rescaling, "
                     "suspended, recovering, succeeded, failed, cancelled, and active for all but the last three",
                     state);
    else if (read_labels(label, ret) < 0)
        call_problem(call, 422, "query-invalid",
                     "'%s' is no list of labels; want such as team=nlp,stage!=test, at most %d of them", label,
                     SPEC_LABELS_MAX);
    return call->status == 0;
}

/* Jobs that a user may see: their own, and those of the projects that they manage. */
static void query_visible(const struct core *c, const struct http_identity *who, struct catalog_query *q)
{
    struct catalog_any *any;

    if (auth_sees(who, ""))
        return;
    any = catalog_query_any(q);
    catalog_any_user(&c->jobs.catalog, any, who->user);
    for (size_t i = 0; i < c->cluster.projects.n; i++)
        if (rights_manages(c, who, c->cluster.projects.v[i].name))
            catalog_any_project(&c->jobs.catalog, any, c->cluster.projects.v[i].name);
}

void listing_query(const struct core *c, const struct call *call, const struct listing_wish *w,
                   struct catalog_query *ret)
{
    ret->n = ret->looks = 0;
    query_visible(c, http_identity(call->req), ret);
    if (w->user)
        catalog_any_user(&c->jobs.catalog, catalog_query_any(ret), w->user);
    if (w->project)
        catalog_any_project(&c->jobs.catalog, catalog_query_any(ret), w->project);
    catalog_query_states(&c->jobs.catalog, ret, w->states);
}

bool listing_fits(const struct listing_wish *w, const struct job *j)
{
    if (w->name && !strstr(j->name, w->name))
        return false;
    for (size_t i = 0; i < w->n_labels; i++) {
        const char *value = json_string_value(json_object_get(j->labels, w->labels[i].key));

        if ((value && strcmp(value, w->labels[i].value) == 0) == w->labels[i].differs)
            return false;
    }
    return true;
}

/* --- a page ------------------------------------------------------------------------------------------ */

struct page {
    struct core *c;
    const struct listing_wish *wish;
    const json_t *fields;   /* names of those that are wanted; NULL: all */
    json_t *list, *numbers; /* the latter of those that have run, 0 of the others; NULL: nobody asks */
    struct job_ids ended;   /* found, and to be read and put onto the list */
};

/* The fields that are wanted of a document, which is taken over. */
static json_t *pick_new(const json_t *fields, json_t *doc)
{
    json_t *some = fields ? json_object() : doc, *name;
    size_t i;

    json_array_foreach (fields, i, name) {
        (void)json_object_set(some, json_string_value(name), json_object_get(doc, json_string_value(name)));
    }
    if (fields)
        json_decref(doc);
    return some;
}

static void add_job(struct page *p, const struct job *j, const struct entry *e)
{
    if (!listing_fits(p->wish, j))
        return;
    (void)json_array_append_new(p->list, pick_new(p->fields, view_job(p->c, j, e, NULL)));
    if (p->numbers)
        (void)json_array_append_new(p->numbers, json_integer(j->generation > 0 ? (json_int_t)j->id : 0));
}

/* One that cannot be read is set aside; one that was forgotten meanwhile is left out. */
static int add_ended(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    struct page *p = arg;
    struct merr why = {""};
    struct job job;
    int r = records_parse_job(p->ended.v[i], stored, &job, NULL, &why);

    if (r == -EINVAL)
        quarantine_job(p->c, p->ended.v[i], why.text);
    if (r == 0) {
        add_job(p, &job, NULL);
        job_clear(&job);
    }
    return r == -ENOMEM ? merr_set(err, r, "out of memory for the record of a job") : 0;
}

/* Add the ended jobs that were found since the last active one. */
static int flush(struct page *p, struct merr *err)
{
    struct job_ids *e = &p->ended;
    int r = e->n > 0 ? job_store_read_each(p->c->store, e->v, e->n, false, add_ended, p, err) : 0;

    e->n = 0;
    return r;
}

/* Put jobs below *below onto the page, newest first, up to limit; *below becomes where to go on, 0 at the end. */
static int collect(struct page *p, struct catalog_query *q, size_t limit, uint64_t *below, struct merr *err)
{
    bool sieved = p->wish->name || p->wish->n_labels > 0;
    uint64_t v[LIST_MAX];
    size_t read = 0;
    int r = 0;

    p->ended = (struct job_ids){.v = v};
    while (r == 0 && json_array_size(p->list) + p->ended.n < limit && q->looks < LIST_LOOKS && read < LIST_RECORDS) {
        struct catalog_row *row = catalog_next(q, *below, LIST_LOOKS - q->looks, below);
        const struct entry *e = row ? table_find(&p->c->jobs, row->id) : NULL;

        if (!row)
            break;
        *below = row->id;
        if (!e) {
            v[p->ended.n++] = row->id;
            read += sieved;
        }
        if (e || json_array_size(p->list) + p->ended.n == limit)
            r = flush(p, err);
        if (r == 0 && e)
            add_job(p, &e->job, e);
    }
    return r < 0 ? r : flush(p, err);
}

/* "id,state" as an array of names, new; *ret NULL: all are wanted. False: the call is answered. */
static bool read_fields(struct call *call, json_t **ret)
{
    static const char *const known[] = {"id",       "name",        "project",    "kind",     "user",
                                        "state",    "priority",    "generation", "reason",   "submitted_at",
                                        "devices",  "finished_at", "started_at", "layout",   "assignment",
                                        "progress", "eval",        "checkpoint", "restarts", "dir",
                                        "outcome",  "labels",      "log_bytes",  "array",    "task"};
    const char *text = http_query(call->req, "fields");
    json_t *all = text ? json_array() : NULL;

    while (text && *text) {
        size_t n = strcspn(text, ","), i = 0;

        while (i < sizeof(known) / sizeof(known[0]) && (strlen(known[i]) != n || strncmp(known[i], text, n) != 0))
            i++;
        if (i == sizeof(known) / sizeof(known[0])) {
            call_problem(call, 422, "query-invalid", "a job in a list has no field '%.*s'; see Job in /openapi.yaml",
                         (int)(n < 64 ? n : 64), text);
            json_decref(all);
            return false;
        }
        (void)json_array_append_new(all, json_string(known[i]));
        text += n + (text[n] == ',');
    }
    *ret = all;
    return true;
}

static const char *from_query(const void *call, const char *name)
{
    return http_query(((const struct call *)call)->req, name);
}

/* --- the tasks of an array --------------------------------------------------------------------------- */

static const struct array *find_array(const struct core *c, struct call *call, const char *id)
{
    const struct array *a = array_find(&c->arrays, job_id_parse(id));
    const struct catalog_row *row = a ? catalog_find(&c->jobs.catalog, a->job) : NULL;

    if (row && rights_sees(c, http_identity(call->req), row->user->name, row->project->name))
        return a;
    call->hidden = row;
    call_problem(call, 404, "unknown-job", "there is no array '%s'; `muster list` shows those there are", id);
    return NULL;
}

/* Put tasks from position *at on onto the page, by rising index; *at becomes where to go on. */
static int collect_tasks(struct page *p, const struct array *a, const struct job *parent, size_t limit, size_t *at,
                         struct merr *err)
{
    uint64_t v[LIST_MAX];
    int r = 0;

    p->ended = (struct job_ids){.v = v};
    for (; r == 0 && *at < array_size(a) && json_array_size(p->list) + p->ended.n < limit; ++*at) {
        const struct array_task *t = &a->tasks[*at];
        const struct entry *e = t->job ? table_find(&p->c->jobs, t->job) : NULL;
        struct job stand_in;

        if (!p->wish->states[e ? e->job.state : array_job_state((enum array_state)t->state)])
            continue;
        if (!e && t->job && catalog_find(&p->c->jobs.catalog, t->job)) {
            v[p->ended.n++] = t->job;
            continue;
        }
        r = flush(p, err);
        if (e) {
            add_job(p, &e->job, e);
            continue;
        }
        arrays_stand_in(p->c, a, parent, *at, &stand_in);
        add_job(p, &stand_in, NULL);
        job_clear(&stand_in);
    }
    return r < 0 ? r : flush(p, err);
}

/* What each of a page's tasks measured last. On a reader's thread. */
static void run_measured(void *core, struct call *call)
{
    const struct core *c = core;
    json_t *jobs = json_object_get(call->body, "jobs"), *job;
    const json_t *numbers = json_object_get(call->fresh, "numbers");
    size_t i;

    json_array_foreach (jobs, i, job) {
        json_int_t number = json_integer_value(json_array_get(numbers, i));

        (void)json_object_set_new(job, "measured",
                                  number ? files_last_measured(c->files, (uint64_t)number, call) : json_null());
    }
    call_answer_new(call, 200, json_incref(call->body));
    call_deliver(call);
}

static void answer_page_new(struct core *c, struct call *call, json_t *answer, json_t *numbers)
{
    if (!numbers) {
        call_answer_new(call, 200, answer);
        return;
    }
    json_decref(call->body);
    json_decref(call->fresh);
    call->body = answer;
    call->fresh = json_pack("{s:O}", "numbers", numbers);
    call->run = run_measured;
    c->handed = true;
    readers_post(c->readers, call);
}

static void answer_tasks(struct core *c, struct call *call, const char *array, struct page *page, size_t limit)
{
    const char *cursor = http_query(call->req, "cursor");
    const struct array *a = find_array(c, call, array);
    const struct entry *e = a ? table_find(&c->jobs, a->job) : NULL;
    size_t at = cursor && *cursor ? strtoull(cursor, NULL, 10) : 0;
    struct job ended = {.id = 0};
    struct merr err = {""};
    char next[24];

    if (!a)
        return;
    if (!e && records_read_job(c, a->job, &ended, NULL, &err) < 0) {
        call_problem(call, 503, "store", "%s", err.text);
        return;
    }
    page->list = json_array();
    if (collect_tasks(page, a, e ? &e->job : &ended, limit, &at, &err) < 0) {
        json_decref(page->list);
        call_problem(call, 503, "store", "%s", err.text);
    } else {
        (void)snprintf(next, sizeof(next), "%zu", at);
        answer_page_new(c, call,
                        json_pack("{s:o, s:s?, s:o}", "jobs", page->list, "next_cursor",
                                  at < array_size(a) ? next : NULL, "quarantine", quarantine_summary(c)),
                        page->numbers);
    }
    job_clear(&ended);
}

void listing_jobs(struct core *c, struct call *call)
{
    const char *array = http_query(call->req, "array"), *metric = http_query(call->req, "metric");
    const char *cursor = http_query(call->req, "cursor");
    json_auto_t *numbers = NULL;
    uint64_t below = cursor && *cursor ? job_id_parse(cursor) : UINT64_MAX >> 1;
    json_auto_t *fields = NULL;
    struct catalog_query q;
    struct listing_wish wish;
    struct page page = {.c = c, .wish = &wish};
    struct merr err = {""};
    char next[24];
    size_t limit = (size_t)call_number(call, "limit", LIST_DEFAULT);

    if (!read_fields(call, &fields))
        return;
    page.fields = fields;
    if (metric && (!array || !*metric)) {
        call_problem(call, 422, "query-invalid", "'metric' is one's name, of the tasks of an array that 'array' names");
        return;
    }
    if (array) {
        page.numbers = numbers = metric ? json_array() : NULL;
        if (listing_read(call, from_query, call, &wish))
            answer_tasks(c, call, array, &page, metric && limit > LIST_MEASURED ? LIST_MEASURED : limit);
        return;
    }
    if (below == 0) {
        call_problem(call, 422, "query-invalid", "'%s' is no cursor that this server gave", cursor);
        return;
    }
    if (!listing_read(call, from_query, call, &wish))
        return;
    listing_query(c, call, &wish, &q);
    page.list = json_array();
    if (collect(&page, &q, limit, &below, &err) < 0) {
        json_decref(page.list);
        call_problem(call, 503, "store", "%s", err.text);
        return;
    }
    (void)snprintf(next, sizeof(next), "j%llu", (unsigned long long)below);
    call_answer_new(call, 200,
                    json_pack("{s:o, s:s?, s:o}", "jobs", page.list, "next_cursor", below > 1 ? next : NULL,
                              "quarantine", quarantine_summary(c)));
}
