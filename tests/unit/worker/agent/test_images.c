/* Started programs that wait for a rank: a script stands for the shim. */
#include "worker/agent/images.h"

#include "tests/unit/folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SECOND INT64_C(1000000)

static struct images *begin(const char *script, char self[PATH_MAX])
{
    struct images *m;
    FILE *f;

    (void)snprintf(self, PATH_MAX, "%s", at("agent"));
    f = fopen(self, "w");
    assert_non_null(f);
    (void)fprintf(f, "#!/bin/sh\n%s\n", script);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(self, 0700), 0);
    m = images_new(&(struct images_cfg){.self = self, .train = "train", .root = top, .threads = 1});
    assert_non_null(m);
    return m;
}

static void one_is_kept_while_it_is_wanted_and_ten_seconds_longer(void **state)
{
    char self[PATH_MAX];
    struct images *m = begin("exec sleep 100", self);
    const int slots[] = {1, 3, IMAGES_MAX, -1};

    (void)state;
    images_settle(m, slots, 4, 100 * SECOND);
    assert_true(images_has(m, 1) && images_has(m, 3));
    assert_false(images_has(m, 0) || images_has(m, IMAGES_MAX) || images_has(m, -1));
    images_settle(m, slots, 1, 109 * SECOND);
    assert_true(images_has(m, 1) && images_has(m, 3));
    images_settle(m, slots, 1, 110 * SECOND);
    assert_true(images_has(m, 1));
    assert_false(images_has(m, 3));
    images_free(m);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left of any */
}

static void one_that_is_not_handed_on_is_ended_and_the_next_comes_once_its_rank_has_begun(void **state)
{
    char self[PATH_MAX];
    struct images *m = begin("exec sleep 100", self);
    struct launch_image got = {.pid = 0};
    const int slot = 0;

    (void)state;
    images_settle(m, &slot, 1, 100 * SECOND);
    assert_true(images_take(m, 0, &got, 101 * SECOND));
    assert_false(images_take(m, 0, &(struct launch_image){.pid = 0}, 101 * SECOND));
    images_taken(&got, 1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    images_settle(m, &slot, 1, 105 * SECOND);
    assert_false(images_has(m, 0));
    images_settle(m, &slot, 1, 111 * SECOND);
    assert_true(images_has(m, 0));
    images_free(m);
}

static void one_that_ends_by_itself_is_given_to_no_rank_and_is_tried_again_after_a_minute(void **state)
{
    char self[PATH_MAX];
    struct images *m = begin("exit 1", self);
    struct launch_image got = {.pid = 0};
    const int slot = 0;
    siginfo_t info;

    (void)state;
    images_settle(m, &slot, 1, 100 * SECOND);
    assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
    images_settle(m, &slot, 1, 105 * SECOND);
    assert_false(images_has(m, 0));
    assert_false(images_take(m, 0, &got, 106 * SECOND));
    images_settle(m, &slot, 1, 150 * SECOND);
    assert_false(images_has(m, 0));
    images_settle(m, &slot, 1, 165 * SECOND);
    assert_true(images_has(m, 0));
    images_free(m);
}

static void none_are_kept_where_there_are_none(void **state)
{
    (void)state;
    images_settle(NULL, NULL, 0, 0);
    assert_false(images_has(NULL, 0));
    assert_false(images_take(NULL, 0, NULL, 0));
    images_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_kept_while_it_is_wanted_and_ten_seconds_longer),
        cmocka_unit_test(one_that_is_not_handed_on_is_ended_and_the_next_comes_once_its_rank_has_begun),
        cmocka_unit_test(one_that_ends_by_itself_is_given_to_no_rank_and_is_tried_again_after_a_minute),
        cmocka_unit_test(none_are_kept_where_there_are_none),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
