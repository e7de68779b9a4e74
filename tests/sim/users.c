#include "tests/sim/users.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec.h"
#include "server/cluster/job.h"
#include "tests/sim/book.h"
#include "tests/sim/hostile.h"

#define LOOK_US (10 * SECOND) /* between two looks at a job, at most, */
#define LOOKERS 500           /* where so many look: a hundred a second */
#define CALL_MS 30000
#define READS 5 /* of events, in vain */

struct wanted { /* a job as its user sees it */
    struct users *u;
    int i;
    char key[24], name[24];
    char body[1024];
    uint64_t id;      /* 0: not acknowledged */
    char state[16];   /* as last told; "": not yet */
    int reads;        /* of its events, that lacked something */
    bool sent, after; /* it was sent once; it comes after another */
    bool ended, cancel_told, cancel_asked, suspend_asked;
    const char *act; /* under way: "cancel", "suspend", "resume", "priority"; NULL: none */
    bool suspend;    /* its user suspends it once, and resumes it later */
};

struct users {
    struct world *w;
    struct wire *n;
    const struct book *book;
    struct users_wish wish;
    struct life life; /* users do not die */
    struct wanted *v;
    struct users_sum sum;
    int projects_put;
};

static void submit(void *arg);
static void look(void *arg);
static void read_events(void *arg);
static void act(void *arg);

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static void later(struct users *u, int64_t least_us, int64_t most_us, world_fn *fn, void *arg)
{
    world_at(u->w, world_now_us(u->w) + world_between(u->w, least_us, most_us), &u->life, fn, NULL, arg);
}

static void ask(struct users *u, const char *method, const char *target, const char *body, const char *key,
                wire_done *done, void *arg)
{
    struct front_request q = {
        .method = method,
        .target = target,
        .body = body,
        .idempotency_key = key,
        .who = {.role = u->projects_put < USERS_PROJECTS ? ROLE_ADMIN : ROLE_USER, .user = USERS_NAME}};

    u->sum.calls++;
    wire_call(u->n, -1, &u->life, &q, CALL_MS, done, arg);
}

static int64_t look_us(const struct users *u)
{
    return u->wish.jobs > LOOKERS ? LOOK_US * u->wish.jobs / LOOKERS : LOOK_US;
}

/* Whether to ask again: nothing was answered, or the server cannot now. */
static bool again(struct users *u, int status)
{
    bool yes = status == 0 || status == 429 || status >= 500;

    u->sum.retries += yes;
    return yes;
}

/* --- specs -------------------------------------------------------------------------------------------- */

static int exit_code_of(struct world *w)
{
    static const int odd[] = {1, 2, 65, 70, 74, 75, 76, 137}; /* some that mean something to Muster's own programs */

    return world_chance(w, 0.85) ? 0 : odd[world_draw(w, sizeof(odd) / sizeof(odd[0]))];
}

/* A command becomes an array of such. */
static void write_array(struct users *u, struct wanted *j)
{
    size_t len = strlen(j->body) - 1;

    (void)snprintf(j->body + len, sizeof(j->body) - len,
                   ", \"array\": {\"index\": \"%d-%d:2\", \"max_running\": %d, \"on_fail\": \"%s\", "
                   "\"fail_limit\": 2}}",
                   (int)world_draw(u->w, 5), (int)world_between(u->w, 5, 40), 1 + (int)world_draw(u->w, 4),
                   world_chance(u->w, 0.3) ? "stop" : "continue");
    j->suspend = world_chance(u->w, 0.2);
}

/* Some jobs have limits that end many of them, told from the number alone. None waits as long for its devices as clocks
 * are set by while no server is there to notice it. */
static const char *limits_of(const struct wanted *j)
{
    return j->i % 8 == 3   ? ", \"limits\": {\"time_s\": 10, \"warn_s\": 4}"
           : j->i % 8 == 5 ? ", \"limits\": {\"time_s\": 600, \"queue_s\": 604800}"
                           : "";
}

static void write_command(struct users *u, struct wanted *j, int devices, const char *project)
{
    int ms = (int)world_between(u->w, 100, world_chance(u->w, 0.2) ? 120000 : 15000), code = exit_code_of(u->w);
    const char *stubborn = world_chance(u->w, 0.1) ? ", \"stubborn\"" : "";

    (void)snprintf(j->body, sizeof(j->body),
                   "{\"name\": \"u%d\", \"project\": \"%s\", \"priority\": %d, \"devices\": {\"min\": %d, \"max\": %d, "
                   "\"classes\": [\"fast\", \"slow\"]}, "
                   "\"command\": {\"argv\": [\"play\", \"%d\", \"%d\"%s], \"grace_s\": 2}, "
                   "\"retry\": {\"max\": %d, \"user\": %d}%s}",
                   j->i, project, (int)world_draw(u->w, 101), devices, devices, ms, code, stubborn,
                   (int)world_draw(u->w, 4), (int)world_draw(u->w, 2), limits_of(j));
    if (u->wish.arrays && world_chance(u->w, 0.1))
        write_array(u, j);
}

static void write_train(struct users *u, struct wanted *j, int devices, const char *project)
{
    int most = devices * (1 + (int)world_draw(u->w, 2));

    (void)snprintf(j->body, sizeof(j->body),
                   "{\"name\": \"u%d\", \"project\": \"%s\", \"priority\": %d, \"devices\": {\"min\": %d, \"max\": %d, "
                   "\"classes\": [\"fast\", \"slow\"], \"hetero_ok\": %s}, \"train\": {\"model\": {\"family\": "
                   "\"gpt2\", \"layers\": 2, \"hidden\": 64, "
                   "\"heads\": 2, \"context\": 64}, \"data\": {\"path\": \"/data/corpus.txt\"}, "
                   "\"batch\": {\"sequences\": 8}, \"steps\": %d}, \"parallel\": {\"virtual_workers\": 8}, "
                   "\"retry\": {\"max\": 1000}%s}",
                   j->i, project, (int)world_draw(u->w, 101), devices, most > 8 ? 8 : most,
                   world_chance(u->w, 0.3) ? "true" : "false", (int)world_between(u->w, 3, 60), limits_of(j));
    j->suspend = world_chance(u->w, 0.1);
}

static void write_spec(struct users *u, struct wanted *j)
{
    static const char *const projects[USERS_PROJECTS + 1] = {"default", "green", HOSTILE_NOT_IN, "tight"};
    const char *project = projects[world_draw(u->w, USERS_PROJECTS + 1)];
    int quota = users_quota(u);
    int widest = strcmp(project, "tight") == 0 && u->wish.widest > quota ? quota : u->wish.widest;
    int devices = 1 << world_draw(u->w, 4);

    devices = devices > widest ? widest : devices;
    if (world_chance(u->w, 0.7))
        write_command(u, j, devices, project);
    else
        write_train(u, j, devices, project);
}

/* --- what they ask ------------------------------------------------------------------------------------ */

static uint64_t id_of(const json_t *job)
{
    const char *id = json_string_value(json_object_get(job, "id"));

    return id && id[0] == 'j' ? strtoull(id + 1, NULL, 10) : 0;
}

/* What a user was told of a job: it stays true. */
static void told(struct wanted *j, const json_t *job)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    struct users *u = j->u;
    bool ends;

    if (!state)
        return;
    if (j->ended && strcmp(j->state, state) != 0) {
        world_broken(u->w, "j%" PRIu64 " had ended as %s, and is %s now", j->id, j->state, state);
        return;
    }
    if ((strcmp(state, "cancelled") == 0 && !j->cancel_asked && !j->after) ||
        (strcmp(state, "suspended") == 0 && !j->suspend_asked))
        world_broken(u->w, "j%" PRIu64 " is %s, and its user did not ask for that", j->id, state);
    if (strcmp(json_string_value(json_object_get(job, "user")), USERS_NAME) != 0 ||
        strcmp(json_string_value(json_object_get(job, "name")), j->name) != 0)
        world_broken(u->w, "j%" PRIu64 " is not %s's %s any more", j->id, USERS_NAME, j->name);
    ends = strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0;
    if (strcmp(j->state, state) != 0)
        world_note(u->w, "user: j%" PRIu64 " is %s", j->id, state);
    (void)snprintf(j->state, sizeof(j->state), "%s", state);
    if (ends && !j->ended) {
        j->ended = true;
        u->sum.succeeded += state[0] == 's';
        u->sum.failed += state[0] == 'f';
        u->sum.cancelled += state[0] == 'c';
    }
}

/* The cluster has too few devices for the job as long as nodes are lost: its user comes again. */
static bool too_small(int status, const char *body)
{
    return status == 422 && body && strstr(body, "and this cluster has");
}

static void submitted(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct wanted *j = arg;
    struct users *u = j->u;
    json_t *job;
    uint64_t id;

    if (!why)
        return;
    if (again(u, status) || too_small(status, body)) {
        later(u, SECOND / 2, 5 * SECOND, submit, j);
        return;
    }
    if (status != 200 && status != 201) {
        world_broken(u->w, "the submit of %s is answered %d: %.*s; the spec is %s", j->key, status, (int)len, body,
                     j->body);
        return;
    }
    job = json_loadb(body, len, 0, NULL);
    id = id_of(job);
    json_decref(job);
    world_note(u->w, "user: %s is j%" PRIu64, j->key, id);
    for (int i = 0; i < u->wish.jobs; i++)
        if (u->v[i].id == id && i != j->i)
            world_broken(u->w, "j%" PRIu64 " was acknowledged for %s and for %s", id, u->v[i].key, j->key);
    if (j->id && j->id != id)
        world_broken(u->w, "%s was acknowledged as j%" PRIu64 " and as j%" PRIu64, j->key, j->id, id);
    if (!j->id) {
        j->id = id;
        u->sum.acknowledged++;
        later(u, 0, look_us(u), look, j);
        if (world_chance(u->w, 0.15))
            later(u, 0, 60 * SECOND, act, j);
        if (world_chance(u->w, 0.02))
            later(u, 0, 10 * SECOND, submit, j); /* the same once more */
    }
}

/* Some come after the one before them, if that is known by the time they are first sent. */
static void add_after(struct wanted *j)
{
    const struct wanted *other = j->i > 0 ? j - 1 : NULL;
    size_t len = strlen(j->body);

    if ((j->i % 8 != 1 && j->i % 8 != 6) || !other || other->id == 0)
        return;
    j->after = true;
    (void)snprintf(j->body + len - 1, sizeof(j->body) - len + 1,
                   ", \"after\": [{\"job\": \"j%" PRIu64 "\", \"when\": \"%s\"}]}", other->id,
                   j->i % 8 == 1 ? "ok" : "ended");
}

static void submit(void *arg)
{
    struct wanted *j = arg;

    if (!j->sent)
        add_after(j);
    j->sent = true;

    ask(j->u, "POST", "/v1/jobs", j->body, j->key, submitted, j);
}

/* What a rank tells once was taken in twice if two events of an attempt say the same. */
static void check_told_once(struct wanted *j, const json_t *events)
{
    json_t *e, *other;
    size_t i, k;

    json_array_foreach (events, i, e) {
        const char *actor = json_string_value(json_object_get(e, "actor"));

        if (!actor || strncmp(actor, "rank:", 5) != 0)
            continue;
        for (k = 0; k < i; k++) {
            other = json_array_get(events, k);
            if (json_equal(json_object_get(other, "generation"), json_object_get(e, "generation")) &&
                json_equal(json_object_get(other, "cause"), json_object_get(e, "cause")) &&
                json_equal(json_object_get(other, "data"), json_object_get(e, "data")))
                world_broken(j->u->w, "j%" PRIu64 " has an event of its %s twice", j->id, actor);
        }
    }
}

/* An event says that a rank failed: it did, and ended so. What is laid to a node may have another cause. */
static void check_outcome(struct wanted *j, const json_t *event)
{
    const json_t *outcome = json_object_get(json_object_get(event, "data"), "outcome");
    const char *class_ = json_string_value(json_object_get(outcome, "class"));
    const json_t *code = json_object_get(outcome, "exit_code");
    int rank = (int)json_integer_value(json_object_get(outcome, "rank"));
    uint64_t generation = (uint64_t)json_integer_value(json_object_get(event, "generation"));
    const struct book_rank *b = book_find(j->u->book, j->id, generation, rank);

    if (!json_is_integer(code) || !class_ || strcmp(class_, "node") == 0)
        return;
    if (!b || b->alive || (b->words && b->code != json_integer_value(code))) /* 128 + n tells the signal, too */
        world_broken(j->u->w, "an event of j%" PRIu64 "-g%" PRIu64 " says that its rank %d ended with %d, and it %s %d",
                     j->id, generation, rank, (int)json_integer_value(code),
                     !b         ? "never ran"
                     : b->alive ? "runs"
                                : "ended with",
                     b ? b->code : 0);
}

/* A job has succeeded: all n ranks of its newest run did what they were to do. */
static void check_success(struct wanted *j, uint64_t generation, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct book_rank *b = book_find(j->u->book, j->id, generation, (int)i);

        if (!b || b->alive || !b->by_itself || b->code != 0)
            world_broken(j->u->w, "j%" PRIu64 " succeeded, and its rank %zu of generation %" PRIu64 " %s", j->id, i,
                         generation,
                         !b         ? "never ran"
                         : b->alive ? "runs"
                                    : "did not do its work");
    }
}

/* What rank 0 of a training job wrote before it ended comes soon after the word of its end, if not before. */
static void check_finished(struct wanted *j, const json_t *events, uint64_t generation)
{
    const struct book_rank *b = book_find(j->u->book, j->id, generation, 0);
    json_t *e;
    size_t i;

    json_array_foreach (events, i, e) {
        const char *code = json_string_value(json_object_get(json_object_get(e, "cause"), "code"));

        if (code && strcmp(code, "finished") == 0 &&
            (uint64_t)json_integer_value(json_object_get(e, "generation")) == generation)
            return;
    }
    if (b && b->files_lost)
        return;
    if (j->reads++ < READS) {
        later(j->u, 60 * SECOND, 60 * SECOND, read_events, j);
        return;
    }
    world_broken(j->u->w, "j%" PRIu64 " succeeded, and what its rank 0 of generation %" PRIu64 " wrote is lost", j->id,
                 generation);
}

/* The events of a job, replayed, give the state that its user was told. */
static void check_replay(struct wanted *j, const json_t *events)
{
    struct job_spec *spec = NULL;
    struct faults faults = {.n = 0};
    struct job replayed;
    json_t *e;
    size_t i, n = 0; /* ranks of its newest run */

    e = json_array_get(events, 0);
    if (!e || spec_from_json(json_object_get(e, "data"), &spec, &faults) < 0) {
        world_broken(j->u->w, "the first event of j%" PRIu64 " has no spec", j->id);
        faults_clear(&faults);
        return;
    }
    job_init(&replayed, j->id, spec, USERS_NAME, 0);
    json_array_foreach (events, i, e) {
        const char *type = json_string_value(json_object_get(e, "type"));

        if (type && strcmp(type, "state") == 0 && job_apply(&replayed, e) < 0)
            world_broken(j->u->w, "event %zu of j%" PRIu64 " does not follow from those before", i, j->id);
        n = replayed.n_places > 0 ? replayed.n_places : n;
        if (type && strcmp(type, "state") == 0)
            check_outcome(j, e);
    }
    if (replayed.state == JOB_SUCCEEDED)
        check_success(j, replayed.generation, n);
    if (replayed.state == JOB_SUCCEEDED && replayed.kind == JOB_TRAIN)
        check_finished(j, events, replayed.generation);
    if (strcmp(job_state_name(replayed.state), j->state) != 0)
        world_broken(j->u->w, "j%" PRIu64 " is %s, and its events say %s", j->id, j->state,
                     job_state_name(replayed.state));
    job_clear(&replayed);
    spec_free(spec);
}

static void events_read(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct wanted *j = arg;
    json_t *doc;

    if (!why)
        return;
    if (again(j->u, status)) {
        later(j->u, SECOND, 5 * SECOND, read_events, j);
        return;
    }
    if (body && strstr(body, HOSTILE_SAYS))
        world_broken(j->u->w, "an event of j%" PRIu64 " is of somebody who has no part in it: %.400s", j->id,
                     strstr(body, HOSTILE_SAYS) - 100);
    doc = json_loadb(body, len, 0, NULL);
    if (json_is_null(json_object_get(doc, "left_out"))) {
        j->u->sum.replayed++;
        check_told_once(j, json_object_get(doc, "events"));
        check_replay(j, json_object_get(doc, "events"));
    }
    json_decref(doc);
}

static void read_events(void *arg)
{
    struct wanted *j = arg;
    char target[64];

    (void)snprintf(target, sizeof(target), "/v1/jobs/j%" PRIu64 "/events?limit=1000", j->id);
    ask(j->u, "GET", target, NULL, NULL, events_read, j);
}

static void looked(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct wanted *j = arg;
    struct users *u = j->u;
    bool was_over;
    json_t *job;

    if (!why)
        return;
    if (status == 404) {
        world_broken(u->w, "j%" PRIu64 " was acknowledged and is not there any more", j->id);
        return;
    }
    if (!again(u, status)) {
        job = json_loadb(body, len, 0, NULL);
        was_over = j->ended;
        told(j, job);
        json_decref(job);
        if (j->ended && !was_over)
            later(u, 0, LOOK_US, read_events, j);
        if (strcmp(j->state, "suspended") == 0 && !j->act) { /* its user wants it to go on, whatever was answered */
            j->act = "resume";
            later(u, SECOND, 60 * SECOND, act, j);
        }
    }
    if (!j->ended || world_chance(u->w, 0.5))
        later(u, look_us(u) / 4, look_us(u), look, j);
}

static void look(void *arg)
{
    struct wanted *j = arg;
    char target[64];

    (void)snprintf(target, sizeof(target), "/v1/jobs/j%" PRIu64, j->id);
    ask(j->u, "GET", target, NULL, NULL, looked, j);
}

static void acted(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct wanted *j = arg;
    struct users *u = j->u;
    bool was_suspend = j->act && strcmp(j->act, "suspend") == 0;

    (void)body;
    (void)len;
    if (!why)
        return;
    if (again(u, status)) {
        later(u, SECOND / 2, 5 * SECOND, act, j);
        return;
    }
    world_note(u->w, "user: %s j%" PRIu64 ": %d", j->act, j->id, status);
    if (strcmp(j->act, "cancel") == 0 && status < 300)
        j->cancel_told = true;
    j->act = NULL;
    if (was_suspend) { /* and goes on later, in any case */
        j->act = "resume";
        later(u, SECOND, 60 * SECOND, act, j);
    }
}

/* Do something to a job: once it is settled what, until it is answered. */
static void act(void *arg)
{
    struct wanted *j = arg;
    struct users *u = j->u;
    char target[64], body[48];

    if (!j->act)
        j->act = j->suspend ? "suspend" : world_chance(u->w, 0.6) ? "cancel" : "priority";
    j->cancel_asked = j->cancel_asked || strcmp(j->act, "cancel") == 0;
    j->suspend_asked = j->suspend_asked || strcmp(j->act, "suspend") == 0;
    if (strcmp(j->act, "priority") == 0) {
        (void)snprintf(target, sizeof(target), "/v1/jobs/j%" PRIu64, j->id);
        (void)snprintf(body, sizeof(body), "{\"priority\": %d}", (int)world_draw(u->w, 101));
        ask(u, "PATCH", target, body, NULL, acted, j);
    } else {
        (void)snprintf(target, sizeof(target), "/v1/jobs/j%" PRIu64 "/%s", j->id, j->act);
        ask(u, "POST", target, NULL, NULL, acted, j);
    }
}

static void put_project(void *arg);

static void project_put(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct users *u = arg;

    if (!why)
        return;
    if (again(u, status)) {
        later(u, SECOND, 2 * SECOND, put_project, u);
        return;
    }
    if (status >= 300)
        world_broken(u->w, "a project is answered %d: %.*s", status, (int)len, body);
    if (++u->projects_put < USERS_PROJECTS)
        put_project(u);
    else
        for (int i = 0; i < u->wish.jobs; i++)
            later(u, 0, u->wish.over_us, submit, &u->v[i]);
}

static void put_project(void *arg)
{
    struct users *u = arg;
    char body[64];

    if (u->projects_put == 0) {
        ask(u, "PUT", "/v1/projects/green", "{\"weight\": 2}", NULL, project_put, u);
        return;
    }
    if (u->projects_put == 1) {
        ask(u, "PUT", "/v1/projects/" HOSTILE_NOT_IN, "{\"members\": {\"" USERS_NAME "\": \"member\"}}", NULL,
            project_put, u);
        return;
    }
    (void)snprintf(body, sizeof(body), "{\"quota\": %d, \"borrow\": 0}", users_quota(u));
    ask(u, "PUT", "/v1/projects/tight", body, NULL, project_put, u);
}

/* --- all of them -------------------------------------------------------------------------------------- */

struct users *users_new(struct world *w, struct wire *n, const struct book *book, const struct users_wish *wish)
{
    struct users *u = must(calloc(1, sizeof(*u)));

    *u = (struct users){.w = w, .n = n, .book = book, .wish = *wish};
    u->v = must(calloc((size_t)wish->jobs, sizeof(*u->v)));
    life_begin(w, &u->life);
    for (int i = 0; i < wish->jobs; i++) {
        u->v[i] = (struct wanted){.u = u, .i = i};
        (void)snprintf(u->v[i].key, sizeof(u->v[i].key), "key-%d", i);
        (void)snprintf(u->v[i].name, sizeof(u->v[i].name), "u%d", i);
        write_spec(u, &u->v[i]);
    }
    later(u, SECOND, SECOND, put_project, u);
    return u;
}

void users_free(struct users *u)
{
    if (!u)
        return;
    free(u->v);
    free(u);
}

bool users_content(const struct users *u)
{
    return u->sum.succeeded + u->sum.failed + u->sum.cancelled == u->wish.jobs;
}

void users_complain(const struct users *u)
{
    for (int i = 0; i < u->wish.jobs; i++) {
        const struct wanted *j = &u->v[i];

        if (!j->ended) {
            world_broken(u->w,
                         "%s (j%" PRIu64 ") has not ended: it was '%s' when its user looked last%s; its spec is %s",
                         j->key, j->id, j->state, j->cancel_told ? ", and was to be cancelled" : "", j->body);
            return;
        }
    }
}

struct users_sum users_sum(const struct users *u)
{
    return u->sum;
}

uint64_t users_job(const struct users *u, int i)
{
    return u->v[i].id;
}

int users_limit(const struct users_wish *wish)
{
    return wish->jobs > 50 ? wish->jobs : 50;
}

bool users_ready(const struct users *u)
{
    return u->projects_put == USERS_PROJECTS;
}

int users_quota(const struct users *u)
{
    return u->wish.jobs > 60 ? u->wish.jobs / 10 : 6;
}

int users_count(const struct users *u)
{
    return u->wish.jobs;
}
