/* Packets that come to a process that is root: what is not right is not acted upon. */
#include "worker/helper/helper.h"

#include "tests/unit/test.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct helper_call call(int kind, const char *user, const char *keep)
{
    struct helper_call c = {.kind = kind, .number = 15};

    memcpy(c.user, user, strlen(user) + 1);
    memcpy(c.keep, keep, strlen(keep) + 1);
    return c;
}

static void only_whole_packets_with_their_descriptors_are_taken(void **state)
{
    static const struct {
        int kind;
        const char *keep;
        int n_fds;
        bool good;
    } cases[] = {
        {HELPER_GIVE, "", 1, true},
        {HELPER_GIVE, "", 0, false},
        {HELPER_GIVE_GROUP, "", 2, false},
        {HELPER_GUARD, "", 1, true},
        {HELPER_SIGNAL, "", 0, true},
        {HELPER_SIGNAL, "", 1, false},
        {HELPER_START, "", 2, true},
        {HELPER_START, "", 1, false},
        {HELPER_START, "", 3, false},
        {HELPER_START, "", 4, false},
        {HELPER_START, "", 5, true},
        {HELPER_START, "/dev/shm/muster-1/j1", 5, true},
        {HELPER_START, "", HELPER_FDS, true},
        {HELPER_START, "", HELPER_FDS + 1, false},
        {HELPER_START, "/etc", 5, false},
        {HELPER_START, "/dev/shm/", 5, true},
        {HELPER_START, "/dev/shm/../../etc", 5, false},
        {HELPER_START, "/dev/shm/a/../../../etc", 5, false},
        {HELPER_START, "/dev/shm//etc", 5, false},
        {HELPER_DONE, "", 0, false},
        {0, "", 1, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct helper_call c = call(cases[i].kind, "alice", cases[i].keep);

        assert_int_equal(helper_check(&c, sizeof(c), cases[i].n_fds), cases[i].good);
        assert_false(helper_check(&c, sizeof(c) - 1, cases[i].n_fds));
    }
}

static void texts_without_an_end_and_numbers_that_are_no_signal_are_refused(void **state)
{
    struct helper_call c = call(HELPER_GIVE, "alice", "");

    (void)state;
    memset(c.user, 'a', sizeof(c.user));
    assert_false(helper_check(&c, sizeof(c), 1));
    c = call(HELPER_START, "alice", "/dev/shm/x");
    memset(c.keep + 9, 'x', sizeof(c.keep) - 9);
    assert_false(helper_check(&c, sizeof(c), 5));
    c = call(HELPER_SIGNAL, "", "");
    c.number = 0;
    assert_false(helper_check(&c, sizeof(c), 0));
    c.number = -9;
    assert_false(helper_check(&c, sizeof(c), 0));
    c.number = 65;
    assert_false(helper_check(&c, sizeof(c), 0));
}

static void who_sends_too_little_or_hangs_up_is_not_listened_to(void **state)
{
    struct helper_call c = call(HELPER_SIGNAL, "", ""), got;
    int wires[2], fds[HELPER_FDS];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, wires), 0);
    assert_int_equal(send(wires[0], &c, sizeof(c), 0), sizeof(c));
    assert_true(helper_receive(wires[1], &got, fds));
    assert_int_equal(got.number, 15);
    assert_int_equal(fds[0], -1);
    assert_int_equal(send(wires[0], &c, 5, 0), 5);
    assert_false(helper_receive(wires[1], &got, fds));
    (void)close(wires[0]);
    assert_false(helper_receive(wires[1], &got, fds));
    helper_tell(wires[1], (struct helper_told){.kind = HELPER_DONE}); /* nobody is there: no harm */
    (void)close(wires[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_packets_with_their_descriptors_are_taken),
        cmocka_unit_test(texts_without_an_end_and_numbers_that_are_no_signal_are_refused),
        cmocka_unit_test(who_sends_too_little_or_hangs_up_is_not_listened_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
