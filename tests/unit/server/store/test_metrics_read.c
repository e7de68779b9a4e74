/* "One user against all": metrics of 600,000 steps are thinned without losing a peak, and read from an index. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/metrics_kept.h"
#include "server/store/metrics_line.h"
#include "server/store/metrics_read.h"
#include "tests/memory/spool_memory.h"

struct scene {
    struct spool spool, counting; /* counting: the same, but it counts the bytes read */
    struct spool_ops ops;
    struct spool_memory *memory;
    struct metrics_cache *cache;
    int64_t length[4]; /* of generations */
    char text[1 << 18];
    size_t n;
};

static size_t bytes_read;
static const struct spool_ops *plain;

static ssize_t count_read(void *self, uint64_t job, const char *name, int64_t offset, char *to, size_t n,
                          int64_t *ret_length)
{
    ssize_t got = plain->read(self, job, name, offset, to, n, ret_length);

    bytes_read += got > 0 ? (size_t)got : 0;
    return got;
}

static int start(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->memory = spool_memory_new(&s->spool);
    s->cache = metrics_cache_new();
    plain = s->spool.ops;
    s->ops = *plain;
    s->ops.read = count_read;
    s->counting = (struct spool){.ops = &s->ops, .self = s->spool.self};
    return spool_make_job(&s->spool, 1, NULL);
}

static int stop(void **state)
{
    struct scene *s = *state;

    metrics_cache_free(s->cache);
    spool_memory_free(s->memory);
    free(s);
    return 0;
}

static void flush(struct scene *s, int generation)
{
    char name[SPOOL_NAME_MAX];
    bool is_new = false;

    spool_metrics_name(generation, name);
    s->length[generation] = spool_append(&s->spool, 1, name, s->length[generation], s->text, s->n, &is_new);
    assert_true(is_new);
    s->n = 0;
}

static void add(struct scene *s, int generation, const char *line)
{
    size_t n = strlen(line);

    if (s->n + n > sizeof(s->text))
        flush(s, generation);
    memcpy(s->text + s->n, line, n);
    s->n += n;
}

static void add_step(struct scene *s, int generation, int step, double loss, double norm)
{
    char line[200];

    (void)snprintf(line, sizeof(line), "{\"step\":%d,\"loss\":%.6f,\"grad_norm\":%.0f,\"generation\":%d}\n", step, loss,
                   norm, generation);
    add(s, generation, line);
}

static bool go_on(void *arg)
{
    return !arg || (*(int *)arg)-- > 0;
}

static json_t *ask(struct scene *s, const char *names, int points)
{
    json_t *got = metrics_read(s->cache, &s->counting, 1, names, points, go_on, NULL);

    assert_non_null(got);
    return got;
}

static double value(const json_t *got, const char *column, size_t i)
{
    return json_number_value(json_array_get(json_object_get(json_object_get(got, "metrics"), column), i));
}

static json_int_t number(const json_t *got, const char *name)
{
    return json_integer_value(json_object_get(got, name));
}

static void of_600000_steps_the_curve_reaches_the_last_and_has_each_peak(void **state)
{
    enum { STEPS = 600000, PEAK = 412345, DIP = 77777 };
    struct scene *s = *state;
    json_t *got;
    bool peak = false, dip = false;
    size_t cold;

    for (int i = 0; i < STEPS; i++)
        add_step(s, 1, i, i == DIP ? 0.001 : 3.0 - i * 1e-6, i == PEAK ? 99.0 : 1.0);
    flush(s, 1);
    bytes_read = 0;
    got = ask(s, "loss,grad_norm", 1500);
    cold = bytes_read;
    assert_int_equal(number(got, "steps"), STEPS);
    assert_int_equal(number(got, "left_out_bytes"), 0); /* 600,000 steps are kept */
    assert_true(number(got, "points") > 500 && number(got, "points") <= 1500);
    assert_int_equal(value(got, "step", (size_t)number(got, "points") - 1), STEPS - 1);
    for (size_t i = 0; i < (size_t)number(got, "points"); i++) {
        int step = (int)value(got, "step", i);

        assert_true(i == 0 || step > value(got, "step", i - 1));
        peak = peak || (step == PEAK && value(got, "grad_norm", i) == 99.0);
        dip = dip || (step == DIP && value(got, "loss", i) == 0.001);
    }
    assert_true(peak && dip);
    json_decref(got);
    bytes_read = 0; /* again: from the index */
    json_decref(ask(s, "loss,grad_norm", 1500));
    assert_true(cold >= (size_t)s->length[1] && bytes_read < 8 << 20);
    add_step(s, 1, STEPS, 1, 1); /* one more line costs one more line */
    flush(s, 1);
    got = ask(s, "loss", 100);
    assert_int_equal(value(got, "step", (size_t)number(got, "points") - 1), STEPS);
    json_decref(got);
}

static void beyond_what_is_kept_the_limit_is_told(void **state)
{
    struct scene *s = *state;
    int64_t most = (int64_t)(SPOOL_METRICS_PARTS + 2) * SPOOL_PART;
    int step = 0;
    static char line[15000];
    json_t *got;

    while (s->length[1] < most + SPOOL_PART) {
        (void)snprintf(line, sizeof(line), "{\"step\":%d,\"loss\":1,\"text\":\"%014900d\"}\n", step++, 0);
        add(s, 1, line);
    }
    flush(s, 1);
    got = ask(s, "loss", 1500);
    assert_true(number(got, "left_out_bytes") > 0);
    assert_true(number(got, "steps") < step);
    assert_int_equal(value(got, "step", 0), 0);
    assert_int_equal(value(got, "step", (size_t)number(got, "points") - 1), step - 1);
    json_decref(got);
}

static void junk_costs_no_memory_and_is_passed_over(void **state)
{
    static const char *const junk[] = {"x\n", "{\n", "[1,2]\n", "{\"step\":\n", "\n", "null\n"};
    struct scene *s = *state;
    char *long_line = malloc(1 << 17);
    json_t *got;

    assert_non_null(long_line);
    memset(long_line, 'y', (1 << 17) - 2);
    long_line[(1 << 17) - 2] = '\n';
    long_line[(1 << 17) - 1] = '\0';
    for (int i = 0; i < 100000; i++)
        add(s, 1, junk[(size_t)i % COUNT(junk)]);
    for (int i = 0; i < 20; i++)
        add(s, 1, long_line);
    for (int i = 0; i < 10; i++) { /* names that nobody has heard of */
        char line[80];

        (void)snprintf(line, sizeof(line), "{\"step\":%d,\"name%d\":1,\"text\":\"%d\"}\n", i, i, i);
        add(s, 1, line);
    }
    flush(s, 1);
    got = ask(s, NULL, 1000);
    assert_int_equal(number(got, "points"), 10);
    assert_int_equal(number(got, "steps"), 10);
    json_decref(got);
    free(long_line);
}

static double number_of(const struct metrics_line_numbers *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].len == strlen(name) && memcmp(l->v[i].name, name, l->v[i].len) == 0)
            return l->v[i].v;
    return NAN;
}

static void a_line_says_the_same_with_and_without_a_tree(void **state)
{
    static const char *const lines[] = {
        "{}",
        "{\"step\":5}",
        "{\"step\": 7, \"loss\": 0.30000000000000004, \"b\": -1.5e-3}",
        "{\"step\":1e3,\"x\":1}",
        "{\"step\":9007199254740993,\"x\":12345678901234567}",
        "{\"x\":01}",
        "{\"x\":1.}",
        "{\"x\":.5}",
        "{\"x\":-}",
        "{\"x\":1e400}",
        "{\"x\":1e22,\"y\":1e-22,\"z\":123456789012345e7}",
        "{\"x\":-0}",
        "{\"x\":0.1,}",
        "{\"x\":1}x",
        "{\"x\":1} \r",
        "{\"a\\u0062\":2,\"c\":true,\"d\":null,\"e\":\"w\\n\",\"f\":[1,2],\"g\":{\"h\":3}}",
        "{\"e\":\"word\",\"x\":3.25}",
        "{\"\":1}",
        "{\"\xc3\xa9\":1}",
        "{\"\xff\":1}",
        "{\"x\":tru}",
        "[1]",
        "{\"x\" 1}",
        "{\"x\":1 \"y\":2}",
        "{\"x\":3.14159265358979,\"y\":1.7976931348623157e308,\"z\":4.9e-324}",
        "{",
        "{\"x\":1"};

    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++) {
        json_t *tree = json_loads(lines[i], 0, NULL), *value;
        struct metrics_line_numbers l = {.n = 0};
        bool ok = metrics_line_read(lines[i], strlen(lines[i]), &l);
        const char *key;
        size_t n = 0;

        assert_int_equal(ok, json_is_object(tree));
        json_object_foreach (tree, key, value) {
            if (!json_is_number(value) || strcmp(key, "step") == 0)
                continue;
            assert_true(number_of(&l, key) == json_number_value(value));
            n++;
        }
        assert_int_equal(l.n, n);
        assert_int_equal(l.step, json_integer_value(json_object_get(tree, "step")));
        metrics_line_clear(&l);
        json_decref(tree);
    }
    for (int i = 0; i < 20000; i++) { /* numbers as programs print them */
        static const char *const form[] = {"{\"x\":%.5f}", "{\"x\":%.17g}", "{\"x\":%.3e}", "{\"x\":%.9g}"};
        double v = (double)(i * 7919 % 20011) / 997.0 - 5.0;
        struct metrics_line_numbers l;
        char text[64];
        json_t *tree;

        v *= i % 3 == 0 ? 1e-9 : i % 3 == 1 ? 1 : 1e12;
        (void)snprintf(text, sizeof(text), form[i % COUNT(form)], v);
        tree = json_loads(text, 0, NULL);
        assert_true(metrics_line_read(text, strlen(text), &l));
        assert_true(l.v[0].v == json_number_value(json_object_get(tree, "x")));
        metrics_line_clear(&l);
        json_decref(tree);
    }
}

static json_t *ask_series(struct scene *s, int64_t from, int64_t to, int buckets)
{
    struct metrics_range range = {"loss,grad_norm", from, to, buckets};
    char *text = metrics_series(s->cache, &s->counting, 1, &range, go_on, NULL);
    json_t *got = text ? json_loads(text, 0, NULL) : NULL;

    assert_non_null(got);
    free(text);
    return got;
}

static double cell(const json_t *got, const char *name, const char *what, size_t i)
{
    const json_t *series = json_object_get(json_object_get(got, "series"), name);

    return json_number_value(json_array_get(json_object_get(series, what), i));
}

static int64_t bucket(const json_t *got, const char *column, size_t i)
{
    return json_integer_value(json_array_get(json_object_get(got, column), i));
}

static void of_1000000_steps_each_bucket_has_its_least_and_most_and_a_range_every_step(void **state)
{
    enum { STEPS = 1000000, PEAK = 412345, DIP = 77777 };
    struct scene *s = *state;
    int64_t lines = 0, before = -1;
    json_t *got;

    for (int i = 0; i < STEPS; i++)
        add_step(s, 1, i, i == DIP ? 0.001 : 3.0 - i * 1e-6, i == PEAK ? 99.0 : 1.0);
    flush(s, 1);
    json_decref(ask_series(s, 0, INT64_MAX, 500));
    bytes_read = 0;
    got = ask_series(s, 0, INT64_MAX, 500);
    assert_int_equal(bytes_read, 0); /* from the index alone */
    assert_int_equal(number(got, "last"), STEPS - 1);
    assert_in_range(json_array_size(json_object_get(got, "step")), 450, 500);
    for (size_t i = 0; i < json_array_size(json_object_get(got, "step")); i++) {
        int64_t step = bucket(got, "step", i);

        lines += bucket(got, "n", i);
        assert_true(step > before);
        assert_true(cell(got, "grad_norm", "most", i) == (PEAK > before && PEAK <= step ? 99.0 : 1.0));
        assert_true((cell(got, "loss", "least", i) == 0.001) == (DIP > before && DIP <= step));
        assert_true(cell(got, "loss", "mean", i) >= cell(got, "loss", "least", i));
        before = step;
    }
    assert_int_equal(before, STEPS - 1); /* the curve reaches its end */
    assert_int_equal(lines, STEPS);
    json_decref(got);
    bytes_read = 0;
    got = ask_series(s, PEAK - 100, PEAK + 99, 500); /* a line each */
    assert_int_equal(number(got, "most"), 1);
    assert_int_equal(json_array_size(json_object_get(got, "step")), 200);
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(bucket(got, "step", i), PEAK - 100 + (int)i);
        assert_true(cell(got, "grad_norm", "mean", i) == (i == 100 ? 99.0 : 1.0));
    }
    assert_true(bytes_read < 1 << 20);
    json_decref(got);
    got = ask_series(s, STEPS, INT64_MAX, 500);
    assert_int_equal(json_array_size(json_object_get(got, "step")), 0);
    json_decref(got);
}

static void the_index_of_a_long_file_is_kept_beside_it_and_followed_from_there(void **state)
{
    enum { STEPS = 600000 };
    struct scene *s = *state;
    const char *name = "metrics.g1.jsonl.index";
    json_t *first, *second;
    char junk[100] = "no index";
    int64_t length;

    for (int i = 0; i < STEPS; i++)
        add_step(s, 1, i, 3.0 - i * 1e-6, i == 4321 ? 99.0 : 1.0);
    flush(s, 1);
    metrics_note(s->cache, &s->spool, 1); /* as when its lines come */
    add_step(s, 1, STEPS, 1, 1);
    flush(s, 1);
    for (int torn = 0; torn < 3; torn++) {
        metrics_cache_free(s->cache); /* the server is started again */
        s->cache = metrics_cache_new();
        bytes_read = 0;
        second = ask_series(s, 0, INT64_MAX, 500);
        if (torn == 0)
            assert_true(bytes_read < METRICS_KEPT_EACH + (8 << 20) && bytes_read < (size_t)s->length[1] / 2);
        else
            assert_true(bytes_read >= (size_t)s->length[1]);
        assert_true(torn == 0 || json_equal(first, second));
        if (torn == 0)
            first = json_incref(second);
        json_decref(second);
        if (torn == 0) { /* half of it */
            size_t size = sizeof(struct metrics_index) + 1000;
            char *half = malloc(size);

            assert_int_equal(s->spool.ops->read(s->spool.self, 1, name, 0, half, size, &length), size);
            assert_int_equal(s->spool.ops->put(s->spool.self, 1, name, half, size), 0);
            free(half);
        } else {
            assert_int_equal(s->spool.ops->put(s->spool.self, 1, name, junk, sizeof(junk)), 0);
        }
    }
    json_decref(first);
    spool_drop_generation(&s->spool, 1, 1);
    assert_int_equal(s->spool.ops->read(s->spool.self, 1, name, 0, junk, 1, &length), -ENOENT);
}

static void indexes_of_many_attempts_share_what_one_may_take(void **state)
{
    struct scene *s = *state;
    struct metrics_index x = {0}, all = {0};
    int64_t lines = 0;
    char name[SPOOL_NAME_MAX];

    for (int i = 0; i < 30000; i++)
        add_step(s, 1, i, 1, i == 777 ? 99.0 : 1.0);
    flush(s, 1);
    spool_metrics_name(1, name);
    assert_int_equal(metrics_index_update(&all, &s->spool, 1, name, go_on, NULL), 0);
    for (int late = 0; late < 2; late++) { /* shared before and after the lines have come */
        if (!late)
            metrics_index_share(&x, SPOOL_GENERATIONS);
        assert_int_equal(metrics_index_update(&x, &s->spool, 1, name, go_on, NULL), 0);
        if (late)
            metrics_index_share(&x, SPOOL_GENERATIONS);
        assert_true(metrics_index_bytes(&x) * SPOOL_GENERATIONS < 8 << 20);
        lines = 0;
        for (size_t i = 0; i < x.n_spans; i++)
            lines += x.spans[i].of[0].n;
        assert_int_equal(lines, 30000);
        assert_int_equal(x.last_step, all.last_step);
        metrics_index_clear(&x);
    }
    metrics_index_clear(&all);
}

static void buckets_follow_the_attempt_that_replaced_steps(void **state)
{
    struct scene *s = *state;
    json_t *got, *attempts;

    for (int i = 0; i < 1000; i++)
        add_step(s, 1, i, 1, 1);
    flush(s, 1);
    for (int i = 501; i < 800; i++)
        add_step(s, 2, i, 2, 2);
    flush(s, 2);
    got = ask_series(s, 0, INT64_MAX, 2000);
    assert_int_equal(number(got, "last"), 799);
    assert_int_equal(json_array_size(json_object_get(got, "step")), 800);
    for (size_t i = 0; i < 800; i++)
        assert_true(cell(got, "loss", "mean", i) == (i < 501 ? 1.0 : 2.0));
    attempts = json_object_get(got, "attempts");
    assert_int_equal(json_array_size(attempts), 2);
    assert_int_equal(number(json_array_get(attempts, 1), "attempt"), 2);
    assert_int_equal(number(json_array_get(attempts, 1), "step"), 501);
    json_decref(got);
    got = ask_series(s, 490, 509, 2); /* ten steps each, one of them mixed */
    assert_int_equal(number(got, "most"), 10);
    assert_true(cell(got, "loss", "mean", 0) == 1.0 && cell(got, "loss", "least", 1) == 1.0);
    assert_true(cell(got, "loss", "most", 1) == 2.0);
    json_decref(got);
}

static void few_points_are_far_apart_and_many_are_all(void **state)
{
    struct scene *s = *state;
    json_t *got;

    for (int i = 0; i < 5000; i++)
        add_step(s, 1, i, i % 7, i % 11);
    flush(s, 1);
    got = ask(s, NULL, 5000);
    assert_int_equal(number(got, "points"), 5000);
    json_decref(got);
    got = ask(s, NULL, 20);
    assert_true(number(got, "points") <= 20 && number(got, "points") >= 10);
    for (size_t i = 1; i < (size_t)number(got, "points"); i++)
        assert_true(value(got, "step", i) - value(got, "step", i - 1) >= 200);
    assert_int_equal(value(got, "step", (size_t)number(got, "points") - 1), 4999);
    json_decref(got);
}

static void a_later_generation_replaces_steps_of_a_thinned_one(void **state)
{
    struct scene *s = *state;
    json_t *got;

    for (int i = 0; i < 40000; i++)
        add_step(s, 1, i, 1, 1);
    flush(s, 1);
    for (int i = 30001; i < 35000; i++)
        add_step(s, 2, i, 2, 2);
    flush(s, 2);
    got = ask(s, "loss", 1000);
    for (size_t i = 0; i < (size_t)number(got, "points"); i++)
        assert_int_equal(value(got, "loss", i), value(got, "step", i) < 30001 ? 1 : 2);
    assert_int_equal(value(got, "step", (size_t)number(got, "points") - 1), 34999);
    json_decref(got);
}

static void a_read_ends_with_its_client_and_the_next_goes_on(void **state)
{
    struct scene *s = *state;
    int tries = 3;
    size_t first;

    for (int i = 0; i < 100000; i++)
        add_step(s, 1, i, 1, 1);
    flush(s, 1);
    bytes_read = 0;
    assert_null(metrics_read(s->cache, &s->counting, 1, "loss", 100, go_on, &tries));
    first = bytes_read;
    assert_true(first < (size_t)s->length[1] / 2);
    bytes_read = 0;
    json_decref(ask(s, "loss", 1));
    assert_true(bytes_read <= (size_t)s->length[1] - first + (1 << 20)); /* not what it had read before */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_600000_steps_the_curve_reaches_the_last_and_has_each_peak, start, stop),
        cmocka_unit_test_setup_teardown(beyond_what_is_kept_the_limit_is_told, start, stop),
        cmocka_unit_test_setup_teardown(junk_costs_no_memory_and_is_passed_over, start, stop),
        cmocka_unit_test(a_line_says_the_same_with_and_without_a_tree),
        cmocka_unit_test_setup_teardown(of_1000000_steps_each_bucket_has_its_least_and_most_and_a_range_every_step,
                                        start, stop),
        cmocka_unit_test_setup_teardown(the_index_of_a_long_file_is_kept_beside_it_and_followed_from_there, start,
                                        stop),
        cmocka_unit_test_setup_teardown(indexes_of_many_attempts_share_what_one_may_take, start, stop),
        cmocka_unit_test_setup_teardown(buckets_follow_the_attempt_that_replaced_steps, start, stop),
        cmocka_unit_test_setup_teardown(few_points_are_far_apart_and_many_are_all, start, stop),
        cmocka_unit_test_setup_teardown(a_later_generation_replaces_steps_of_a_thinned_one, start, stop),
        cmocka_unit_test_setup_teardown(a_read_ends_with_its_client_and_the_next_goes_on, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
