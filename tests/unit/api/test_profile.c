/* Profiles as JSON: written and read, and what is refused. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/profile.h"

static const char whole[] =
    "{'version': 1, 'threads': 2, 'side_by_side': 4, 'products': [[64, 128, 256, 0.5, 0.25, 0.125]],"
    " 'bf16_products': [[64, 128, 256, 2]], 'attention': [[128, 64, 10, 30]],"
    " 'ops': {'gelu': [[1000, 1.5], [4000, 8]]}, 'call_us': 3, 'step_us': 40, 'copy_gbps': 12.5,"
    " 'all_reduce': [[4, 1048576, 250]], 'messages': [[4096, 7]], 'memory_gib': 2, 'program_mib': 12,"
    " 'context_mib': 300, 'cache_mib': 16, 'far_products': [[64, 128, 256, 0.25]],"
    " 'far_bf16_products': [[64, 128, 256, 1]], 'far_ops': {'adamw': [[1000, 3]]},"
    " 'far_bf16_ops': {'to_bf16': [[1000, 2]]}}";

static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_t *doc;

    assert_non_null(copy);
    for (char *at = copy; (at = strchr(at, '\'')); at++)
        *at = '"';
    doc = json_loads(copy, 0, NULL);
    free(copy);
    assert_non_null(doc);
    return doc;
}

static void a_profile_is_read_and_written_unchanged(void **state)
{
    struct plan_profile *p = calloc(2, sizeof(*p));
    json_t *doc = parse(whole), *again;
    struct merr err;

    (void)state;
    assert_non_null(p);
    assert_int_equal(profile_read(doc, &p[0], &err), 0);
    assert_int_equal(p[0].f32.products, 1);
    assert_true(p[0].f32.product[0].flops[PROFILE_WEIGHTS] == 0.125e12);
    assert_true(p[0].bf16.product[0].flops[PROFILE_INPUT] == 2e12);
    assert_true(p[0].f32.op[PROFILE_GELU].n == 2 && p[0].f32.op[PROFILE_GELU].at[1].s == 8e-6);
    assert_true(p[0].all_reduce[0].ranks == 4 && p[0].message[0].ranks == 2);
    assert_true(p[0].memory_bytes == (uint64_t)2 << 30 && p[0].program_bytes == (uint64_t)12 << 20);
    assert_true(p[0].context_bytes == (uint64_t)300 << 20 && p[0].side_by_side == 4);
    assert_true(p[0].cache_bytes == 16 << 20 && p[0].far_f32.product[0].flops[PROFILE_INPUT] == 0.25e12);
    assert_true(p[0].far_bf16.op[PROFILE_TO_BF16].at[0].s == 2e-6);
    again = profile_write(&p[0], true, 1700000000, 1.5);
    assert_int_equal(profile_read(again, &p[1], &err), 0);
    assert_memory_equal(&p[0], &p[1], sizeof(*p));
    json_decref(again);
    json_decref(doc);
    free(p);
}

static void what_is_no_measurement_is_refused_by_the_name_of_its_field(void **state)
{
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"[]", "object"},
        {"{'version': 2}", "version"},
        {"{'gflops': 3}", "gflops"},
        {"{'products': {}}", "products"},
        {"{'products': [[1, 2, 3]]}", "products"},
        {"{'products': [[1, 2, 3, 4, 5]]}", "products"},
        {"{'products': [[64, 64, 64, 0]]}", "products"},
        {"{'products': [[64, 64, 64, -1]]}", "products"},
        {"{'bf16_products': [[1e300, 64, 64, 1]]}", "bf16_products"},
        {"{'attention': [[64, 64, 'x', 1]]}", "attention"},
        {"{'ops': []}", "ops"},
        {"{'ops': {'tanh': [[1, 1]]}}", "tanh"},
        {"{'ops': {'gelu': []}}", "ops"},
        {"{'ops': {'gelu': [[10, 1], [10, 2]]}}", "ops"},
        {"{'all_reduce': [[1, 100, 5]]}", "all_reduce"},
        {"{'messages': [[100]]}", "messages"},
        {"{'call_us': 0}", "call_us"},
        {"{'threads': 'two'}", "threads"},
    };
    struct plan_profile *p = calloc(2, sizeof(*p));

    (void)state;
    assert_non_null(p);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *doc = parse(cases[i].text);
        struct merr err = {""};

        assert_true(profile_read(doc, &p[0], &err) < 0);
        assert_non_null(strstr(err.text, cases[i].names));
        assert_memory_equal(&p[0], &p[1], sizeof(*p)); /* unchanged */
        json_decref(doc);
    }
    free(p);
}

static void more_rows_than_a_table_holds_are_refused(void **state)
{
    struct plan_profile *p = calloc(1, sizeof(*p));
    json_t *doc = json_object(), *list = json_array();
    struct merr err;

    (void)state;
    for (int i = 0; i <= PROFILE_PRODUCTS_MAX; i++)
        json_array_append_new(list, json_pack("[i, i, i, i]", 64, 64, i + 1, 1));
    json_object_set_new(doc, "products", list);
    assert_int_equal(profile_read(doc, p, &err), -EINVAL);
    json_array_remove(list, 0);
    assert_int_equal(profile_read(doc, p, &err), 0);
    json_decref(doc);
    free(p);
}

static void of_several_the_median_counts_where_tables_are_alike(void **state)
{
    static const char *const text[] = {
        "{'products': [[64, 64, 64, 1]], 'ops': {'add': [[100, 9]]}, 'memory_gib': 4, 'program_mib': 10}",
        "{'products': [[64, 64, 64, 5]], 'ops': {'add': [[100, 3]]}, 'memory_gib': 2, 'program_mib': 30}",
        "{'products': [[64, 64, 64, 2]], 'ops': {'add': [[100, 4]]}, 'memory_gib': 3, 'program_mib': 20}",
        "{'products': [[64, 64, 32, 100]], 'ops': {'add': [[100, 100]]}, 'memory_gib': 1, 'program_mib': 90}"};
    struct plan_profile *p = calloc(5, sizeof(*p));
    const struct plan_profile *all[4];
    struct merr err;

    (void)state;
    assert_non_null(p);
    for (int i = 0; i < 4; i++) {
        json_t *doc = parse(text[i]);

        all[i] = &p[i];
        assert_int_equal(profile_read(doc, &p[i], &err), 0);
        json_decref(doc);
    }
    profile_median(all, 4, &p[4]);
    assert_true(p[4].f32.product[0].flops[PROFILE_FORWARD] == 2e12);
    assert_true(p[4].f32.op[PROFILE_ADD].at[0].s == 4e-6);
    assert_true(p[4].memory_bytes == (uint64_t)2 << 30 && p[4].program_bytes == (uint64_t)30 << 20);
    profile_median(all, 2, &p[4]);
    assert_true(p[4].f32.product[0].flops[PROFILE_FORWARD] == 3e12);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_is_read_and_written_unchanged),
        cmocka_unit_test(what_is_no_measurement_is_refused_by_the_name_of_its_field),
        cmocka_unit_test(of_several_the_median_counts_where_tables_are_alike),
        cmocka_unit_test(more_rows_than_a_table_holds_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
