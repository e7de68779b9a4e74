/* What two checkpoints mean differently is named, and nothing else. */
#include "tests/unit/checkpoint/two.h"

#include <math.h>

static int setup(void **state)
{
    (void)state;
    set_up_two(31, 3, 40, 50, 17);
    return 0;
}

static json_t *diff(uint64_t a, uint64_t b)
{
    struct merr err = {.text = ""};
    struct mck *x, *y;
    json_t *doc;

    assert_int_equal(mck_open(dir, a, &x, &err), 0);
    assert_int_equal(mck_open(dir, b, &y, &err), 0);
    if (mck_diff(x, y, &doc, &err))
        fail_msg("%s", err.text);
    mck_free(x);
    mck_free(y);
    return doc;
}

static json_t *at(json_t *doc, size_t i, const char *key)
{
    return json_object_get(json_array_get(json_object_get(doc, "differences"), i), key);
}

/* Where element e of the tensor of a role lies: rows are cut, pieces of them too. */
static float *element_at(enum mck_role role, uint64_t e)
{
    for (int r = 0; r < two->ranks; r++)
        for (size_t i = 0; i < two->n[r]; i++) {
            const struct mck_buffer *b = &two->buf[r][i];
            uint64_t first = b->off[0] * b->len[1] + b->sub_begin;

            if (b->role == role && e >= first && e < first + buffer_elements(b))
                return (float *)b->data + (e - first);
        }
    fail_msg("no buffer holds element %llu", (unsigned long long)e);
    return NULL;
}

/* The step alone tells two savings of one state apart. */
static void the_same_state_differs_in_its_step_alone(void **state)
{
    json_t *doc;

    (void)state;
    save_two(1, 10, "none");
    save_two(1, 20, "zstd");
    doc = diff(10, 20);
    assert_true(json_is_false(json_object_get(doc, "same")));
    assert_int_equal(json_array_size(json_object_get(doc, "differences")), 0);
    assert_int_equal(json_integer_value(json_object_get(doc, "equal")), 3);
    assert_int_equal(json_array_size(json_object_get(doc, "cursor")), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(doc, "cursor"), 0)), "step");
    json_decref(doc);
    doc = diff(20, 20);
    assert_true(json_is_true(json_object_get(doc, "same")));
    json_decref(doc);
}

static void changed_elements_are_counted_and_the_first_is_named(void **state)
{
    json_t *doc;

    (void)state;
    save_two(1, 10, "none");
    *element_at(MCK_WEIGHT, 853) += 1;
    *element_at(MCK_WEIGHT, 1999) -= 4;
    save_two(1, 20, "none");
    doc = diff(10, 20);
    assert_int_equal(json_integer_value(json_object_get(doc, "equal")), 2);
    assert_int_equal(json_array_size(json_object_get(doc, "differences")), 1);
    assert_string_equal(json_string_value(at(doc, 0, "what")), "values");
    assert_string_equal(json_string_value(at(doc, 0, "role")), "weight");
    assert_int_equal(json_integer_value(at(doc, 0, "different")), 2);
    assert_int_equal(json_integer_value(at(doc, 0, "elements")), 40 * 50);
    assert_int_equal(json_integer_value(at(doc, 0, "first")), 853);
    assert_true(fabs(json_real_value(at(doc, 0, "largest")) - 4) < 1e-4);
    json_decref(doc);
    *element_at(MCK_WEIGHT, 1999) = NAN;
    save_two(1, 30, "none");
    doc = diff(10, 30);
    assert_true(json_is_null(at(doc, 0, "largest")));
    json_decref(doc);
}

static void other_tensors_types_and_shapes_are_named(void **state)
{
    static const char *const want[] = {"type", "only in the first", "shape", "only in the second"};
    json_t *doc;

    (void)state;
    save_two(1, 10, "none");
    for (int r = 0; r < two->ranks; r++)
        for (size_t i = 0; i < two->n[r]; i++) {
            struct mck_buffer *b = &two->buf[r][i];

            if (b->role == MCK_MASTER)
                b->dtype = MCK_I32;
            else if (b->role == MCK_WEIGHT)
                b->role = MCK_EMA; /* comes last */
            else
                b->shape[b->ndim] = b->len[b->ndim] = 1, b->ndim++;
        }
    save_two(1, 20, "none");
    doc = diff(10, 20);
    assert_int_equal(json_array_size(json_object_get(doc, "differences")), COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++)
        assert_string_equal(json_string_value(at(doc, i, "what")), want[i]);
    json_decref(doc);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tear_down_two)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_same_state_differs_in_its_step_alone),
        T(changed_elements_are_counted_and_the_first_is_named),
        T(other_tensors_types_and_shapes_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
