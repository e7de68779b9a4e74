#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>

#include "server/control/files.h"
#include "server/http/call.h"
#include "server/store/metrics_kept.h"
#include "tests/memory/spool_memory.h"

#define CALLS 100

struct scene {
    struct spool spool;
    struct spool_memory *memory;
    struct files *files;
    pthread_t self;
    int n;          /* calls that have run */
    bool in_order;  /* all of them */
    bool elsewhere; /* on another thread */
};

static int start(void **state, bool thread)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->in_order = true;
    s->self = pthread_self();
    s->memory = spool_memory_new(&s->spool);
    if (!s->memory || spool_make_job(&s->spool, 1, NULL) < 0)
        return -1;
    return files_start(&s->spool, thread, s, &s->files, NULL);
}

static int with_thread(void **state)
{
    return start(state, true);
}

static int without_thread(void **state)
{
    return start(state, false);
}

static int stop(void **state)
{
    struct scene *s = *state;

    files_free(s->files);
    spool_memory_free(s->memory);
    free(s);
    return 0;
}

static void count(void *owner, struct call *call)
{
    struct scene *s = owner;

    s->in_order = s->in_order && call->hash == (uint64_t)s->n;
    s->elsewhere = !pthread_equal(pthread_self(), s->self);
    s->n++;
    call_free(call);
}

static void post(struct scene *s, int i)
{
    struct call *call = call_new(NULL, count);

    assert_non_null(call);
    call->hash = (uint64_t)i;
    files_post(s->files, call);
}

static void calls_run_in_order_on_a_thread_that_ends_with_the_last(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < CALLS; i++)
        post(s, i);
    files_stop(s->files);
    assert_int_equal(s->n, CALLS);
    assert_true(s->in_order && s->elsewhere);
    post(s, CALLS); /* too late */
    assert_int_equal(s->n, CALLS);
}

static void without_a_thread_a_call_has_run_when_it_is_posted(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < CALLS; i++) {
        post(s, i);
        assert_int_equal(s->n, i + 1);
    }
    assert_true(s->in_order && !s->elsewhere);
    files_stop(s->files);
    post(s, CALLS);
    assert_int_equal(s->n, CALLS);
}

static int disk_full(void *arg, size_t len, size_t *kept)
{
    (void)len;
    (void)kept;
    return *(int *)arg;
}

static void a_report_is_acknowledged_as_far_as_it_is_kept(void **state)
{
    static const struct {
        const char *body;
        int disk, status;
        size_t acks, fresh; /* of logs */
    } edge[] = {
        {"{}", 0, 0, 0, 0},
        {"{'logs': [{'job': 'j1', 'generation': 1, 'rank': 0, 'offset': 0, 'text': 'a'}]}", -ENOSPC, 0, 0, 0},
        {"{'logs': [{'job': 'j1', 'generation': 1, 'rank': 0, 'offset': 0, 'text': 'a'}]}", 0, 0, 1, 1},
        {"{'logs': [{'job': 'j1', 'generation': 1, 'rank': 0, 'offset': 0, 'text': 'a'}]}", 0, 0, 1, 0},
        {"{'logs': [{'job': 'j1'}, {'job': 'j1', 'generation': 1, 'rank': 1, 'offset': 0, 'text': 'b'}]}", 0, 422, 1,
         1},
        {"{'metrics': [{'job': 'j1', 'generation': 1, 'offset': 0, 'text': '{}'}, 7]}", 0, 422, 0, 0},
    };
    struct scene *s = *state;

    for (size_t i = 0; i < COUNT(edge); i++) {
        struct call *call = call_new(NULL, NULL);
        int disk = edge[i].disk;
        char body[200];

        (void)snprintf(body, sizeof(body), "%s", edge[i].body);
        for (char *p = body; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        call->body = json_loads(body, 0, NULL);
        assert_non_null(call->body);
        spool_memory_set_fault(s->memory, disk_full, &disk);
        files_take_report(s->files, call);
        assert_int_equal(call->status, edge[i].status);
        assert_int_equal(json_array_size(json_object_get(call->acks, "logs")), edge[i].acks);
        assert_int_equal(json_array_size(json_object_get(call->fresh, "logs")), edge[i].fresh);
        call_free(call);
    }
}

/* A part of metrics is whole: its lines are in the index before anybody asks. */
static void metrics_are_looked_through_as_they_come(void **state)
{
    enum { LINE = 70, LINES = METRICS_KEPT_EACH / LINE + 1000 };
    struct scene *s = *state;
    char *text = malloc((size_t)LINES * LINE + 1), index[] = "metrics.g1.jsonl.index", first;
    int64_t length = 0;

    for (int i = 0; i < LINES; i++)
        (void)snprintf(text + (size_t)i * LINE, LINE + 1, "{\"step\": %8d, \"loss\": %41.6f}\n", i, 1.0);
    for (int at = 0; at < LINES; at += LINES / 9) {
        int n = LINES - at < LINES / 9 ? LINES - at : LINES / 9;
        struct call *call = call_new(NULL, NULL);

        call->body = json_pack("{s:[{s:s, s:i, s:I, s:s%}]}", "metrics", "job", "j1", "generation", 1, "offset",
                               (json_int_t)at * LINE, "text", text + (size_t)at * LINE, n * LINE);
        assert_non_null(call->body);
        files_take_report(s->files, call);
        assert_int_equal(json_array_size(json_object_get(call->fresh, "metrics")), 1);
        call_free(call);
    }
    assert_int_equal(s->spool.ops->read(s->spool.self, 1, index, 0, &first, 1, &length), 1);
    assert_true(length > 100000);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_run_in_order_on_a_thread_that_ends_with_the_last, with_thread, stop),
        cmocka_unit_test_setup_teardown(without_a_thread_a_call_has_run_when_it_is_posted, without_thread, stop),
        cmocka_unit_test_setup_teardown(a_report_is_acknowledged_as_far_as_it_is_kept, without_thread, stop),
        cmocka_unit_test_setup_teardown(metrics_are_looked_through_as_they_come, without_thread, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
