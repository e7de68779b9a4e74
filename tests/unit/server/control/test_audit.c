/* The audit log: what is noted of changes and refusals, how it is read, and what is forgotten of it. */
#include "tests/unit/server/control/scene.h"

#include "server/control/audit.h"
#include "server/store/audit_log.h"
#include "server/store/store_priv.h"

#define ONE "name: x\ndevices: {min: 1, max: 1}\ncommand: {argv: [x], env: {KEY: hush}}\n"

static struct http_req *request(const char *user, const char *method, const char *path, const char *a)
{
    struct http_req *r = scene_request(a, NULL, NULL);

    (void)snprintf(r->method, sizeof(r->method), "%s", method);
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    (void)snprintf(r->address, sizeof(r->address), "10.0.0.7");
    (void)snprintf(r->request_id, sizeof(r->request_id), "r-1");
    if (strcmp(user, "root") != 0)
        r->identity.role = ROLE_USER;
    free(r->uri);
    r->uri = strdup(path);
    return r;
}

/* Entries, with these parameters by name and value; borrowed until the next call. */
static json_t *entries(struct scene *s, size_t n, const char *const *query, const char **ret_cursor)
{
    struct http_req *r = request("root", "GET", "/v1/audit", NULL);
    struct scene_answer a;

    for (size_t i = 0; i < n; i += 2) {
        r->query.v[r->query.n].name = query[i];
        r->query.v[r->query.n++].value = query[i + 1];
    }
    a = scene_call(s, audit_list, r, NULL);
    assert_int_equal(a.status, 200);
    if (ret_cursor)
        *ret_cursor = json_string_value(json_object_get(a.body, "next_cursor"));
    return json_object_get(a.body, "audit");
}
#define ENTRIES(s, ...)                                                                                                \
    entries(s, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__}, NULL)

static const char *text_of(const json_t *list, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(list, i), key));
}

static void put_project(struct scene *s, const char *user, int quota)
{
    (void)scene_call(s, projects_put, request(user, "PUT", "/v1/projects/red", "red"),
                     json_pack("{s:i}", "quota", quota));
}

static void a_change_is_noted_with_who_where_before_and_after(void **state)
{
    struct scene *s = *state;
    json_t *all, *last;

    put_project(s, "root", 4);
    put_project(s, "root", 8);
    (void)scene_call(s, projects_get, request("root", "GET", "/v1/projects/red", "red"), NULL); /* changes nothing */
    assert_int_equal(scene_submit(s, ONE), 1);
    assert_int_equal(
        scene_call(s, jobs_patch, request("root", "PATCH", "/v1/jobs/j1", "j1"), json_pack("{s:i}", "priority", 80))
            .status,
        200);
    scene_restart(s);
    all = ENTRIES(s, "limit", "100");
    assert_int_equal(json_array_size(all), 4); /* a submit's request has no method here: it is noted, too */
    last = json_array_get(all, 1);
    assert_string_equal(text_of(all, 1, "actor"), "user:root");
    assert_string_equal(text_of(all, 1, "token"), "t1");
    assert_string_equal(text_of(all, 1, "address"), "10.0.0.7");
    assert_string_equal(text_of(all, 1, "request_id"), "r-1");
    assert_string_equal(text_of(all, 1, "path"), "/v1/projects/red");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(last, "before"), "quota")), 4);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(last, "after"), "quota")), 8);
    last = json_array_get(all, 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(last, "before"), "priority")), 50);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(last, "after"), "priority")), 80);
    for (size_t i = 0; i < 4; i++) { /* no value of a job's environment is in it */
        char *text = json_dumps(json_array_get(all, i), 0);

        assert_null(strstr(text, "hush"));
        free(text);
    }
}

static void who_is_refused_for_want_of_a_right_is_noted_and_who_errs_is_not(void **state)
{
    struct scene *s = *state;
    json_t *all;

    assert_int_equal(scene_submit(s, ONE), 1);
    assert_int_equal(scene_call(s, jobs_get, request("eve", "GET", "/v1/jobs/j1", "j1"), NULL).status, 404);
    assert_int_equal(scene_call(s, jobs_get, request("eve", "GET", "/v1/jobs/j9", "j9"), NULL).status, 404); /* none */
    put_project(s, "root", 4);
    (void)scene_call(s, projects_put, request("root", "PUT", "/v1/projects/red", "red"), json_pack("{s:i}", "x", 1));
    (void)scene_call(s, projects_put_member, request("eve", "PUT", "/v1/projects/red/members/eve", "red"),
                     json_pack("{s:s}", "role", "manager"));
    all = ENTRIES(s, "user", "eve");
    assert_int_equal(json_array_size(all), 2);
    assert_string_equal(text_of(all, 0, "code"), "unknown-job");
    assert_string_equal(text_of(all, 1, "code"), "not-a-manager");
    assert_int_equal(json_array_size(ENTRIES(s, "user", "root")), 1);
}

/* A request that HTTP refused by itself. */
static void refuse(struct scene *s, const char *address)
{
    struct http_req *r = request("", "GET", "/v1/jobs", NULL);

    (void)snprintf(r->address, sizeof(r->address), "%s", address);
    r->identity.role = ROLE_NONE;
    assert_true(turn_take(s->core, audit_refusal(r, 401, "unknown-token")));
    http_req_unref(r);
    http_req_unref(r);
}

/* Whoever floods the log with refusals does not flush it. */
static void very_many_refusals_of_an_address_are_counted(void **state)
{
    struct scene *s = *state;
    json_t *all;
    size_t n;

    for (int i = 0; i < 1000; i++)
        refuse(s, "10.0.0.66");
    refuse(s, "10.0.0.67"); /* another is noted */
    all = ENTRIES(s, "limit", "1000");
    n = json_array_size(all);
    assert_in_range(n, 61, 62);
    assert_string_equal(text_of(all, n - 1, "address"), "10.0.0.67");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(all, n - 1), "left_out")), 1001 - n);
    assert_null(text_of(all, 0, "actor"));
}

static void the_log_is_read_page_by_page_and_from_a_time(void **state)
{
    struct scene *s = *state;
    char at[CLOCK_RFC3339_MAX], cursor[32] = "0";
    const char *next = cursor;
    size_t n = 0;

    for (int i = 0; i < 5; i++)
        put_project(s, "root", i);
    clock_rfc3339(s->clock.wall_us + 1000, at);
    for (int i = 0; i < 3; i++)
        put_project(s, "root", i);
    while (next) {
        n += json_array_size(entries(s, 4, (const char *[]){"limit", "3", "cursor", cursor}, &next));
        if (next)
            (void)snprintf(cursor, sizeof(cursor), "%s", next);
    }
    assert_int_equal(n, 8);
    assert_int_equal(json_array_size(ENTRIES(s, "from", at)), 3);
    assert_int_equal(json_array_size(ENTRIES(s, "to", at)), 5);
    assert_int_equal(json_array_size(ENTRIES(s, "user", "eve")), 0);
}

static void what_is_old_or_too_much_is_forgotten_the_oldest_first(void **state)
{
    struct scene *s = *state;
    json_t *all;

    s->core->cfg.audit_bytes = 20000;
    for (int i = 0; i < 200; i++)
        put_project(s, "root", i);
    scene_wait(s, 2);
    all = ENTRIES(s, "limit", "1000");
    assert_in_range(json_array_size(all), 10, 60);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(json_array_get(all, json_array_size(all) - 1), "after"), "quota")),
                     199);
    scene_restart(s); /* what it holds is known after that, too */
    s->core->cfg.audit_bytes = 10000;
    put_project(s, "root", 1);
    scene_wait(s, 2);
    assert_in_range(json_array_size(ENTRIES(s, "limit", "1000")), 5, 30);
    s->core->cfg.audit_keep_s = 1;
    scene_wait(s, 30);
    assert_int_equal(json_array_size(ENTRIES(s, "limit", "1000")), 0);
}

/* A turn's entries are one record in the store, and its readers do not see that. */
static void the_entries_of_a_turn_are_one_record_and_are_read_one_by_one(void **state)
{
    struct scene *s = *state;
    struct call *list = NULL, **end = &list;
    char cursor[32] = "0";
    const char *next = cursor;
    struct store_rows records;
    uint64_t more;
    size_t n = 0;

    for (int i = 0; i < 7; i++) {
        struct http_req *r = request(i % 2 ? "eve" : "ann", "GET", "/v1/jobs", NULL);

        *end = audit_refusal(r, 403, "no");
        end = &(*end)->next;
        http_req_unref(r);
        http_req_unref(r);
    }
    assert_true(turn_take(s->core, list));
    assert_int_equal(audit_log_read_records(s->core->store, 0, 100, &records, &more, NULL), 0);
    assert_int_equal(records.n, 1);
    store_rows_clear(&records);
    for (; next; n++) {
        json_t *page = entries(s, 4, (const char *[]){"limit", "1", "cursor", cursor}, &next);

        if (json_array_size(page) == 0)
            break;
        assert_string_equal(text_of(page, 0, "actor"), n % 2 ? "user:eve" : "user:ann");
        if (next)
            (void)snprintf(cursor, sizeof(cursor), "%s", next);
    }
    assert_int_equal(n, 7);
    assert_int_equal(json_array_size(ENTRIES(s, "user", "eve")), 3);
}

/* An older musterd kept each entry by itself, its user beside it. */
static void entries_of_an_older_musterd_are_read_too(void **state)
{
    struct scene *s = *state;
    char id[32], old[200];
    struct merr err;
    json_t *all;

    (void)snprintf(id, sizeof(id), "%lld-0", (long long)(s->clock.wall_us - 1));
    (void)snprintf(old, sizeof(old), "{\"type\":\"audit\",\"actor\":\"user:eve\",\"id\":\"%s\"}", id);
    store_add(s->core->store, "XADD", "muster:audit", "MAXLEN", "~", "1000", id, "e", old, "u", "eve", NULL);
    assert_int_equal(store_commit(s->core->store, &s->core->turn.stop, &err), 0);
    put_project(s, "root", 4);
    all = ENTRIES(s, "limit", "10");
    assert_int_equal(json_array_size(all), 2);
    assert_string_equal(text_of(all, 0, "id"), id);
    assert_string_equal(text_of(all, 1, "actor"), "user:root");
    assert_int_equal(json_array_size(ENTRIES(s, "user", "eve")), 1);
}

/* Such a path ended the whole server: an entry that cannot be written down is a fatal lack of memory. */
static void a_refused_path_that_is_no_text_is_noted_and_ends_nothing(void **state)
{
    struct scene *s = *state;
    json_t *all;

    put_project(s, "root", 4);
    (void)scene_call(s, projects_put_member,
                     request("eve", "PUT", "/v1/projects/red/members/\xff\xc3\xa9\"\\\n\xf0\x9f\x98\x80", "red"),
                     json_pack("{s:s}", "role", "manager"));
    all = ENTRIES(s, "user", "eve");
    assert_int_equal(json_array_size(all), 1);
    assert_string_equal(text_of(all, 0, "path"), "/v1/projects/red/members/\xef\xbf\xbd\xc3\xa9\"\\\n\xf0\x9f\x98\x80");
}

static void an_entry_that_is_too_long_goes_without_what_was_before_and_after(void **state)
{
    struct scene *s = *state;
    struct http_req *r = request("root", "PUT", "/v1/long", NULL);
    struct call *call = call_new(r, NULL);
    char *text = malloc(40000);
    json_t *all;

    memset(text, 'x', 39999);
    text[39999] = '\0';
    call->status = 200;
    call_changed_new(call, json_string(text), NULL);
    audit_call(s->core, call);
    call_free(call);
    http_req_unref(r);
    http_req_unref(r);
    free(text);
    scene_turn(s);
    all = ENTRIES(s, "user", "root");
    assert_int_equal(json_array_size(all), 1);
    assert_true(json_is_null(json_object_get(json_array_get(all, 0), "before")));
    assert_true(json_is_true(json_object_get(json_array_get(all, 0), "cut")));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_change_is_noted_with_who_where_before_and_after),
        TEST(who_is_refused_for_want_of_a_right_is_noted_and_who_errs_is_not),
        TEST(very_many_refusals_of_an_address_are_counted),
        TEST(the_log_is_read_page_by_page_and_from_a_time),
        TEST(the_entries_of_a_turn_are_one_record_and_are_read_one_by_one),
        TEST(entries_of_an_older_musterd_are_read_too),
        TEST(a_refused_path_that_is_no_text_is_noted_and_ends_nothing),
        TEST(an_entry_that_is_too_long_goes_without_what_was_before_and_after),
        TEST(what_is_old_or_too_much_is_forgotten_the_oldest_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
