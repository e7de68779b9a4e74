/* Lists: by user, project, state, name and labels, with some fields alone; and what is forgotten of ended jobs. */
#include "tests/unit/server/control/scene.h"

#include <errno.h>

#include "server/control/listing.h"
#include "server/control/records.h"

#define JOB(name, project, labels)                                                                                     \
    "name: " name "\nproject: " project "\nlabels: {" labels "}\ndevices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

/* A list with these parameters, name and value by turns, as this user sees it (NULL: an admin). */
static struct scene_answer list(struct scene *s, const char *user, size_t n, const char *const *query)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);

    for (size_t i = 0; i < n; i += 2) {
        r->query.v[r->query.n].name = query[i];
        r->query.v[r->query.n++].value = query[i + 1];
    }
    if (user) {
        r->identity = (struct http_identity){.role = ROLE_USER};
        (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    }
    return scene_call(s, listing_jobs, r, NULL);
}
#define LIST(s, user, ...)                                                                                             \
    list(s, user, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

/* The numbers of a page's jobs as text: "5 3". */
static const char *numbers(struct scene_answer a)
{
    static char text[256];
    json_t *job;
    size_t i, n = 0;

    assert_int_equal(a.status, 200);
    text[0] = '\0';
    json_array_foreach (json_object_get(a.body, "jobs"), i, job) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "",
                              json_string_value(json_object_get(job, "id")) + 1);
    }
    return text;
}

static void end(struct scene *s, uint64_t job)
{
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
}

static void jobs_are_found_by_project_state_name_and_labels_after_a_restart_too(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    end(s, scene_submit(s, JOB("eval-one", "red", "team: nlp, stage: test")));
    end(s, scene_submit(s, JOB("train-one", "blue", "team: nlp")));
    assert_int_equal(scene_submit(s, JOB("eval-two", "blue", "team: cv")), 3);
    assert_int_equal(scene_submit(s, JOB("plain", "red", "")), 4);
    for (int round = 0; round < 2; round++) {
        assert_string_equal(numbers(LIST(s, NULL, "project", "red")), "4 1");
        assert_string_equal(numbers(LIST(s, NULL, "project", "blue", "state", "active")), "3");
        assert_string_equal(numbers(LIST(s, NULL, "state", "succeeded,queued")), "4 2 1");
        assert_string_equal(numbers(LIST(s, NULL, "name~", "eval")), "3 1");
        assert_string_equal(numbers(LIST(s, NULL, "label", "team=nlp")), "2 1");
        assert_string_equal(numbers(LIST(s, NULL, "label", "team=nlp,stage!=test")), "2");
        assert_string_equal(numbers(LIST(s, NULL, "label", "team!=nlp", "project", "red")), "4");
        assert_string_equal(numbers(LIST(s, NULL, "user", "ann")), "4 3 2 1");
        assert_string_equal(numbers(LIST(s, NULL, "user", "eve")), "");
        assert_string_equal(numbers(LIST(s, NULL, "limit", "2")), "4 3");
        assert_string_equal(numbers(LIST(s, NULL, "limit", "2", "cursor", "j3")), "2 1");
        scene_restart(s);
        assert_int_equal(scene_register(s, "n1", "a", 1), 200);
        scene_wait(s, 1);
    }
}

static void a_user_lists_their_own_jobs_whatever_they_ask_for(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_submit(s, JOB("x", "red", "")), 1);
    assert_string_equal(numbers(LIST(s, "ann", "project", "red")), "1");
    assert_string_equal(numbers(LIST(s, "bob", "project", "red")), "");
    assert_string_equal(numbers(LIST(s, "bob", "user", "ann")), "");
}

static void filters_that_are_none_are_refused(void **state)
{
    static const char *const bad[][2] = {
        {"label", "team"}, {"label", "=x"},    {"label", "a=b,"},    {"label", "a=B"},
        {"label", "a==b"}, {"state", "wrong"}, {"fields", "id,who"}, {"cursor", "x"},
    };
    struct scene *s = *state;

    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(list(s, NULL, 2, bad[i]).status, 422);
}

static void a_list_of_some_fields_has_those_alone(void **state)
{
    struct scene *s = *state;
    const json_t *job;

    assert_int_equal(scene_submit(s, JOB("x", "red", "a: b")), 1);
    job = json_array_get(json_object_get(LIST(s, NULL, "fields", "id,state").body, "jobs"), 0);
    assert_int_equal(json_object_size(job), 2);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "queued");
}

/* One user with very many jobs that have ended does not make those of others be forgotten. */
static void of_ended_jobs_the_user_with_the_most_gives_up_the_oldest(void **state)
{
    struct scene *s = *state;
    struct job before;

    s->core->cfg.keep_ended = 3;
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    for (uint64_t job = 1; job <= 6; job++) {
        assert_int_equal(scene_submit(s, JOB("x", "red", "")), job);
        if (job == 1) /* the first is another's */
            (void)snprintf(scene_entry(s, 1)->job.user, SPEC_NAME_MAX, "bob");
        if (job == 1) {
            struct catalog *all = &s->core->jobs.catalog;

            catalog_drop(all, catalog_find(all, 1));
            assert_int_equal(catalog_add(all, 1, "bob", "red", JOB_QUEUED, 1), 0);
        }
        scene_wait(s, 1);
        end(s, job);
    }
    scene_wait(s, 1);
    assert_string_equal(numbers(LIST(s, NULL, "user", "bob")), "1");
    assert_string_equal(numbers(LIST(s, NULL, "user", "ann")), "6 5");
    assert_int_equal(records_read_job(s->core, 2, &before, NULL, NULL), -ENOENT);
    s->core->cfg.keep_ended_bytes = 1; /* and by bytes: all must go */
    scene_wait(s, 1);
    assert_string_equal(numbers(LIST(s, NULL, "limit", "9")), "");
}

/* A store of a musterd that kept no catalog. */
static void a_store_without_a_catalog_is_given_one(void **state)
{
    struct scene *s = *state;
    _Atomic int stop = 0;
    struct merr err;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    end(s, scene_submit(s, JOB("x", "red", "")));
    end(s, scene_submit(s, JOB("y", "blue", "")));
    store_drop(s->store, STORE_ENDED, "1");
    assert_int_equal(store_commit(s->store, &stop, &err), 0);
    for (int round = 0; round < 2; round++) {
        scene_restart(s);
        assert_string_equal(numbers(LIST(s, NULL, "project", "red")), "1");
        assert_string_equal(numbers(LIST(s, NULL, "state", "succeeded")), "2 1");
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(jobs_are_found_by_project_state_name_and_labels_after_a_restart_too),
        TEST(a_user_lists_their_own_jobs_whatever_they_ask_for),
        TEST(filters_that_are_none_are_refused),
        TEST(a_list_of_some_fields_has_those_alone),
        TEST(of_ended_jobs_the_user_with_the_most_gives_up_the_oldest),
        TEST(a_store_without_a_catalog_is_given_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
