/* The catalog: what a search finds and how many rows it looks at for that; what is counted of users. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "server/cluster/catalog.h"

static struct catalog_query query(const struct catalog *c, const char *user, const char *project, const bool *states)
{
    struct catalog_query q = {.n = 0};

    if (user)
        catalog_any_user(c, catalog_query_any(&q), user);
    if (project)
        catalog_any_project(c, catalog_query_any(&q), project);
    if (states)
        catalog_query_states(c, &q, states);
    return q;
}

/* 100,000 jobs of other users and states do not cost a page anything: rows looked at are counted, not time. */
static void a_filtered_page_looks_at_its_own_jobs_alone(void **state)
{
    static struct catalog c;
    const bool queued[JOB_STATES] = {[JOB_QUEUED] = true};
    struct catalog_query q;
    uint64_t below = UINT64_MAX, rest;
    size_t found = 0;

    (void)state;
    for (uint64_t i = 1; i <= 100000; i++)
        assert_int_equal(catalog_add(&c, i, i % 1000 == 0 ? "ann" : "bob", i % 2000 == 0 ? "prod" : "default",
                                     i % 4000 == 0 ? JOB_QUEUED : JOB_SUCCEEDED, 10),
                         0);
    q = query(&c, "ann", NULL, NULL);
    for (struct catalog_row *r; found < 50 && (r = catalog_next(&q, below, 4000, &rest)); below = r->id, found++)
        assert_int_equal(r->id, 100000 - 1000 * found);
    assert_int_equal(found, 50);
    assert_in_range(q.looks, 50, 60);
    q = query(&c, "ann", "prod", queued); /* each found by steps from one of ann's or prod's to the next */
    for (below = UINT64_MAX, found = 0;; found++) {
        struct catalog_row *r = catalog_next(&q, below, 4000, &rest);

        if (!r)
            break;
        assert_int_equal(r->id % 4000, 0);
        below = r->id;
    }
    assert_int_equal(found, 25);
    assert_in_range(q.looks, 75, 350);
    q = query(&c, "eve", NULL, NULL);
    assert_null(catalog_next(&q, UINT64_MAX, 4000, &rest));
    assert_int_equal(rest, 0);
    catalog_clear(&c);
}

static void a_search_that_finds_little_stops_and_says_where(void **state)
{
    static struct catalog c;
    struct catalog_query q;
    uint64_t rest = 0;

    (void)state;
    for (uint64_t i = 1; i <= 10000; i++)
        assert_int_equal(catalog_add(&c, i, i % 2 ? "ann" : "bob", i % 2 ? "b" : "a", JOB_FAILED, 0), 0);
    q = query(&c, "ann", "a", NULL);
    assert_null(catalog_next(&q, UINT64_MAX, 100, &rest));
    assert_in_range(rest, 9800, 9999);
    assert_in_range(q.looks, 100, 101);
    catalog_clear(&c);
}

/* Against a plain table. */
static void chance_changes_are_counted_and_found(void **state)
{
    enum { JOBS = 400, USERS = 3 };
    static const char *const users[USERS] = {"ann", "bob", "eve"};
    static struct catalog c;
    struct {
        int user;
        enum job_state state;
        uint64_t bytes;
    } t[JOBS + 1] = {0};
    const uint32_t key[2] = {17, 0}; /* the seed */

    (void)state;
    for (uint32_t step = 0; step < 20000; step++) {
        uint32_t r[4];
        uint64_t id;

        philox4x32((const uint32_t[4]){step}, key, r);
        id = 1 + r[0] % JOBS;
        if (t[id].user == 0 && r[1] % 2) {
            t[id].user = 1 + (int)(r[2] % USERS);
            t[id].state = JOB_QUEUED;
            t[id].bytes = r[3] % 1000;
            assert_int_equal(catalog_add(&c, id, users[t[id].user - 1], "p", JOB_QUEUED, t[id].bytes), 0);
            assert_int_equal(catalog_add(&c, id, "x", "p", JOB_QUEUED, 0), -EEXIST);
        } else if (t[id].user != 0 && r[1] % 8 == 0) {
            catalog_drop(&c, catalog_find(&c, id));
            t[id].user = 0;
        } else if (t[id].user != 0) {
            t[id].state = (enum job_state)(r[2] % JOB_STATES);
            t[id].bytes = r[3] % 1000;
            assert_int_equal(catalog_move(&c, catalog_find(&c, id), t[id].state), 0);
            catalog_resize(&c, catalog_find(&c, id), t[id].bytes);
        }
        if (step % 1000 != 999)
            continue;
        for (int u = 0; u < USERS; u++) {
            const struct catalog_name *n = catalog_user(&c, users[u]);
            struct catalog_query q = query(&c, users[u], NULL, NULL);
            uint64_t below = UINT64_MAX, rest, bytes = 0, active = 0;

            for (id = JOBS; id > 0; id--)
                if (t[id].user == u + 1) {
                    struct catalog_row *row = catalog_next(&q, below, 4000, &rest);

                    assert_non_null(row);
                    assert_int_equal(row->id, id);
                    assert_int_equal(row->state, t[id].state);
                    below = id;
                    bytes += job_ended(t[id].state) ? t[id].bytes : 0;
                    active += !job_ended(t[id].state);
                }
            assert_null(catalog_next(&q, below, 4000, &rest));
            assert_int_equal(n ? n->ended_bytes : 0, bytes);
            assert_int_equal(n ? n->active.n : 0, active);
        }
    }
    catalog_clear(&c);
}

static void the_oldest_of_who_keeps_the_most_goes_first(void **state)
{
    static struct catalog c;

    (void)state;
    assert_null(catalog_surplus(&c, false));
    assert_int_equal(catalog_add(&c, 1, "ann", "p", JOB_SUCCEEDED, 1000), 0);
    for (uint64_t i = 2; i < 10; i++)
        assert_int_equal(catalog_add(&c, i, "bob", "p", i == 2 ? JOB_RUNNING : JOB_FAILED, 10), 0);
    assert_int_equal(catalog_surplus(&c, false)->id, 3);
    assert_int_equal(catalog_surplus(&c, true)->id, 1);
    catalog_ship(&c, catalog_find(&c, 1), 70);
    catalog_ship(&c, catalog_find(&c, 3), 5);
    assert_int_equal(catalog_user(&c, "ann")->shipped, 70);
    assert_int_equal(catalog_project(&c, "p")->shipped, 75);
    catalog_drop(&c, catalog_find(&c, 3));
    assert_int_equal(c.shipped, 70);
    catalog_clear(&c);
}

static void logs_of_an_older_job_that_ends_later_are_found(void **state)
{
    static struct catalog c;

    (void)state;
    assert_null(catalog_most_logs(&c));
    for (uint64_t i = 1; i <= 20000; i++) {
        assert_int_equal(catalog_add(&c, i, i == 5 ? "bob" : "ann", "p", i == 7 ? JOB_RUNNING : JOB_SUCCEEDED, 10), 0);
        catalog_count_logs(&c, catalog_find(&c, i), i == 5 ? 100 : 10);
    }
    assert_int_equal(c.logs, 20000 * 10 + 90);
    for (uint64_t i = 1; i <= 19000; i++) {
        if (i == 5 || i == 7)
            continue;
        assert_int_equal(catalog_most_logs(&c)->id, i);
        catalog_count_logs(&c, catalog_find(&c, i), 0);
    }
    assert_int_equal(catalog_move(&c, catalog_find(&c, 7), JOB_FAILED), 0);
    assert_int_equal(catalog_most_logs(&c)->id, 7);
    catalog_drop(&c, catalog_find(&c, 7));
    assert_int_equal(catalog_most_logs(&c)->id, 19001);
    catalog_count_logs(&c, catalog_find(&c, 3), 5); /* something came late */
    assert_int_equal(catalog_most_logs(&c)->id, 3);
    assert_int_equal(c.logs, 1000 * 10 + 100 + 5);
    catalog_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filtered_page_looks_at_its_own_jobs_alone),
        cmocka_unit_test(a_search_that_finds_little_stops_and_says_where),
        cmocka_unit_test(chance_changes_are_counted_and_found),
        cmocka_unit_test(logs_of_an_older_job_that_ends_later_are_found),
        cmocka_unit_test(the_oldest_of_who_keeps_the_most_goes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
