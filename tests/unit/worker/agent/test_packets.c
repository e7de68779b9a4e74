#include "tests/unit/test.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/agent/packets.h"

static void what_an_end_has_sent_last_is_read_also_when_it_has_not_read_all(void **state)
{
    struct packets here, there;
    char text[1 + FRAME_MAX];
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    packets_init(&here, fds[0]);
    packets_init(&there, fds[1]);
    assert_int_equal(packets_send(&here, SESSION_USED, "1234", 4), 0);
    assert_int_equal(packets_send(&there, SESSION_EXIT, "12345678", 8), 0);
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(packets_receive(&here, text), 9);
    assert_int_equal(text[0], SESSION_EXIT);
    assert_int_equal(packets_receive(&here, text), -EPIPE);
    packets_clear(&here);
    packets_clear(&there);
    (void)close(fds[0]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_end_has_sent_last_is_read_also_when_it_has_not_read_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
