#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "server/cluster/classes.h"

static void a_class_keeps_its_number_and_there_are_so_many(void **state)
{
    static struct classes k;
    char name[16];

    (void)state;
    assert_int_equal(classes_find(&k, "c0"), CLASSES_MAX);
    for (int i = 0; i < CLASSES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "c%d", i);
        assert_int_equal(classes_add(&k, name), i);
        assert_int_equal(classes_add(&k, name), i);
    }
    assert_int_equal(classes_add(&k, "one more"), CLASSES_MAX);
    assert_int_equal(classes_find(&k, "one more"), CLASSES_MAX);
    assert_int_equal(classes_find(&k, "c63"), 63);
}

static void a_spec_may_use_the_classes_that_it_names_and_some_have_had(void **state)
{
    struct job_spec spec = {.devices = {.classes = {.n = 0}}};
    struct classes k = {.n = 0};
    uint64_t mask;

    (void)state;
    memcpy(spec.devices.classes.v[0], "b", 2);
    memcpy(spec.devices.classes.v[1], "gone", 5);
    (void)classes_add(&k, "a");
    (void)classes_add(&k, "b");
    assert_true(classes_of_spec(&k, &spec, &mask));
    assert_true(mask == CLASSES_ANY);
    spec.devices.classes.n = 1;
    assert_true(classes_of_spec(&k, &spec, &mask));
    assert_int_equal(mask, 2);
    spec.devices.classes.n = 2;
    assert_false(classes_of_spec(&k, &spec, &mask));
    assert_int_equal(mask, 2);
}

static void training_leaves_out_classes_without_kernels_and_jobs_those_that_are_too_small(void **state)
{
    struct classes k = {.n = 3, .command = 4, .memory_mib = {1000, 0, 500}, .threads = {2, 8, 0}};

    (void)state;
    assert_int_equal(classes_usable(&k, JOB_TRAIN, 7), 3);
    assert_int_equal(classes_usable(&k, JOB_COMMAND, 7), 7);
    assert_int_equal(classes_roomy(&k, 7, 0, 0), 7);
    assert_int_equal(classes_roomy(&k, 7, 500, 2), 7);
    assert_int_equal(classes_roomy(&k, 7, 501, 2), 3);
    assert_int_equal(classes_roomy(&k, 7, 1001, 2.5), 2);
    assert_int_equal(classes_roomy(&k, 7, 0, 9), 4); /* a class that tells nothing takes what comes */
}

static void a_speed_is_learned_by_precision_and_the_news_have_their_weight(void **state)
{
    struct classes k = {.n = 2};

    (void)state;
    assert_true(classes_speed(&k, 1, false) == 1);
    classes_learn_speed(&k, 1, false, 3, 0.25);
    assert_true(k.learned);
    assert_true(classes_speed(&k, 1, false) == 3); /* the first is taken whole */
    classes_learn_speed(&k, 1, false, 5, 0.25);
    assert_true(classes_speed(&k, 1, false) == 3.5);
    assert_true(classes_speed(&k, 1, true) == 1);
    assert_true(classes_speed(&k, 0, false) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_keeps_its_number_and_there_are_so_many),
        cmocka_unit_test(a_spec_may_use_the_classes_that_it_names_and_some_have_had),
        cmocka_unit_test(training_leaves_out_classes_without_kernels_and_jobs_those_that_are_too_small),
        cmocka_unit_test(a_speed_is_learned_by_precision_and_the_news_have_their_weight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
