/* `muster run` before anything runs: what it refuses, by which words and status. */
#include "tests/unit/worker/agent/command_line.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "worker/agent/solo.h"

static void file(const char *name, const char *text)
{
    assert_int_equal(io_publish_file(at(name), text, strlen(text), 0600, NULL), 0);
}

static void what_cannot_run_says_why(void **state)
{
    static const struct {
        const char *args;
        int status;
        const char *says;
    } table[] = {
        {"", 2, "--dir"},
        {"@/good.yaml", 2, "--dir"},
        {"--dir @/d", 2, "FILE"},
        {"@/good.yaml @/good.yaml --dir @/d", 2, "FILE"},
        {"@/good.yaml --dir @/d --devices 0", 2, "devices"},
        {"@/good.yaml --dir @/d --devices 257", 2, "devices"},
        {"@/good.yaml --dir @/d --threads x", 2, "threads"},
        {"@/none.yaml --dir @/d", 1, "none.yaml"},
        {"@/bad.yaml --dir @/d", 1, "/devices/min"},
        {"@/bad.yaml --dir @/d", 1, "/nonsense"}, /* all that is wrong with it */
        {"@/good.yaml --dir @/good.yaml/d", 1, "cannot make folder"},
        {"@/good.yaml --dir @/used", 1, "is in use by another muster run"},
    };
    char said[4096];
    int fd;

    (void)state;
    file("good.yaml", "name: a\ndevices: {min: 1, max: 1}\ncommand: {argv: [\"true\"]}\n");
    file("bad.yaml", "name: a\ndevices: {min: 0, max: 1}\nnonsense: 1\ncommand: {argv: [\"true\"]}\n");
    assert_int_equal(mkdir(at("used"), 0700), 0);
    fd = open(at("used"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    for (size_t i = 0; i < COUNT(table); i++) {
        int status = command_line(solo_main, "muster-agent run", table[i].args, said);

        if (status != table[i].status || !strstr(said, table[i].says))
            fail_msg("%s: %d, %s", table[i].args, status, said);
    }
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_cannot_run_says_why)};

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
