/* Incidents beside what jobs print: which are kept, how large they are, and what a torn one gives. */
#include "server/store/spool_incidents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/incident.h"
#include "tests/memory/spool_memory.h"
#include "tests/unit/test.h"

static json_t *verdict(const char *text)
{
    return json_pack("{s:i, s:s, s:i, s:s, s:i, s:{s:s, s:s}, s:[]}", "version", 1, "job", "j7", "generation", 1,
                     "kind", "hang", "at_ms", 1000, "verdict", "class", "stopped", "text", text, "ranks");
}

static void put(const struct spool *s, int generation, const char *text)
{
    json_auto_t *doc = verdict(text);

    assert_int_equal(spool_incidents_put(s, 7, generation, 1, doc), 0);
}

static int add(const struct spool *s, int generation, size_t log_bytes, size_t stack_bytes)
{
    char *log = calloc(1, log_bytes + 1), *stack = calloc(1, stack_bytes + 1);
    json_t *part;
    int r;

    memset(log, 'l', log_bytes);
    memset(stack, 's', stack_bytes);
    part = json_pack("{s:s, s:[{s:{s:i}, s:s, s:[{s:s}]}]}", "node", "n1", "ranks", "told", "rank", 0, "log", log,
                     "processes", "python", stack);
    r = spool_incidents_add(s, 7, generation, 1, part);
    json_decref(part);
    free(log);
    free(stack);
    return r;
}

static struct spool_memory *open_it(struct spool *s)
{
    struct spool_memory *m = spool_memory_new(s);

    assert_non_null(m);
    assert_int_equal(s->ops->make(s->self, 7, NULL), 0);
    return m;
}

static size_t listed(const struct spool *s, const char *first)
{
    json_auto_t *answer = spool_incidents_list(s, 7);
    const json_t *list = json_object_get(answer, "incidents");

    if (first)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "id")), first);
    return json_array_size(list);
}

static void the_newest_eight_of_a_job_are_kept(void **state)
{
    struct spool s;
    struct spool_memory *m = open_it(&s);

    (void)state;
    for (int g = 1; g <= 20; g++) {
        assert_int_equal(add(&s, g, 10, 10), 0);
        put(&s, g, "stood still");
    }
    assert_int_equal(listed(&s, "20-1"), INCIDENTS_MAX);
    assert_null(spool_incidents_read(&s, 7, 12, 1));
    for (int g = 13; g <= 20; g++) {
        json_auto_t *doc = spool_incidents_read(&s, 7, g, 1);

        assert_int_equal(json_array_size(json_object_get(doc, "parts")), 1);
    }
    spool_memory_free(m);
}

static void a_verdict_that_comes_again_takes_the_place_of_the_first(void **state)
{
    struct spool s;
    struct spool_memory *m = open_it(&s);
    json_auto_t *doc = NULL;

    (void)state;
    put(&s, 1, "before the server was started anew");
    put(&s, 1, "after");
    doc = spool_incidents_read(&s, 7, 1, 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(doc, "verdict"), "text")), "after");
    assert_int_equal(listed(&s, "1-1"), 1);
    spool_memory_free(m);
}

static void what_a_node_tells_again_is_passed_over(void **state)
{
    struct spool s;
    struct spool_memory *m = open_it(&s);
    json_auto_t *doc = NULL;

    (void)state;
    put(&s, 1, "x");
    assert_int_equal(add(&s, 1, 1, 1), 0);
    assert_int_equal(add(&s, 1, 2, 2), 0);
    doc = spool_incidents_read(&s, 7, 1, 1);
    assert_int_equal(json_array_size(json_object_get(doc, "parts")), 1);
    spool_memory_free(m);
}

static void a_rank_of_which_too_much_is_told_keeps_what_it_told_and_its_log(void **state)
{
    struct spool s;
    struct spool_memory *m = open_it(&s);
    json_auto_t *doc = NULL;
    const json_t *rank;

    (void)state;
    put(&s, 1, "x");
    assert_int_equal(add(&s, 1, 4096, INCIDENT_RANK_BYTES), 0);
    doc = spool_incidents_read(&s, 7, 1, 1);
    rank = json_array_get(json_object_get(json_array_get(json_object_get(doc, "parts"), 0), "ranks"), 0);
    assert_non_null(json_object_get(rank, "told"));
    assert_int_equal(json_string_length(json_object_get(rank, "log")), 4096);
    assert_null(json_object_get(rank, "processes"));
    assert_string_equal(json_string_value(json_object_get(rank, "left_out")), "more than 64 KiB were told");
    spool_memory_free(m);
}

static void an_incident_grows_to_its_limit_and_no_further(void **state)
{
    struct spool s;
    struct spool_memory *m = open_it(&s);
    int n = 0, r;

    (void)state;
    put(&s, 1, "x");
    while ((r = add(&s, 1, 30000, 30000)) == 0)
        n++;
    assert_int_equal(r, -EFBIG);
    assert_in_range(n, INCIDENT_BYTES / 2 / 61000, INCIDENT_BYTES / 2 / 60000);
    spool_memory_free(m);
}

static int cut(void *arg, size_t len, size_t *ret_kept)
{
    (void)arg;
    *ret_kept = len / 2;
    return -ENOSPC;
}

static void what_a_full_disk_cut_off_is_passed_over(void **state)
{
    struct spool s;
    struct spool_memory *m = open_it(&s);
    json_auto_t *doc = NULL, *one = verdict("y");

    (void)state;
    put(&s, 1, "x");
    assert_int_equal(add(&s, 1, 10, 10), 0);
    spool_memory_set_fault(m, cut, NULL);
    assert_int_equal(add(&s, 1, 10, 10), -ENOSPC);
    assert_int_equal(spool_incidents_put(&s, 7, 2, 1, one), -ENOSPC);
    doc = spool_incidents_read(&s, 7, 1, 1);
    assert_int_equal(json_array_size(json_object_get(doc, "parts")), 1);
    assert_null(spool_incidents_read(&s, 7, 2, 1));
    assert_int_equal(listed(&s, NULL), 1);
    assert_int_equal(spool_incidents_put(&s, 99, 1, 1, one), -ENOENT); /* nobody knows the job */
    spool_memory_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_eight_of_a_job_are_kept),
        cmocka_unit_test(a_verdict_that_comes_again_takes_the_place_of_the_first),
        cmocka_unit_test(what_a_node_tells_again_is_passed_over),
        cmocka_unit_test(a_rank_of_which_too_much_is_told_keeps_what_it_told_and_its_log),
        cmocka_unit_test(an_incident_grows_to_its_limit_and_no_further),
        cmocka_unit_test(what_a_full_disk_cut_off_is_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
