#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/assignment.h"

/* Of two ranks on two nodes, with what is given in place of its own fields; new. */
static json_t *doc(const char *more)
{
    json_t *o = json_loads("{\"job\": \"j9\", \"generation\": 3, \"dir\": \"/jobs/j9\", \"spec\": {}, \"ranks\": ["
                           "{\"rank\": 1, \"node\": \"b\", \"slot\": 0}, {\"rank\": 0, \"node\": \"a\", \"slot\": 4}]}",
                           0, NULL);
    json_t *fields = json_loads(more, 0, NULL);

    assert_non_null(o);
    assert_non_null(fields);
    assert_int_equal(json_object_update(o, fields), 0);
    json_decref(fields);
    return o;
}

static void what_protocol_1_wrote_is_read(void **state)
{
    json_t *o = doc("{}");
    struct assignment a;
    struct merr err = {""};

    (void)state;
    if (assignment_read(o, &a, &err) != 0)
        fail_msg("%s", err.text);
    json_decref(o);
    assert_int_equal(a.protocol, 1);
    assert_int_equal(a.world, 2);
    assert_int_equal(a.order, ASSIGNMENT_RUN);
    assert_int_equal(a.grace_s, ASSIGNMENT_GRACE_S);
    assert_int_equal(a.threads, 0); /* not told */
    assert_int_equal(a.layout.tp * a.layout.pp * a.layout.cp * a.layout.dp, 1);
    assert_int_equal(a.ranks[1].slot, 4);
    assert_string_equal(a.memory, "");
    assignment_clear(&a);
}

static void a_later_version_is_refused_by_name_with_what_to_do(void **state)
{
    char text[64];
    struct assignment a = {.world = 77};
    struct merr err = {""};
    json_t *o;

    (void)state;
    (void)snprintf(text, sizeof(text), "{\"protocol\": %d, \"generation\": \"of another kind\"}", PROTOCOL_VERSION + 1);
    o = doc(text);
    assert_int_equal(assignment_read(o, &a, &err), -EPROTO);
    json_decref(o);
    (void)snprintf(text, sizeof(text), "job 'j9' speaks version %d of the protocol", PROTOCOL_VERSION + 1);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, "install the same release"));
    assert_int_equal(a.world, 77);
}

static void ranks_and_source_nodes_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *more, *say;
    } row[] = {
        {"{\"world\": 1}", "rank 1 is not within a world of 1"},
        {"{\"ranks\": [{\"rank\": 0, \"node\": \"a\"}, {\"rank\": 0, \"node\": \"b\"}]}", "listed twice"},
        {"{\"givers\": [{\"rank\": 3, \"node\": \"c\"}]}", "is not rank 2"},
        {"{\"givers\": [{\"rank\": 2, \"node\": \"b\"}]}", "no node of its own"},
        {"{\"givers\": [{\"rank\": 2}]}", "'node' in entry 0 of 'givers'"},
        {"{\"order\": \"fly\"}", "one of run, save, hand-over, move, drain, stop"},
        {"{\"leaves\": [2, 0]}", "'leaves'"},
        {"{\"memory_limit\": 0}", "'memory_limit'"},
        {"{\"protocol\": 0}", "'protocol'"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        json_t *o = doc(row[i].more);
        struct assignment a = {.world = 77};
        struct merr err = {""};

        assert_int_equal(assignment_read(o, &a, &err), -EINVAL);
        if (!strstr(err.text, row[i].say) || !strstr(err.text, "j9"))
            fail_msg("%s: %s", row[i].more, err.text);
        assert_int_equal(a.world, 77);
        json_decref(o);
    }
}

static void a_path_that_is_no_utf8_is_still_written(void **state)
{
    struct assignment a = {.job = "j1", .generation = 1, .dir = "/caf\xe9", .spec = json_object()};
    json_t *o = assignment_write(&a);

    (void)state;
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "dir")), "/caf?");
    assert_int_equal(json_integer_value(json_object_get(o, "protocol")), PROTOCOL_VERSION);
    json_decref(o);
    assignment_clear(&a);
}

/* Of all MASTER_PORTs that a server gives out, and of one that the system gave. */
static void ports_of_runs_differ_and_lie_below_those_of_the_system(void **state)
{
    static bool taken[65536];

    (void)state;
    for (int master = 29500; master < 31500; master++)
        for (size_t i = 0; i < SPEC_PORTS_MAX; i++) {
            int port = assignment_port(master, i);

            assert_in_range(port, 1024, 29499); /* 29500 on are the MASTER_PORTs, 32768 on the system's */
            assert_false(taken[port]);
            taken[port] = true;
        }
    assert_true(taken[assignment_port(65535, 0)]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_protocol_1_wrote_is_read),
        cmocka_unit_test(a_later_version_is_refused_by_name_with_what_to_do),
        cmocka_unit_test(ranks_and_source_nodes_that_do_not_fit_are_refused),
        cmocka_unit_test(a_path_that_is_no_utf8_is_still_written),
        cmocka_unit_test(ports_of_runs_differ_and_lie_below_those_of_the_system),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
