/* What a spec may not be: each limit from both sides, and numbers from the edges of every field at once. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_priv.h"
#include "api/spec_plan.h"
#include "base/buf.h"
#include "base/philox.h"

#define ROUNDS 1000

static json_t *text_of(size_t n)
{
    struct buf b;
    json_t *text;

    buf_init(&b, n);
    if (n > 0)
        memset(buf_reserve(&b, n), 'x', n);
    buf_commit(&b, n);
    text = json_stringn(buf_text(&b), n);
    buf_clear(&b);
    return text;
}

/* Read doc, which is taken over. It is good, or has a fault at pointer (NULL: it is good) that says this. */
static void read_one(json_t *doc, const char *pointer, const char *says)
{
    struct faults f = {.n = 0};
    struct job_spec *s = NULL;
    int r = spec_from_json(doc, &s, &f);
    bool found = false;

    for (size_t i = 0; i < f.n; i++)
        found = found || (pointer && strcmp(f.v[i].pointer, pointer) == 0 && strstr(f.v[i].message, says));
    if (r != (pointer ? -EINVAL : 0) || found != (pointer != NULL)) {
        print_error("want '%s' at %s\n", pointer ? says : "no fault", pointer ? pointer : "any place");
        for (size_t i = 0; i < f.n; i++)
            print_error("  %s: %s\n", f.v[i].pointer, f.v[i].message);
        fail();
    }
    spec_free(s);
    faults_clear(&f);
    json_decref(doc);
}

static json_t *argv_of(size_t n, size_t bytes)
{
    json_t *argv = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(argv, text_of(bytes));
    return json_pack("{s:{s:o}}", "command", "argv", argv);
}

static json_t *env_of(size_t n, size_t bytes)
{
    json_t *env = json_object();
    char name[32];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof(name), "N%04zu", i);
        json_object_set_new(env, name, text_of(bytes));
    }
    return json_pack("{s:{s:[s],s:o}}", "command", "argv", "true", "env", env);
}

static json_t *notify_of(const char *text)
{
    return json_pack("{s:{s:[s]},s:o}", "command", "argv", "true", "notify", json_loads(text, 0, NULL));
}

static void what_a_job_tells_its_webhook_is_one_of_what_there_is(void **state)
{
    (void)state;
    read_one(notify_of("{\"webhook\": \"w\", \"on\": [\"failed\", \"slow\"]}"), NULL, NULL);
    read_one(notify_of("{\"webhook\": \"w\"}"), NULL, NULL);
    read_one(notify_of("{\"webhook\": \"w\", \"on\": [\"failed\", \"failedx\"]}"), "/notify/on/1", "'failed'");
    read_one(notify_of("{\"on\": [\"failed\"]}"), "/notify/webhook", "is needed");
    read_one(notify_of("{\"webhook\": 1}"), "/notify/webhook", "");
}

static void arguments_and_variables_have_their_limits(void **state)
{
    char name[SPEC_VARIABLE_MAX + 2];

    (void)state;
    read_one(argv_of(SPEC_ARGS_MAX, 255), NULL, NULL); /* with its NUL 256 bytes each: just all there may be */
    read_one(argv_of(SPEC_ARGS_MAX, 256), "/command/argv/1020", "262144 bytes together");
    read_one(argv_of(SPEC_ARGS_MAX + 1, 1), "/command/argv", "1 to 1024 texts");
    read_one(argv_of(2, SPEC_ARG_BYTES), NULL, NULL);
    read_one(argv_of(1, SPEC_ARG_BYTES + 1), "/command/argv/0", "131072 bytes are more than the 131071");
    read_one(argv_of(3, SPEC_ARG_BYTES), "/command/argv/2", "together");
    read_one(json_pack("{s:o}", "command", text_of(SPEC_ARG_BYTES + 1)), "/command/argv/2", "put them into a file");
    read_one(env_of(SPEC_ARGS_MAX, 249), NULL, NULL); /* "N0000=", 249, NUL */
    read_one(env_of(SPEC_ARGS_MAX, 250), "/command/env/N1020", "together");
    read_one(env_of(SPEC_ARGS_MAX + 1, 1), "/command/env", "at most 1024 variables");
    read_one(env_of(1, SPEC_ARG_BYTES - 6), NULL, NULL);
    read_one(env_of(1, SPEC_ARG_BYTES - 5), "/command/env/N0000", "131072 bytes");
    memset(name, 'N', sizeof(name));
    name[SPEC_VARIABLE_MAX + 1] = '\0';
    read_one(json_pack("{s:{s:[s],s:{s:s}}}", "command", "argv", "true", "env", name, "x"), "/command/env",
             "no name of a variable");
    read_one(json_pack("{s:{s:[s],s:{s:s}}}", "command", "argv", "true", "env", name + 1, "x"), NULL, NULL);
}

/* A job holds so many ranks, one a device: what asks for more is refused where it is submitted. */
static void a_job_asks_for_no_more_devices_than_a_job_holds_ranks(void **state)
{
    (void)state;
    read_one(json_pack("{s:s,s:{s:i}}", "command", "true", "devices", "min", PLAN_RANKS_MAX), NULL, NULL);
    read_one(json_pack("{s:s,s:{s:i}}", "command", "true", "devices", "min", PLAN_RANKS_MAX + 1), "/devices/min",
             "from 1 to 1024, got 1025");
    read_one(json_pack("{s:s,s:{s:i,s:i}}", "command", "true", "devices", "min", 1, "max", PLAN_RANKS_MAX + 1),
             "/devices/max", "from 1 to 1024, got 1025");
}

static void names_texts_and_lists_have_their_limits(void **state)
{
    static const char *const paths[] = {"path", "tokenizer_path", "index"};

    (void)state;
    read_one(json_pack("{s:s,s:o}", "command", "true", "name", text_of(SPEC_NAME_MAX - 1)), NULL, NULL);
    read_one(json_pack("{s:s,s:o}", "command", "true", "name", text_of(SPEC_NAME_MAX)), "/name", "1 to 63");
    read_one(json_pack("{s:s,s:o}", "command", "true", "project", text_of(SPEC_NAME_MAX)), "/project", "1 to 63");
    read_one(json_pack("{s:s,s:{s:[o]}}", "command", "true", "devices", "classes", text_of(SPEC_NAME_MAX)),
             "/devices/classes/0", "1 to 63");
    read_one(json_pack("{s:{s:[s],s:o}}", "command", "argv", "true", "workdir", text_of(SPEC_TEXT_FIELD_MAX)), NULL,
             NULL);
    read_one(json_pack("{s:{s:[s],s:o}}", "command", "argv", "true", "workdir", text_of(SPEC_TEXT_FIELD_MAX + 1)),
             "/command/workdir", "1 to 4095 bytes");
    for (size_t i = 0; i < COUNT(paths); i++) {
        char pointer[64];

        (void)snprintf(pointer, sizeof(pointer), "/train/data/%s", paths[i]);
        read_one(json_pack("{s:{s:s,s:{s:o}}}", "train", "model", "gpt2-tiny", "data", paths[i], text_of(5000)),
                 pointer, "1 to 4095 bytes");
    }
    read_one(json_pack("{s:{s:s,s:{s:o},s:{s:s}},s:{s:o}}", "train", "model", "gpt2-tiny", "init", "from",
                       text_of(5000), "data", "path", "/x", "checkpoint", "dir", text_of(5000)),
             "/checkpoint/dir", "1 to 4095 bytes");
}

static void what_ranks_make_together_has_its_limits(void **state)
{
    static const char *const model =
        "\"train\":{\"model\":{\"layers\":1024,\"hidden\":65536,\"heads\":1024,\"ffn\":65536,\"context\":2048},"
        "\"data\":{\"path\":\"/x\"%s}%s},\"parallel\":{%s}";
    static const struct {
        const char *data, *batch, *parallel, *pointer, *says;
    } rows[] = {
        {"", "", "\"tp\":64,\"pp\":16", NULL, NULL},
        {"", "", "\"tp\":128,\"pp\":16", "/parallel/tp", "2048 devices, more than the 1024"},
        {"", "", "\"tp\":1024,\"pp\":1024,\"cp\":1024", "/parallel/tp", "1073741824 devices"},
        {",\"samples\":\"documents\"", ",\"batch\":{\"capacity\":16777216}", "\"cp\":64", NULL, NULL},
        {",\"samples\":\"documents\"", ",\"batch\":{\"capacity\":16777216}", "\"cp\":128", "/train/batch/capacity",
         "together"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[512] = "{";

        (void)snprintf(text + 1, sizeof(text) - 2, model, rows[i].data, rows[i].batch, rows[i].parallel);
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "}");
        read_one(json_loads(text, 0, NULL), rows[i].pointer, rows[i].says);
    }
}

/* --- numbers ------------------------------------------------------------------------------------------- */

static bool is_number(const struct field *d)
{
    return d->type == FIELD_INT || d->type == FIELD_AUTO || d->type == FIELD_U64 || d->type == FIELD_NUMBER;
}

/* Put v, which is taken over, where a pointer says. */
static void put(json_t *doc, const char *path, json_t *v)
{
    const char *last = strrchr(path, '/');
    char name[32];

    for (const char *p = path; p != last; p += strcspn(p + 1, "/") + 1) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, "/"), p + 1);
        if (!json_object_get(doc, name))
            json_object_set_new(doc, name, json_object());
        doc = json_object_get(doc, name);
    }
    json_object_set_new(doc, last + 1, v);
}

static json_t *base_for(const struct field *d)
{
    static const char *const train = "{\"train\":{\"model\":{\"layers\":4,\"hidden\":64,\"heads\":4},"
                                     "\"data\":{\"path\":\"/x\"}}}";

    return json_loads(d && d->scope == SCOPE_COMMAND ? "{\"command\":{\"argv\":[\"true\"]}}" : train, 0, NULL);
}

static void each_number_past_its_edge_is_refused_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < spec_fields_n; i++) {
        const struct field *d = &spec_fields[i];
        json_t *beyond[] = {json_integer(INT64_MIN),
                            json_integer(INT64_MAX),
                            json_integer((json_int_t)d->hi + 1),
                            json_integer((json_int_t)d->lo - 1),
                            json_integer((json_int_t)d->lo + (1LL << 32)),
                            json_real(1e308),
                            json_real(-1e308),
                            json_real(d->hi * 1.0000001 + 1e-9),
                            json_string("1"),
                            json_true(),
                            json_null(),
                            json_array(),
                            json_object()};

        for (size_t k = 0; k < COUNT(beyond); k++) {
            json_t *doc = base_for(d);

            if (!is_number(d) || (k == 4 && d->hi >= 4294967296.0 + d->lo)) {
                json_decref(beyond[k]);
            } else {
                put(doc, d->path, beyond[k]);
                read_one(json_incref(doc), d->path, "want a");
            }
            json_decref(doc);
        }
    }
}

/* Every number at an edge of what it may be, or left out: whatever comes of it, it is a spec that can be printed,
 * read again and planned, or faults. */
static void numbers_from_the_edges_make_a_spec_or_faults(void **state)
{
    static const uint32_t key[2] = {77, 0};
    const struct plan_device device = {.flops = 1e12, .bytes_per_s = 1e10, .memory_bytes = 1ull << 40};
    const struct plan_site site = {.group = {{.device = device, .n = 4}},
                                   .groups = 1,
                                   .node_devices = 4,
                                   .inside = {1e-5, 1e9},
                                   .between = {1e-4, 1e8}};
    int specs = 0;

    (void)state;
    print_message("seed %u\n", key[0]);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        json_t *doc = base_for(NULL);
        struct faults f = {.n = 0};
        struct job_spec *s = NULL, *again = NULL;

        for (uint32_t i = 0; i < spec_fields_n; i++) {
            const struct field *d = &spec_fields[i];
            uint32_t w[4];
            double x;

            philox4x32((uint32_t[4]){round, i, 0, 0}, key, w);
            if (!is_number(d) || d->scope == SCOPE_COMMAND || w[0] % 16 > round % 3 + 1)
                continue;
            x = w[1] % 3 == 0 ? d->lo : w[1] % 3 == 1 ? d->hi : d->lo + 1;
            put(doc, d->path,
                d->type == FIELD_NUMBER ? json_real(x > d->hi ? d->hi : x)
                                        : json_integer((json_int_t)(x > d->hi ? d->hi : x)));
        }
        if (spec_from_json(doc, &s, &f) == 0) {
            json_t *printed = spec_to_json(s);
            struct plan_job job = spec_plan_job(s);
            struct plan_wish wish = spec_plan_wish(s);
            struct plan_result p;

            specs++;
            if (spec_from_json(printed, &again, &f) < 0)
                fail_msg("%s: %s", f.v[0].pointer, f.v[0].message);
            (void)spec_plan_facts(s);
            if (spec_replica_devices(s) <= 4 && plan_search(&job, &wish, &site, &p, NULL) == 0)
                assert_true(isfinite(p.best.cost.step_s));
            spec_free(again);
            spec_free(s);
            json_decref(printed);
        } else {
            assert_true(f.n > 0);
        }
        faults_clear(&f);
        json_decref(doc);
    }
    print_message("%d specs of %d\n", specs, ROUNDS);
    assert_true(specs > ROUNDS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_job_tells_its_webhook_is_one_of_what_there_is),
        cmocka_unit_test(arguments_and_variables_have_their_limits),
        cmocka_unit_test(a_job_asks_for_no_more_devices_than_a_job_holds_ranks),
        cmocka_unit_test(names_texts_and_lists_have_their_limits),
        cmocka_unit_test(what_ranks_make_together_has_its_limits),
        cmocka_unit_test(each_number_past_its_edge_is_refused_there),
        cmocka_unit_test(numbers_from_the_edges_make_a_spec_or_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
