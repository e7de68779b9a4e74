/* Every message of the protocol, by its table. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "api/protocol/reference.h"
#include "tests/unit/api/protocol/random_message.h"

#define ROUNDS 300

static json_t *through_text(json_t *doc)
{
    char *text = json_dumps(doc, JSON_COMPACT);
    json_t *again = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;

    assert_non_null(again);
    free(text);
    json_decref(doc);
    return again;
}

/* A message with all its fields as JSON, new. */
static json_t *drawn(struct draws *d, const struct wire_message *m)
{
    char *s = calloc(1, m->size);
    json_t *doc;

    assert_non_null(s);
    draw_message(d, m, s);
    doc = wire_write(m, s);
    assert_non_null(doc);
    wire_clear(m, s);
    free(s);
    return doc;
}

static void what_is_written_is_read_back_the_same(void **state)
{
    struct draws d = draws_begin();

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++)
        for (int i = 0; i < ROUNDS; i++) {
            char *told = calloc(1, (*m)->size), *heard = calloc(1, (*m)->size);
            struct merr err = {""};
            json_t *doc;

            draw_message(&d, *m, told);
            doc = wire_write(*m, told);
            assert_non_null(doc);
            doc = through_text(doc);
            if (wire_read(*m, doc, heard, &err) != 0)
                fail_msg("%s: %s", (*m)->name, err.text);
            assert_same_message(*m, told, heard);
            wire_clear(*m, told);
            wire_clear(*m, heard);
            json_decref(doc);
            free(told);
            free(heard);
        }
}

static void a_needed_field_that_is_missing_is_named(void **state)
{
    struct draws d = draws_begin();
    int needed = 0;

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++)
        for (size_t i = 0; i < (*m)->n_fields; i++) {
            const struct wire_field *f = &(*m)->fields[i];
            json_t *doc = drawn(&d, *m);
            char *s = malloc((*m)->size), want[80];
            struct merr err = {""};

            memset(s, 7, (*m)->size);
            (void)json_object_del(doc, f->name);
            if (f->flags & WIRE_NEEDED) {
                assert_int_equal(wire_read(*m, doc, s, &err), -EINVAL);
                (void)snprintf(want, sizeof(want), "'%s' is missing", f->name);
                if (!strstr(err.text, want))
                    fail_msg("%s without %s: %s", (*m)->name, f->name, err.text);
                assert_int_equal(s[0], 7); /* unchanged */
                needed++;
            } else {
                if (wire_read(*m, doc, s, &err) != 0)
                    fail_msg("%s without %s: %s", (*m)->name, f->name, err.text);
                wire_clear(*m, s);
            }
            free(s);
            json_decref(doc);
        }
    assert_true(needed > 10);
}

static void a_field_of_another_kind_is_named_with_what_it_wants(void **state)
{
    struct draws d = draws_begin();

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++)
        for (size_t i = 0; i < (*m)->n_fields; i++) {
            const struct wire_field *f = &(*m)->fields[i];
            bool text = f->kind == WIRE_TEXT || f->kind == WIRE_STRING || f->kind == WIRE_ENUM;
            json_t *doc = drawn(&d, *m), *wrong = text ? json_real(2.5) : json_string("no such thing");
            char *s = malloc((*m)->size), want[80];
            struct merr err = {""};

            assert_int_equal(json_object_set_new(doc, f->name, wrong), 0);
            assert_int_equal(wire_read(*m, doc, s, &err), -EINVAL);
            (void)snprintf(want, sizeof(want), "'%s' wants ", f->name);
            if (!strstr(err.text, want) || !strstr(err.text, text ? "not 2.5" : "not \"no such thing\""))
                fail_msg("%s with another %s: %s", (*m)->name, f->name, err.text);
            free(s);
            json_decref(doc);
        }
}

/* Numbers beside their range, texts that are too long, lists that are. */
static void a_field_past_its_limit_is_refused_or_cut(void **state)
{
    struct draws d = draws_begin();

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++)
        for (size_t i = 0; i < (*m)->n_fields; i++) {
            const struct wire_field *f = &(*m)->fields[i];
            bool number = f->kind == WIRE_INT || f->kind == WIRE_LONG;
            json_t *doc = drawn(&d, *m), *v = NULL;
            char *s = malloc((*m)->size), *text;

            if (number)
                v = json_integer(f->max < INT64_MAX && draw(&d, 2) ? f->max + 1 : f->min - 1);
            if (f->kind == WIRE_TEXT) {
                text = calloc(1, f->size + 1);
                memset(text, 'x', f->size);
                v = json_string(text);
                free(text);
            }
            if (f->kind == WIRE_INTS) {
                v = json_array();
                for (size_t k = 0; k <= f->most; k++)
                    (void)json_array_append_new(v, json_integer(f->min));
            }
            if (v) {
                (void)json_object_set_new(doc, f->name, v);
                assert_int_equal(wire_read(*m, doc, s, NULL), f->flags & WIRE_CUT ? 0 : -EINVAL);
                if (f->flags & WIRE_CUT) {
                    assert_int_equal(strlen(s + f->at), f->size - 1);
                    wire_clear(*m, s);
                }
            }
            free(s);
            json_decref(doc);
        }
}

static void all_faults_are_told_at_once_each_with_its_place(void **state)
{
    static const char text[] = "{\"job\": 7, \"generation\": 0, \"dir\": \"/d\", \"spec\": {}, \"layout\": {\"pp\": 0},"
                               "\"ranks\": [{\"rank\": 0, \"node\": \"a\"}, {\"rank\": 1, \"slot\": \"x\"}, 3]}";
    static const char *const want[] = {
        "'job' wants a text of 1 to 63 bytes, not 7",
        "'generation' wants a number from 1, not 0",
        "'pp' in 'layout' wants a number from 1 to 1024, not 0",
        "'node' in entry 1 of 'ranks' is missing",
        "'slot' in entry 1 of 'ranks' wants a number from -1, not \"x\"",
        "entry 2 of 'ranks' wants an object, not 3",
    };
    const struct wire_message *assignment = &assignment_message;
    json_t *doc = json_loads(text, 0, NULL);
    char *s = malloc(assignment->size);
    struct merr err = {""};

    (void)state;
    assert_int_equal(wire_read(assignment, doc, s, &err), -EINVAL);
    for (size_t i = 0; i < COUNT(want); i++)
        if (!strstr(err.text, want[i]))
            fail_msg("'%s' is not in: %s", want[i], err.text);
    json_decref(doc);
    free(s);
}

static void a_schema_has_what_its_message_writes(void **state)
{
    struct draws d = draws_begin();
    json_t *all = reference_schemas(), *report = json_object_get(all, "AgentReportRank");
    const char *key;
    json_t *v;

    (void)state;
    assert_non_null(report);
    assert_string_equal(json_string_value(json_object_get(report, "type")), "object");
    for (const struct wire_message *const *m = reference_messages; *m; m++)
        for (int i = 0; i < ROUNDS / 10; i++) {
            json_t *doc = drawn(&d, *m), *schema = json_object(), *needed, *one;
            size_t k;

            assert_int_equal(wire_schema(*m, schema), 0);
            one = json_object_iter_value(json_object_iter(schema));
            assert_true(json_equal(one, json_object_get(all, json_object_iter_key(json_object_iter(schema)))));
            json_object_foreach (doc, key, v)
                assert_non_null(json_object_get(json_object_get(one, "properties"), key));
            needed = json_object_get(one, "required");
            json_array_foreach (needed, k, v)
                assert_non_null(json_object_get(doc, json_string_value(v)));
            json_decref(schema);
            json_decref(doc);
        }
    json_decref(all);
}

static void fields_that_nobody_knows_and_nulls_are_passed_over(void **state)
{
    struct draws d = draws_begin();

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++) {
        json_t *doc = drawn(&d, *m);
        char *s = malloc((*m)->size);

        (void)json_object_set_new(doc, "of a later version", json_integer(1));
        for (size_t i = 0; i < (*m)->n_fields; i++)
            if (!((*m)->fields[i].flags & WIRE_NEEDED))
                (void)json_object_set_new(doc, (*m)->fields[i].name, json_null());
        assert_int_equal(wire_read(*m, doc, s, NULL), 0);
        wire_clear(*m, s);
        free(s);
        json_decref(doc);
    }
}

static void what_is_no_object_is_refused(void **state)
{
    static const char *const texts[] = {"[]", "7", "null", "\"x\""};

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++) {
        char *s = malloc((*m)->size);

        for (size_t i = 0; i < COUNT(texts); i++) {
            json_t *doc = json_loads(texts[i], JSON_DECODE_ANY, NULL);

            assert_int_equal(wire_read(*m, doc, s, NULL), -EINVAL);
            json_decref(doc);
        }
        assert_int_equal(wire_read(*m, NULL, s, NULL), -EINVAL);
        free(s);
    }
}

static long left; /* allocations until one fails */

static void *failing_malloc(size_t n)
{
    return left-- == 0 ? NULL : malloc(n);
}

static void a_message_that_memory_is_too_short_for_is_not_written(void **state)
{
    struct draws d = draws_begin();

    (void)state;
    for (const struct wire_message *const *m = reference_messages; *m; m++) {
        char *s = calloc(1, (*m)->size);
        json_t *doc = NULL;

        draw_message(&d, *m, s);
        json_set_alloc_funcs(failing_malloc, free);
        for (long n = 0; !doc; n++) {
            left = n;
            doc = wire_write(*m, s);
        }
        json_set_alloc_funcs(malloc, free);
        json_decref(doc);
        wire_clear(*m, s);
        free(s);
    }
}

static void the_reference_is_the_end_of_the_docs(void **state)
{
    struct buf want, file;
    char part[4096];
    FILE *in = fopen("docs/protocol.md", "re");
    size_t n;

    (void)state;
    buf_init(&want, 1 << 20);
    buf_init(&file, 1 << 20);
    assert_int_equal(reference_print(&want), 0);
    assert_non_null(in);
    while ((n = fread(part, 1, sizeof(part), in)) > 0)
        (void)buf_add(&file, part, n);
    (void)fclose(in);
    if (file.len < want.len || strcmp(buf_text(&file) + file.len - want.len, buf_text(&want)) != 0)
        fail_msg("docs/protocol.md does not end with what the tables say: run 'make docs/protocol.md'");
    buf_clear(&want);
    buf_clear(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back_the_same),
        cmocka_unit_test(a_needed_field_that_is_missing_is_named),
        cmocka_unit_test(a_field_of_another_kind_is_named_with_what_it_wants),
        cmocka_unit_test(a_field_past_its_limit_is_refused_or_cut),
        cmocka_unit_test(all_faults_are_told_at_once_each_with_its_place),
        cmocka_unit_test(a_schema_has_what_its_message_writes),
        cmocka_unit_test(fields_that_nobody_knows_and_nulls_are_passed_over),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(a_message_that_memory_is_too_short_for_is_not_written),
        cmocka_unit_test(the_reference_is_the_end_of_the_docs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
