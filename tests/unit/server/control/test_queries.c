/* The parameters of the routes: each table ends, names each once and has limits that hold something. */
#include "tests/unit/test.h"

#include <string.h>

#include "server/control/queries.h"

static const struct query_parameter *const tables[] = {
    queries_put_bundle, queries_submit,      queries_jobs,    queries_audit,  queries_job_events, queries_events,
    queries_logs,       queries_retry,       queries_metrics, queries_series, queries_nodes,      queries_drain,
    queries_keys,       queries_assignments, queries_put_key, queries_exec,
};

static void each_parameter_is_named_once_and_lets_some_number_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(tables); i++) {
        assert_non_null(tables[i]->name);
        for (const struct query_parameter *p = tables[i]; p->name; p++) {
            assert_true(p - tables[i] < 64 && *p->name && p->least <= p->most);
            for (const struct query_parameter *q = tables[i]; q < p; q++)
                assert_string_not_equal(p->name, q->name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_parameter_is_named_once_and_lets_some_number_through),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
