#include "worker/agent/launch.h"

#include "tests/unit/test.h"

#include <stdlib.h>

static void variables_of_the_spec_come_out_of_their_seal_and_others_as_they_are(void **state)
{
    char *const sealed[] = {"PATH=/bin", "%LD_PRELOAD=/x.so", "%A=%B", "%%ODD=1", "%", "", NULL};
    static const char *const want[] = {"PATH=/bin", "LD_PRELOAD=/x.so", "A=%B", "%ODD=1", "", "", NULL};
    char **v = launch_unseal(sealed);

    (void)state;
    assert_non_null(v);
    for (size_t i = 0; want[i]; i++)
        assert_string_equal(v[i], want[i]);
    assert_null(v[6]);
    free(v);
}

static void an_empty_environment_stays_empty(void **state)
{
    char *const none[] = {NULL};
    char **v = launch_unseal(none);

    (void)state;
    assert_non_null(v);
    assert_null(v[0]);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_the_spec_come_out_of_their_seal_and_others_as_they_are),
        cmocka_unit_test(an_empty_environment_stays_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
