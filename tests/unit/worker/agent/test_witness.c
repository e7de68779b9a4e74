/* What an agent tells of ranks when it is asked, and when one has failed: once for each question, in bounded bytes,
 * tried again a few times, and then dropped. */
#include "tests/unit/worker/agent/fake_calls.h"

#include "api/protocol/evidence.h"
#include "worker/agent/machine_evidence.h"
#include "worker/agent/witness.h"

#define SECOND INT64_C(1000000)

/* --- in place of machine.c and ranks.c -------------------------------------------------------------------------- */

static struct {
    int64_t now_us, budget_us;
    size_t begun, ended, n_ranks;
    bool python, ready;
    char *log; /* what each rank printed; NULL: nothing was seen of any */
    int fault; /* of looking at a run */
} fake;

int64_t machine_mono_us(const struct machine *h)
{
    (void)h;
    return fake.now_us;
}

struct machine_evidence *machine_evidence_begin(struct machine *h, struct machine_rank *const *ranks, size_t n,
                                                bool python, int64_t budget_us)
{
    (void)h;
    (void)ranks;
    fake.begun++;
    fake.n_ranks = n;
    fake.python = python;
    fake.budget_us = budget_us;
    return (struct machine_evidence *)&fake;
}

bool machine_evidence_ready(const struct machine_evidence *e)
{
    return !e || fake.ready;
}

json_t *machine_evidence_end(struct machine_evidence *e, char **ret_kernel)
{
    json_t *all = e ? json_array() : NULL;

    if (!e)
        return NULL;
    fake.ended++;
    for (size_t i = 0; fake.log && i < fake.n_ranks; i++)
        (void)json_array_append_new(all, json_pack("{s:s}", "log", fake.log));
    if (ret_kernel)
        *ret_kernel = NULL;
    return all;
}

int ranks_run_look(const struct run *run, struct report_run *ret)
{
    if (fake.fault)
        return fake.fault;
    *ret = (struct report_run){.generation = (int64_t)run->generation, .n_ranks = (size_t)run->n};
    (void)snprintf(ret->job, sizeof(ret->job), "%s", run->job);
    ret->ranks = calloc((size_t)run->n, sizeof(*ret->ranks));
    for (int i = 0; ret->ranks && i < run->n; i++)
        ret->ranks[i] = (struct report_rank){.rank = i, .slot = i, .state = REPORT_RUNNING};
    return ret->ranks ? 0 : -ENOMEM;
}

/* --- the tests --------------------------------------------------------------------------------------------------- */

static struct witness *witness;
static struct rank ranks[EVIDENCE_RANKS_MAX];

static int begin(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.now_us = 100 * SECOND;
    witness = witness_new((struct calls *)&fake_calls, (struct machine *)&fake, "n1", "boot-1");
    return witness ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    witness_free(witness);
    assert_int_equal(fake.ended, fake.begun);
    fake_calls_clear();
    free(fake.log);
    return 0;
}

static struct run run_of(const char *job, int n)
{
    struct run run = {.generation = 2, .n = n, .ranks = ranks};

    (void)snprintf(run.job, sizeof(run.job), "%s", job);
    return run;
}

/* A tick; whether a run is busy no more. */
static bool tick(int64_t *ret_next_us)
{
    int64_t next_us;
    bool any = witness_tick(witness, fake.now_us, &next_us);

    if (ret_next_us)
        *ret_next_us = next_us;
    return any;
}

static void what_the_server_asks_is_gathered_and_told_once(void **state)
{
    struct run run = run_of("j7", 2);
    struct fake_call *call;
    int64_t next_us;
    json_t *doc;

    (void)state;
    fake.log = strdup("last words");
    witness_ask(witness, &run, 0); /* nobody asks */
    assert_int_equal(fake.begun, 0);
    witness_ask(witness, &run, 5);
    assert_int_equal(fake.budget_us, WITNESS_US);
    assert_true(witness_busy(witness, "j7", 2));
    assert_false(witness_busy(witness, "j7", 3));
    assert_false(witness_busy(witness, "j8", 2));
    assert_false(tick(&next_us));
    assert_int_equal(fake_calls.n, 0);
    assert_true(next_us == INT64_MAX); /* the machine's descriptor tells when it is gathered */
    fake.ready = true;
    fake.now_us += SECOND;
    assert_true(tick(NULL));
    assert_false(witness_busy(witness, "j7", 2));
    call = fake_call_of("/v1/agents/n1/evidence");
    assert_non_null(call);
    assert_string_equal(call->method, "POST");
    doc = json_loads(call->body, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(doc, "incarnation")), "boot-1");
    assert_string_equal(json_string_value(json_object_get(doc, "job")), "j7");
    assert_int_equal(json_integer_value(json_object_get(doc, "number")), 5);
    assert_int_equal(json_integer_value(json_object_get(doc, "took_ms")), 1000);
    assert_int_equal(json_array_size(json_object_get(doc, "ranks")), 2);
    assert_non_null(strstr(call->body, "last words"));
    json_decref(doc);
    witness_ask(witness, &run, 5); /* the same question again */
    fake_call_end(call, 200, "{}");
    assert_false(tick(&next_us));
    assert_true(next_us == INT64_MAX);
    assert_int_equal(fake_calls.n, 1);
    assert_int_equal(fake.begun, 1);
    witness_ask(witness, &run, 6);
    assert_int_equal(fake.begun, 2);
}

static void what_is_not_taken_is_sent_a_few_times_and_then_dropped(void **state)
{
    static const struct {
        int status, calls;
    } row[] = {{200, 1}, {404, 1}, {409, 1}, {500, 3}, {503, 3}, {-110, 3}};

    (void)state;
    fake.ready = true;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct run run = run_of("j7", 1);
        struct fake_call *call;
        int64_t next_us = 0;
        int calls = 0;

        witness_ask(witness, &run, 1);
        while (next_us != INT64_MAX && calls < 9) {
            (void)tick(NULL);
            call = fake_call_of("/evidence");
            assert_non_null(call);
            calls++;
            fake_call_end(call, row[i].status, "");
            (void)tick(&next_us);
            assert_null(fake_call_of("/evidence")); /* not at once */
            fake.now_us += SECOND;
        }
        assert_int_equal(calls, row[i].calls);
    }
    assert_int_equal(fake.ended, COUNT(row));
}

static void a_call_that_cannot_be_made_counts_as_one(void **state)
{
    struct run run = run_of("j7", 1);
    int64_t next_us;

    (void)state;
    fake.ready = true;
    fake_calls.fault = -ENOMEM;
    witness_ask(witness, &run, 1);
    for (int i = 0; i < 3; i++, fake.now_us += SECOND)
        (void)tick(&next_us);
    assert_true(next_us == INT64_MAX);
    fake_calls.fault = 0;
    (void)tick(NULL);
    assert_int_equal(fake_calls.n, 0);
}

static void so_many_runs_are_looked_at_and_no_more(void **state)
{
    struct run run[WITNESS_RUNS_MAX + 1];

    (void)state;
    for (int i = 0; i <= WITNESS_RUNS_MAX; i++) {
        char job[16];

        (void)snprintf(job, sizeof(job), "j%d", i);
        run[i] = run_of(job, 1);
        witness_ask(witness, &run[i], 1);
        assert_int_equal(witness_busy(witness, job, 2), i < WITNESS_RUNS_MAX); /* what is not begun holds nobody up */
    }
    fake.ready = true;
    assert_true(tick(NULL));
    for (struct fake_call *c; (c = fake_call_of("/evidence"));)
        fake_call_end(c, 200, "{}");
    (void)tick(NULL);
    witness_ask(witness, &run[WITNESS_RUNS_MAX], 2);
    assert_true(witness_busy(witness, run[WITNESS_RUNS_MAX].job, 2));
}

static void a_failure_is_gathered_before_the_others_are_ended_and_not_asked_for_again(void **state)
{
    struct run run = run_of("j7", 3);
    struct fake_call *call;

    (void)state;
    witness_failed(witness, &run);
    assert_true(run.told_failure);
    assert_int_equal(fake.budget_us, WITNESS_FAILED_US);
    assert_int_equal(fake.ended, 1);
    assert_false(witness_busy(witness, "j7", 2));
    witness_ask(witness, &run, 4);
    assert_int_equal(fake.begun, 1);
    (void)tick(NULL);
    call = fake_call_of("/evidence");
    assert_non_null(call);
    assert_non_null(strstr(call->body, "it was not looked at")); /* of no rank anything was seen in that time */
    fake_call_end(call, 200, "{}");
}

static void a_run_that_cannot_be_looked_at_is_left(void **state)
{
    struct run run = run_of("j7", 1);

    (void)state;
    fake.fault = -ENOMEM;
    witness_failed(witness, &run);
    assert_false(run.told_failure);
    witness_ask(witness, &run, 1);
    assert_false(witness_busy(witness, "j7", 2));
    assert_false(tick(NULL));
    assert_int_equal(fake.begun, 0);
    assert_int_equal(fake_calls.n, 0);
}

static void what_is_more_than_the_server_takes_is_left_out_from_the_last_rank_on(void **state)
{
    struct run run = run_of("j7", EVIDENCE_RANKS_MAX);
    struct fake_call *call;
    json_t *doc, *last;
    size_t told;

    (void)state;
    fake.ready = true;
    fake.log = malloc((128 << 10) + 1);
    assert_non_null(fake.log);
    memset(fake.log, 'x', 128 << 10);
    fake.log[128 << 10] = '\0';
    witness_ask(witness, &run, 1);
    (void)tick(NULL);
    call = fake_call_of("/evidence");
    assert_non_null(call);
    assert_true(strlen(call->body) <= 6 << 20);
    doc = json_loads(call->body, 0, NULL);
    told = json_array_size(json_object_get(doc, "ranks"));
    assert_in_range(told, 16, 48);
    last = json_object_get(json_array_get(json_object_get(doc, "ranks"), told - 1), "told");
    assert_int_equal(json_integer_value(json_object_get(last, "rank")), told - 1);
    json_decref(doc);
    fake_call_end(call, 200, "{}");
}

static void a_programs_stacks_are_read_when_somebody_asks_for_a_commands(void **state)
{
    struct job_spec command = {.kind = JOB_COMMAND}, train = {.kind = JOB_TRAIN};
    struct run run = run_of("j7", 1), other = run_of("j8", 1), failed = run_of("j9", 1);

    (void)state;
    run.spec = failed.spec = &command;
    other.spec = &train;
    witness_ask(witness, &run, 1);
    assert_true(fake.python);
    witness_ask(witness, &other, 1);
    assert_false(fake.python);
    witness_failed(witness, &failed); /* there is no time for it */
    assert_false(fake.python);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_server_asks_is_gathered_and_told_once),
        TEST(what_is_not_taken_is_sent_a_few_times_and_then_dropped),
        TEST(a_call_that_cannot_be_made_counts_as_one),
        TEST(so_many_runs_are_looked_at_and_no_more),
        TEST(a_failure_is_gathered_before_the_others_are_ended_and_not_asked_for_again),
        TEST(a_run_that_cannot_be_looked_at_is_left),
        TEST(what_is_more_than_the_server_takes_is_left_out_from_the_last_rank_on),
        TEST(a_programs_stacks_are_read_when_somebody_asks_for_a_commands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
