#include "worker/agent/launch.h"

#include "tests/unit/test.h"

static void variables_of_the_spec_come_out_of_their_seal_and_others_as_they_are(void **state)
{
    char path[] = "PATH=/bin",
         preload[] = "\xcc"
                     "D_PRELOAD=/x.so",
         under[] = "\xdf"
                   "A=\xc3\xa9",
         empty[] = "";
    char *env[] = {path, preload, under, empty, NULL};

    (void)state;
    launch_unseal(env);
    assert_string_equal(env[0], "PATH=/bin");
    assert_string_equal(env[1], "LD_PRELOAD=/x.so");
    assert_string_equal(env[2], "_A=\xc3\xa9"); /* values are left alone */
    assert_string_equal(env[3], "");
    launch_unseal(env);
    assert_string_equal(env[1], "LD_PRELOAD=/x.so");
}

static void an_empty_environment_stays_empty(void **state)
{
    char *none[] = {NULL};

    (void)state;
    launch_unseal(none);
    assert_null(none[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_the_spec_come_out_of_their_seal_and_others_as_they_are),
        cmocka_unit_test(an_empty_environment_stays_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
