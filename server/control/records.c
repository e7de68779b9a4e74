#include "server/control/records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "scheduler/cluster/learned.h"
#include "server/cluster/slots.h"
#include "server/cluster/stragglers.h"
#include "server/control/kinds.h"
#include "server/control/quarantine.h"
#include "server/control/state.h"
#include "server/store/job_store.h"

#define KINDS_MOST 64 /* put at a time */

/* --- rows of a table --------------------------------------------------------------------------------- */

bool records_put_row_new(struct core *c, enum store_table table, const char *name, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (text)
        store_put(c->store, table, name, text);
    free(text);
    return text != NULL;
}

void records_drop_row(struct core *c, enum store_table table, const char *name)
{
    store_drop(c->store, table, name);
}

int records_take_rows(struct core *c, enum store_table table, const char *kind, records_take_fn *take, struct merr *err)
{
    struct store_rows all = {0};
    struct merr why = {""};
    int r = store_read_rows(c->store, table, &all, err);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        r = take(c, &all.v[i], &why);
        if (r == -EINVAL) {
            if (kind)
                quarantine_row(c, kind, &all.v[i], why.text);
            store_drop(c->store, table, all.v[i].name);
            r = 0;
        }
        if (r < 0)
            (void)merr_set(err, r, "%s", why.text);
    }
    store_rows_clear(&all);
    return r;
}

struct missing { /* jobs that have ended and are not in the catalog */
    struct core *c;
    const uint64_t *ids;
};

/* --- jobs that have ended ---------------------------------------------------------------------------- */

static void put_ended(struct core *c, const struct catalog_row *row)
{
    char id[24];
    json_t *o = json_pack("[s, s, s, I, I, b]", job_state_name(row->state), row->user->name, row->project->name,
                          (json_int_t)row->bytes, (json_int_t)row->shipped, row->task);

    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)row->id);
    if (!records_put_row_new(c, STORE_ENDED, id, o))
        state_fatal(c, "out of memory for the catalog of jobs");
}

void records_drop_ended(struct core *c, uint64_t job)
{
    struct catalog_row *row = catalog_find(&c->jobs.catalog, job);
    char id[24];

    job_store_drop(c->store, job);
    if (array_find(&c->arrays, job))
        records_drop_array(c, array_find(&c->arrays, job));
    if (!row)
        return;
    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)job);
    store_drop(c->store, STORE_ENDED, id);
    catalog_drop(&c->jobs.catalog, row);
}

static int by_number(const void *a, const void *b)
{
    const struct store_row *x = a, *y = b;
    uint64_t i = strtoull(x->name, NULL, 10), k = strtoull(y->name, NULL, 10);

    return (i > k) - (i < k);
}

static int read_catalog(struct core *c, struct merr *err)
{
    struct store_rows all;
    int r = store_read_rows(c->store, STORE_ENDED, &all, err);

    if (r < 0)
        return r;
    qsort(all.v, all.n, sizeof(*all.v), by_number);
    for (size_t i = 0; i < all.n && r != -ENOMEM; i++) {
        json_t *o = json_loads(all.v[i].text, 0, NULL);
        const char *name, *user, *project;
        enum job_state state;
        json_int_t bytes;
        struct catalog_row *row;

        if (json_unpack(o, "[s, s, s, I]", &name, &user, &project, &bytes) == 0 && job_state_parse(name, &state) == 0 &&
            job_ended(state))
            r = (json_is_true(json_array_get(o, 5)) ? catalog_add_task : catalog_add)(
                &c->jobs.catalog, strtoull(all.v[i].name, NULL, 10), user, project, state, (uint64_t)bytes);
        row = r == 0 ? catalog_find(&c->jobs.catalog, strtoull(all.v[i].name, NULL, 10)) : NULL;
        if (row)
            catalog_ship(&c->jobs.catalog, row, (uint64_t)json_integer_value(json_array_get(o, 4)));
        json_decref(o);
    }
    store_rows_clear(&all);
    return r == -ENOMEM ? merr_set(err, r, "out of memory for the catalog of jobs") : 0;
}

/* One that an older musterd, which kept no catalog, let end. What cannot be read is nobody's. */
static int add_missing(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    struct core *c = ((struct missing *)arg)->c;
    uint64_t id = ((struct missing *)arg)->ids[i];
    struct job job = {.state = JOB_FAILED};
    int r = records_parse_job(id, stored, &job, NULL, NULL);

    if (r == -ENOMEM)
        return merr_set(err, r, "out of memory for the catalog of jobs");
    r = catalog_add(&c->jobs.catalog, id, job.user, job.project, job_ended(job.state) ? job.state : JOB_FAILED,
                    stored->record ? strlen(stored->record) : 0);
    job_clear(&job);
    if (r < 0)
        return merr_set(err, r, "out of memory for the catalog of jobs");
    put_ended(c, catalog_find(&c->jobs.catalog, id));
    return 0;
}

int records_read_ended(struct core *c, struct merr *err)
{
    struct job_ids all = {0};
    size_t n = 0;
    int r = read_catalog(c, err);

    if (r == 0)
        r = job_store_ended_below(c->store, UINT64_MAX >> 1, INT32_MAX, &all, err);
    for (size_t i = 0; i < all.n; i++)
        if (!catalog_find(&c->jobs.catalog, all.v[i]))
            all.v[n++] = all.v[i];
    for (size_t at = 0; r == 0 && at < n; at += 256) {
        struct missing some = {.c = c, .ids = all.v + at};

        r = job_store_read_each(c->store, some.ids, n - at < 256 ? n - at : 256, false, add_missing, &some, err);
    }
    job_ids_clear(&all);
    return r;
}

/* --- jobs -------------------------------------------------------------------------------------------- */

bool records_put_job(struct core *c, struct entry *e)
{
    json_t *record = job_record(&e->job);
    char *text = record ? json_dumps(record, JSON_COMPACT) : NULL;

    json_decref(record);
    if (!text)
        return false;
    job_store_put(c->store, e->job.id, e->stored_version, e->job.version, text, e->is_new ? e->spec_text : NULL);
    if (job_ended(e->job.state)) {
        struct catalog_row *row = catalog_find(&c->jobs.catalog, e->job.id);

        job_store_end(c->store, e->job.id, job_state_name(e->job.state));
        store_add_device_us(c->store, e->job.project, e->job.device_us);
        catalog_resize(&c->jobs.catalog, row, table_bytes(e) + strlen(text) + e->notes.bytes);
        put_ended(c, row);
    }
    free(text);
    return true;
}

void records_put_back(struct core *c, const struct entry *e)
{
    char id[24];

    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)e->job.id);
    job_store_begin_again(c->store, e->job.id, job_state_name(e->job.state));
    store_add_device_us(c->store, e->job.project, -e->job.device_us);
    store_drop(c->store, STORE_ENDED, id);
}

int records_parse_job(uint64_t id, const struct job_stored *stored, struct job *ret, json_t **ret_doc, struct merr *err)
{
    json_auto_t *doc = stored->record ? json_loads(stored->record, 0, NULL) : NULL;
    json_auto_t *spec = stored->spec ? json_loads(stored->spec, 0, NULL) : NULL;
    struct job job;
    int r;

    if (!stored->record)
        return merr_set(err, -ENOENT, "the store lists the job and has no record of it");
    r = doc ? job_from_record(doc, &job) : -EINVAL;
    if (r < 0)
        return merr_set(err, r, "the job's record in the store cannot be read");
    if (job.id != id || job.version != stored->version)
        r = merr_set(err, -EINVAL, "the job's record in the store is of another job or version");
    else if (ret_doc && !spec)
        r = merr_set(err, -EINVAL, "the job's spec in the store cannot be read");
    if (r < 0) {
        job_clear(&job);
        return r;
    }
    if (ret_doc)
        *ret_doc = json_incref(spec);
    *ret = job;
    return 0;
}

struct one_job {
    uint64_t id;
    struct job *job;
    char **spec; /* NULL: not wanted */
};

static int take_job(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    const struct one_job *one = arg;
    int r = records_parse_job(one->id, stored, one->job, NULL, err);

    (void)i;
    if (r == 0 && one->spec) {
        *one->spec = strdup(stored->spec ? stored->spec : "{}");
        if (!*one->spec) {
            r = merr_set(err, -ENOMEM, "no memory for the spec of job 'j%llu'", (unsigned long long)one->job->id);
            job_clear(one->job);
        }
    }
    return r;
}

int records_read_job(struct core *c, uint64_t id, struct job *ret, char **ret_spec, struct merr *err)
{
    const json_t *note = quarantine_find_job(c, id);
    struct merr why = {""};
    int r;

    if (note)
        return merr_set(err, -EINVAL, "%s", json_string_value(json_object_get(note, "why")));
    r = job_store_read(c->store, id, take_job, &(struct one_job){.id = id, .job = ret, .spec = ret_spec}, &why);
    if (r == -EINVAL)
        quarantine_job(c, id, why.text);
    return r < 0 ? merr_set(err, r, "%s", why.text) : 0;
}

/* --- arrays ------------------------------------------------------------------------------------------- */

/* Of the row of its tasks, or with "t" of its trials. */
static void chunk_name(uint64_t job, size_t chunk, const char *what, char ret[48])
{
    (void)snprintf(ret, 48, "%llu/%s%zu", (unsigned long long)job, what, chunk);
}

static bool put_array(struct core *c, struct array *a)
{
    char name[48];

    (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)a->job);
    if (a->is_new && !records_put_row_new(c, STORE_ARRAYS, name, array_record(a)))
        return false;
    a->is_new = false;
    for (size_t k = 0; k < array_chunks(a); k++) {
        char *text = a->changed[k] ? array_print_chunk(a, k) : NULL;

        if (!text && a->changed[k])
            return false;
        chunk_name(a->job, k, "", name);
        if (text)
            store_put(c->store, STORE_ARRAYS, name, text);
        free(text);
        chunk_name(a->job, k, "t", name);
        if (a->changed[k] && a->trials && !records_put_row_new(c, STORE_ARRAYS, name, array_trials_json(a, k)))
            return false;
        a->changed[k] = 0;
    }
    return true;
}

bool records_put_arrays(struct core *c)
{
    struct array *a;

    while ((a = array_take_dirty(&c->arrays)))
        if (!put_array(c, a))
            return false;
    return true;
}

void records_drop_array(struct core *c, struct array *a)
{
    char name[48];

    if (a->n_of[ARRAY_OPEN] > 0) /* it failed before its tasks: its next start finds it alone */
        return;
    (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)a->job);
    store_drop(c->store, STORE_ARRAYS, name);
    for (size_t k = 0; k < array_chunks(a); k++) {
        chunk_name(a->job, k, "", name);
        store_drop(c->store, STORE_ARRAYS, name);
        chunk_name(a->job, k, "t", name);
        if (a->trials)
            store_drop(c->store, STORE_ARRAYS, name);
    }
    array_drop(&c->arrays, a);
}

static int take_array(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = strchr(row->name, '/') ? NULL : json_loadb(row->text, row->len, 0, NULL);
    int r = strchr(row->name, '/') ? 0 : array_read_record(&c->arrays, strtoull(row->name, NULL, 10), o);

    return r < 0 ? merr_set(err, r, "the store's record of an array cannot be read") : 0;
}

static int take_chunk(struct core *c, const struct store_row *row, struct merr *err)
{
    const char *slash = strchr(row->name, '/');
    struct array *a = slash ? array_find(&c->arrays, strtoull(row->name, NULL, 10)) : NULL;

    json_auto_t *trials = slash && slash[1] == 't' ? json_loadb(row->text, row->len, 0, NULL) : NULL;
    int r = !slash            ? 0
            : !a              ? -EINVAL
            : slash[1] == 't' ? array_read_trials(a, strtoull(slash + 2, NULL, 10), trials)
                              : array_read_chunk(a, strtoull(slash + 1, NULL, 10), row->text, row->len);

    if (r < 0)
        return merr_set(err, -EINVAL, "the store's record of an array's tasks cannot be read");
    return 0;
}

int records_read_arrays(struct core *c, struct merr *err)
{
    int r = records_take_rows(c, STORE_ARRAYS, "array", take_array, err);

    return r < 0 ? r : records_take_rows(c, STORE_ARRAYS, "array", take_chunk, err);
}

/* --- nodes ------------------------------------------------------------------------------------------- */

static bool put_node(struct core *c, const struct node *n)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:b, s:I, s:I, s:I, s:o, s:o, s:I, s:b, s:O*}",
                          "address", n->address, "rack", n->rack, "version", n->release, "boot_id", n->boot_id,
                          "incarnation", n->incarnation, "shared_account", n->shared_account, "seq", (json_int_t)n->seq,
                          "drain", n->drain, "drain_by_us", (json_int_t)moment_wall_of(&c->now, n->drain_by_us),
                          "lost_us", (json_int_t)n->lost_wall_us, "seen_us", (json_int_t)n->seen_wall_us, "slots",
                          slots_record(&c->cluster.classes, n), "health", health_record(&n->health), "leaves_us",
                          (json_int_t)n->leaves_us, "leaving", n->leaving, "test", n->test.result);

    return records_put_row_new(c, STORE_NODES, n->name, o);
}

bool records_put_nodes(struct core *c)
{
    bool all = true;

    for (size_t i = 0; c->nodes_changed && i < c->cluster.n_nodes; i++) {
        struct node *n = c->cluster.nodes[i];

        all = all && (!n->changed || put_node(c, n));
        n->changed = false;
    }
    c->nodes_changed = false;
    return all;
}

static void copy_text(char *to, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    utf8_copy(to, size, text ? text : "");
}

static void load_health(const struct core *c, struct node *n, const json_t *o)
{
    const json_t *result = json_object_get(o, "test");

    health_load(&n->health, json_object_get(o, "health"));
    n->drain = json_is_true(json_object_get(o, "drain"));
    if (n->drain && !health_is_out(&n->health)) /* by a musterd that kept no reasons */
        health_set(&n->health, HEALTH_HELD, "", c->now.wall_us);
    n->drain = health_is_out(&n->health);
    if (n->health.known_us == 0)
        n->health.known_us = c->now.wall_us;
    n->test.result = json_is_object(result) ? json_incref((json_t *)result) : NULL;
}

int records_take_node(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    struct slots slots;
    struct node *n;
    int r = o && *row->name && strlen(row->name) < sizeof(n->name)
                ? slots_read(&c->cluster.classes, json_object_get(o, "slots"), &slots)
                : -EINVAL;

    if (r < 0)
        return merr_set(err, r, "the store's record of the node cannot be read");
    n = cluster_add(&c->cluster, row->name, c->first_version);
    if (!n) {
        free(slots.v);
        return merr_set(err, -ENOMEM, "out of memory for a node");
    }
    slots_take(&c->cluster, n, &slots);
    stragglers_load(n, &c->cfg.slow, json_object_get(o, "slots"));
    copy_text(n->address, sizeof(n->address), o, "address");
    copy_text(n->release, sizeof(n->release), o, "version");
    copy_text(n->rack, sizeof(n->rack), o, "rack");
    copy_text(n->boot_id, sizeof(n->boot_id), o, "boot_id");
    copy_text(n->incarnation, sizeof(n->incarnation), o, "incarnation");
    n->seq = json_integer_value(json_object_get(o, "seq"));
    n->shared_account = json_is_true(json_object_get(o, "shared_account"));
    load_health(c, n, o);
    n->drain_by_us = moment_mono_of(&c->now, json_integer_value(json_object_get(o, "drain_by_us")));
    n->lost_wall_us = json_integer_value(json_object_get(o, "lost_us"));
    n->seen_wall_us = json_integer_value(json_object_get(o, "seen_us"));
    n->leaves_us = json_integer_value(json_object_get(o, "leaves_us"));
    n->leaving = json_is_true(json_object_get(o, "leaving"));
    n->contact = NODE_UNKNOWN;
    n->seen_us = c->now.mono_us;
    return 0;
}

int records_read_nodes(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_NODES, "node", records_take_node, err);
}

void records_put_removed(struct core *c, const struct removed *r)
{
    char member[sizeof(r->node) + sizeof(r->incarnation)];

    (void)snprintf(member, sizeof(member), "%s %s", r->node, r->incarnation);
    store_put_removed(c->store, member, r->wall_us / 1000000, ROSTER_S, ROSTER_MAX);
}

int records_read_removed(struct core *c, struct merr *err)
{
    struct store_rows all = {0};
    int r = store_read_removed(c->store, &all, err);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        char *node = all.v[i].name, *space = strchr(node, ' ');

        if (!space) {
            log_warn("the store's record of a removed node, '%s', cannot be read: it is as if it was not there", node);
        } else {
            *space = '\0';
            (void)roster_add(&c->cluster.roster, node, space + 1, strtoll(all.v[i].text, NULL, 10) * 1000000);
        }
    }
    store_rows_clear(&all);
    return r;
}

/* --- classes, links, projects ------------------------------------------------------------------------ */

void records_put_speeds(struct core *c)
{
    struct classes *k = &c->cluster.classes;

    if (!k->learned)
        return;
    k->learned = false;
    for (size_t i = 0; i < k->n; i++) {
        char text[64];

        if (!(k->speed[i][0] > 0 || k->speed[i][1] > 0))
            continue;
        (void)snprintf(text, sizeof(text), "%.9g %.9g", k->speed[i][0], k->speed[i][1]);
        store_put(c->store, STORE_SPEEDS, k->name[i], text);
    }
}

int records_read_speeds(struct core *c, struct merr *err)
{
    struct classes *k = &c->cluster.classes;
    struct store_rows all;
    int r = store_read_rows(c->store, STORE_SPEEDS, &all, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < all.n; i++) {
        uint8_t at = classes_find(k, all.v[i].name);
        double f32, bf16;

        if (at == CLASSES_MAX) /* no node has it any more */
            store_drop(c->store, STORE_SPEEDS, all.v[i].name);
        else if (sscanf(all.v[i].text, "%lf %lf", &f32, &bf16) == 2 && f32 >= 0 && bf16 >= 0) {
            k->speed[at][0] = f32;
            k->speed[at][1] = bf16;
        }
    }
    store_rows_clear(&all);
    return 0;
}

void records_put_kinds(struct core *c)
{
    struct learned_kind *k;
    char name[24];
    size_t at = 0, n = 0;
    uint64_t gone;

    while ((gone = learned_dropped(c->learned)) != 0) {
        (void)snprintf(name, sizeof(name), "%016llx", (unsigned long long)gone);
        store_drop(c->store, STORE_KINDS, name);
    }
    while (n < KINDS_MOST && (k = learned_next(c->learned, &at)) != NULL)
        if (k->changed) {
            (void)snprintf(name, sizeof(name), "%016llx", (unsigned long long)k->key);
            k->changed = !records_put_row_new(c, STORE_KINDS, name, kinds_record(c, k));
            n++;
        }
}

int records_read_kinds(struct core *c, struct merr *err)
{
    struct store_rows all;
    int r = store_read_rows(c->store, STORE_KINDS, &all, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < all.n; i++) {
        json_auto_t *o = json_loadb(all.v[i].text, all.v[i].len, 0, NULL);

        if (i >= LEARNED_KINDS_MAX || !kinds_take_record(c, strtoull(all.v[i].name, NULL, 16), o))
            store_drop(c->store, STORE_KINDS, all.v[i].name);
    }
    store_rows_clear(&all);
    return 0;
}

void records_put_link(struct core *c, const struct links_news *news, double bytes_per_s, int64_t at_us)
{
    char text[64];

    for (size_t i = 0; i < news->n_forgotten; i++)
        store_drop(c->store, STORE_LINKS, news->forgotten[i]);
    (void)snprintf(text, sizeof(text), "%.9g %lld", bytes_per_s, (long long)at_us);
    store_put(c->store, STORE_LINKS, news->pair, text);
}

int records_read_links(struct core *c, struct merr *err)
{
    struct store_rows all;
    int r = store_read_rows(c->store, STORE_LINKS, &all, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < all.n; i++) {
        char name[JOB_NODE_MAX] = "", *pair = all.v[i].name, *slash = strchr(pair, '/');
        struct node *a, *b;
        long long at_us;
        struct links_news news;
        double rate;

        if (slash && slash - pair < JOB_NODE_MAX)
            memcpy(name, pair, (size_t)(slash - pair));
        a = cluster_node(&c->cluster, name);
        b = slash ? cluster_node(&c->cluster, slash + 1) : NULL;
        if (!a || !b || sscanf(all.v[i].text, "%lf %lld", &rate, &at_us) != 2 || !(rate > 0)) {
            store_drop(c->store, STORE_LINKS, pair);
            continue;
        }
        links_keep(a, b, rate, at_us, &news);
        for (size_t k = 0; k < news.n_forgotten; k++)
            store_drop(c->store, STORE_LINKS, news.forgotten[k]);
    }
    store_rows_clear(&all);
    return 0;
}

bool records_put_project(struct core *c, const struct project *p)
{
    return records_put_row_new(c, STORE_PROJECTS, p->name, project_record(p));
}

int records_take_project(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    struct project p = project_new(row->name);

    if (!json_is_object(o) || strcmp(p.name, row->name) != 0 || !*p.name || project_read(o, &p)) {
        json_decref(p.members);
        return merr_set(err, -EINVAL, "the store's record of the project cannot be read");
    }
    return project_put_take(&c->cluster.projects, &p) < 0 ? merr_set(err, -ENOMEM, "there is no room for a project")
                                                          : 0;
}

int records_read_projects(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_PROJECTS, "project", records_take_project, err);
}

int records_find_submit(struct core *c, const char *key, uint64_t *ret_job, uint64_t *ret_hash, struct merr *err)
{
    return job_store_find_submit(c->store, key, ret_job, ret_hash, err);
}

void records_put_submit(struct core *c, const char *key, uint64_t job, uint64_t hash)
{
    job_store_put_submit(c->store, key, job, hash);
}

int64_t records_read_device_us(struct core *c, const char *project)
{
    return store_read_device_us(c->store, project);
}
