#include "base/parcel.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const args[] = {(char *)(uintptr_t) "a", (char *)(uintptr_t) "", (char *)(uintptr_t) "two words", NULL};
static char *const env[] = {(char *)(uintptr_t) "X=1", NULL};

static void forget(struct parcel *p)
{
    free(p->args);
    free(p->env);
    free(p->text);
    for (int i = 0; i < PARCEL_FDS; i++)
        if (p->fds[i] >= 0)
            (void)close(p->fds[i]);
}

static void words_and_descriptors_arrive_as_they_were(void **state)
{
    struct parcel got;
    int pair[2], out[2];
    char word[8] = "";

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(parcel_send(pair[0], args, env, &out[1], 1), 0);
    (void)close(out[1]);
    assert_int_equal(parcel_receive(pair[1], &got), 0);
    assert_int_equal(got.n_args, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(got.args[i], args[i]);
    assert_null(got.args[3]);
    assert_string_equal(got.env[0], "X=1");
    assert_null(got.env[1]);
    assert_int_equal(got.fds[1], -1);
    assert_int_equal(write(got.fds[0], "here", 4), 4);
    assert_int_equal(read(out[0], word, sizeof(word)), 4);
    assert_string_equal(word, "here");
    forget(&got);
    (void)close(out[0]);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void who_waits_hears_that_the_other_end_has_gone_also_within_a_parcel(void **state)
{
    const struct {
        uint32_t n_args, n_env, bytes;
    } head = {1, 0, 100};
    struct parcel got = {.n_args = 7};

    (void)state;
    for (size_t sent = 0; sent <= sizeof(head); sent += sizeof(head) / 2) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        assert_int_equal(send(pair[0], &head, sent, 0), sent);
        (void)close(pair[0]);
        assert_int_equal(parcel_receive(pair[1], &got), sent > 0 && sent < sizeof(head) ? -EPROTO : -EPIPE);
        assert_int_equal(got.n_args, 7);
        (void)close(pair[1]);
    }
}

static void counts_that_do_not_fit_their_bytes_are_refused(void **state)
{
    static const struct {
        uint32_t n_args, n_env, bytes;
        char text[4];
    } bad[] = {{2, 0, 2, "a"}, {1, 0, 4, "a"}, {5, 0, 4, "a"}, {1, 0, PARCEL_BYTES + 1, "a"}, {0, UINT32_MAX, 4, "a"}};
    struct parcel got;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        assert_int_equal(send(pair[0], &bad[i], sizeof(bad[i]), 0), sizeof(bad[i]));
        (void)close(pair[0]);
        assert_int_equal(parcel_receive(pair[1], &got), -EPROTO);
        (void)close(pair[1]);
    }
}

static void nobody_is_waited_for_who_has_gone(void **state)
{
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    (void)close(pair[1]);
    assert_int_equal(parcel_send(pair[0], args, env, NULL, 0), -EPIPE);
    (void)close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_descriptors_arrive_as_they_were),
        cmocka_unit_test(who_waits_hears_that_the_other_end_has_gone_also_within_a_parcel),
        cmocka_unit_test(counts_that_do_not_fit_their_bytes_are_refused),
        cmocka_unit_test(nobody_is_waited_for_who_has_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
