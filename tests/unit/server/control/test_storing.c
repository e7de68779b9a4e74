/* "One user against all": liveness and exits first, only the acknowledgement of logs waits for a disk. */
#include "tests/unit/server/control/scene.h"

#include <errno.h>

#include "server/control/events.h"
#include "server/control/storing.h"

#define SPEC "{\"command\": {\"argv\": [\"true\"]}, \"devices\": {\"min\": 1, \"max\": 1}}"

struct disk { /* what an append meets */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stalled, tried;
    int fault;
};

static int meet(void *arg, size_t len, size_t *kept)
{
    struct disk *d = arg;
    int fault;

    (void)len;
    (void)kept;
    (void)pthread_mutex_lock(&d->lock);
    d->tried = true;
    (void)pthread_cond_broadcast(&d->changed);
    while (d->stalled)
        (void)pthread_cond_wait(&d->changed, &d->lock);
    fault = d->fault;
    (void)pthread_mutex_unlock(&d->lock);
    return fault;
}

static void set(struct disk *d, bool stalled, int fault)
{
    (void)pthread_mutex_lock(&d->lock);
    d->stalled = stalled;
    d->fault = fault;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

static struct disk disk; /* the files' thread may be in it until the scene is left */

static int leave(void **state)
{
    set(&disk, false, 0);
    return scene_stop(state);
}

/* A job that runs on n1, and a files' thread like that of musterd. */
static uint64_t begin(struct scene *s, struct disk *d)
{
    uint64_t job;

    *d = (struct disk){.stalled = false};
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->changed, NULL);
    spool_memory_set_fault(s->spool, meet, d);
    assert_int_equal(scene_register(s, "n1", "cpu", 1), 200);
    job = scene_submit(s, SPEC);
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    files_stop(s->core->files);
    files_free(s->core->files);
    s->core->files = NULL;
    assert_int_equal(files_start(&s->cfg.spool, true, s->core, &s->core->files, NULL), 0);
    return job;
}

static void take(void *core, struct call *call)
{
    reports_take(core, call);
}

/* A report with a line of log from an offset on. It may be answered only in a later turn: the test's to unref. */
static struct http_req *report(struct scene *s, json_t *runs, int64_t offset)
{
    struct http_req *r = scene_request("n1", NULL, NULL);
    struct call *call = call_new(r, take);

    assert_non_null(call);
    call->body = json_pack("{s:s, s:o, s:[{s:s, s:i, s:i, s:I, s:s}]}", "incarnation", "n1", "runs", runs, "logs",
                           "job", "j1", "generation", 1, "rank", 0, "offset", (json_int_t)offset, "text", "hello\n");
    assert_true(turn_take(s->core, call));
    return r;
}

/* The next turn with what the files' thread hands on. */
static void hear_of_the_disk(struct scene *s)
{
    struct call *list = queue_take(&s->core->turn.queue, SIZE_MAX, clock_mono_us() + 60 * SECOND);

    assert_non_null(list);
    assert_true(turn_take(s->core, list));
}

/* How many pieces of logs an answer acknowledges; -1: there is none. */
static int acks_new(struct http_req *r)
{
    json_t *doc = r->out ? json_loads(r->out, 0, NULL) : NULL;
    int n = doc && r->status == 200 ? (int)json_array_size(json_object_get(json_object_get(doc, "acks"), "logs")) : -1;

    json_decref(doc);
    http_req_unref(r);
    return n;
}

static void a_report_is_answered_with_its_logs_where_the_disk_is_quick(void **state)
{
    struct scene *s = *state;
    struct http_req *r;

    (void)begin(s, &disk);
    r = report(s, json_array(), 0);
    assert_null(r->out);
    hear_of_the_disk(s);
    assert_int_equal(acks_new(r), 1);
}

static void on_a_disk_that_stalls_a_node_lives_its_job_ends_and_only_the_logs_wait(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    uint64_t job = begin(s, &disk);

    scene_wait(s, 20);
    set(&disk, true, 0);
    r = report(s, json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "exited", 0)), 0);
    assert_null(r->out); /* the disk may be quick: the end shall come after what was printed */
    assert_true(s->clock.mono_us - cluster_node(&s->core->cluster, "n1")->seen_us < SECOND);
    scene_wait(s, 1);
    assert_int_equal(acks_new(r), 0); /* it is not: 200, and nothing is acknowledged */
    assert_null(table_find(&s->core->jobs, job));
    assert_int_equal(s->core->jobs.ended[0], 1); /* it has succeeded */
    for (int i = 0; i < 200; i++) {              /* as long as the disk stalls */
        r = report(s, json_array(), 0);
        assert_true(acks_new(r) >= 0); /* 200, at once */
        scene_wait(s, 1);
        assert_int_equal(cluster_node(&s->core->cluster, "n1")->contact, NODE_READY);
    }
    set(&disk, false, 0);
    hear_of_the_disk(s);
    assert_int_equal(cluster_node(&s->core->cluster, "n1")->storing, 0); /* the next ones may be stored */
}

static void on_a_disk_that_is_full_reports_are_answered_and_logs_come_again(void **state)
{
    static const int faults[] = {-ENOSPC, -EDQUOT, -EIO, -EROFS};
    struct scene *s = *state;
    struct http_req *r;
    uint64_t job = begin(s, &disk);

    for (size_t i = 0; i < COUNT(faults); i++) {
        set(&disk, false, faults[i]);
        r = report(s, json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "running", 0)), 0);
        hear_of_the_disk(s);
        assert_int_equal(acks_new(r), 0);
        assert_int_equal(files_trouble(s->core->files), -faults[i]);
        assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    }
    set(&disk, false, 0);
    r = report(s, json_array(), 0);
    hear_of_the_disk(s);
    assert_int_equal(acks_new(r), 1);
    assert_int_equal(files_trouble(s->core->files), 0);
}

static void a_node_that_floods_the_disk_is_held_to_its_share(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    int taken = 0;

    (void)begin(s, &disk);
    cluster_node(&s->core->cluster, "n1")->bytes =
        (struct bucket){.spent = STORING_BYTES_BURST, .at_us = s->clock.mono_us};
    for (int i = 0; i < 100; i++) { /* all that it may send at once is sent */
        struct call *call;

        r = scene_request("n1", NULL, NULL);
        buf_init(&r->body, 1 << 20);
        assert_int_equal(buf_addstr(&r->body, "0123456789"), 0);
        call = call_new(r, take);
        call->body = json_pack("{s:s, s:[], s:[{s:s, s:i, s:i, s:i, s:s}]}", "incarnation", "n1", "runs", "logs", "job",
                               "j1", "generation", 1, "rank", 0, "offset", 0, "text", "hello\n");
        assert_true(turn_take(s->core, call));
        if (r->status == 0) {
            hear_of_the_disk(s);
            taken++;
        }
        (void)acks_new(r);
    }
    assert_int_equal(taken, 0); /* answered all the same, and not acknowledged */
    scene_wait(s, 1);
    r = report(s, json_array(), 0);
    hear_of_the_disk(s);
    assert_int_equal(acks_new(r), 1);
}

static void reports_that_wait_for_a_disk_are_refused_when_the_server_stops(void **state)
{
    struct scene *s = *state;
    struct http_req *r;

    (void)begin(s, &disk);
    set(&disk, true, 0);
    r = report(s, json_array(), 0);
    storing_stop(s->core);
    assert_int_equal(r->status, 503);
    http_req_unref(r);
    set(&disk, false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_report_is_answered_with_its_logs_where_the_disk_is_quick, scene_start, leave),
        cmocka_unit_test_setup_teardown(on_a_disk_that_stalls_a_node_lives_its_job_ends_and_only_the_logs_wait,
                                        scene_start, leave),
        cmocka_unit_test_setup_teardown(on_a_disk_that_is_full_reports_are_answered_and_logs_come_again, scene_start,
                                        leave),
        cmocka_unit_test_setup_teardown(a_node_that_floods_the_disk_is_held_to_its_share, scene_start, leave),
        cmocka_unit_test_setup_teardown(reports_that_wait_for_a_disk_are_refused_when_the_server_stops, scene_start,
                                        leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
