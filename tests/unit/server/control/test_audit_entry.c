/* An entry of the audit log is one line of JSON in ASCII, whatever a request holds. */
#include "tests/unit/server/control/scene.h"

#include "server/control/audit_entry.h"

/* The entry of a request of this user for this path, read back. New. */
static json_t *entry_of(const char *user, const char *path, const char *code, const struct audit_entry_end *end)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);
    BUF_CLEAR_AUTO struct buf b;
    json_t *o;

    buf_init(&b, 1 << 16);
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    (void)snprintf(r->method, sizeof(r->method), "POST");
    free(r->uri);
    r->uri = strdup(path);
    audit_entry_begin(&b, r, 403, code);
    audit_entry_end(&b, end);
    assert_false(b.failed);
    for (size_t i = 0; i < b.len; i++)
        assert_true(b.data[i] >= 0x20 && b.data[i] < 0x7f);
    o = json_loads(buf_text(&b), JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        fail_msg("no JSON: %s", buf_text(&b));
    atomic_store(&r->refs, 1);
    http_req_unref(r);
    return o;
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static void names_of_any_bytes_come_back_and_what_is_no_text_is_marked(void **state)
{
    static const struct {
        const char *user, *back;
    } table[] = {
        {"ann", "user:ann"},
        {"a\"b\\c", "user:a\"b\\c"},
        {"a\nb\x01", "user:a\nb\x01"},
        {"\xc3\xa9", "user:\xc3\xa9"},
        {"\xe2\x82\xac", "user:\xe2\x82\xac"},
        {"\xf0\x9f\x98\x80", "user:\xf0\x9f\x98\x80"},
        {"a\xff"
         "b",
         "user:a\xef\xbf\xbd"
         "b"},
        {"a\xc3", "user:a\xef\xbf\xbd"},
        {"\"},{\"type\":\"forged", "user:\"},{\"type\":\"forged"},
    };
    static const struct audit_entry_end end = {.id = 7, .wall_us = 1700000000 * SECOND};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = entry_of(table[i].user, "/v1/jobs", NULL, &end);

        if (strcmp(text_of(o, "actor"), table[i].back) != 0 || strcmp(text_of(o, "type"), "audit") != 0)
            fail_msg("row %zu: %s", i, text_of(o, "actor"));
    }
}

static void an_entry_says_what_was_before_and_after(void **state)
{
    json_auto_t *before = json_pack("{s:s}", "name", "\xc3\xa9\n"), *o = NULL;
    const struct audit_entry_end end = {
        .before = before, .left_out = 3, .cut = true, .id = UINT64_MAX, .wall_us = 1700000000 * SECOND};

    (void)state;
    o = entry_of("", "/v1/jobs/j1", "no-right", &end);
    assert_true(json_is_null(json_object_get(o, "actor")));
    assert_string_equal(text_of(o, "code"), "no-right");
    assert_int_equal(json_integer_value(json_object_get(o, "status")), 403);
    assert_true(json_equal(json_object_get(o, "before"), before));
    assert_true(json_is_null(json_object_get(o, "after")));
    assert_int_equal(json_integer_value(json_object_get(o, "left_out")), 3);
    assert_true(json_is_true(json_object_get(o, "cut")));
    assert_string_equal(text_of(o, "id"), "18446744073709551615");
    assert_string_equal(text_of(o, "at"), "2023-11-14T22:13:20.000Z");
}

static void what_happened_without_a_request_has_its_user(void **state)
{
    BUF_CLEAR_AUTO struct buf b;
    json_auto_t *o = NULL;

    (void)state;
    buf_init(&b, 4096);
    audit_entry_begin_of(&b, "ann", "session");
    audit_entry_end(&b, &(struct audit_entry_end){.id = 1});
    o = json_loads(buf_text(&b), 0, NULL);
    assert_string_equal(text_of(o, "actor"), "user:ann");
    assert_string_equal(text_of(o, "path"), "session");
    assert_true(json_is_null(json_object_get(o, "token")));
    assert_null(json_object_get(o, "left_out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_any_bytes_come_back_and_what_is_no_text_is_marked),
        cmocka_unit_test(an_entry_says_what_was_before_and_after),
        cmocka_unit_test(what_happened_without_a_request_has_its_user),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
