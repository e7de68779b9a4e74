/* What the agent refuses before it speaks to a server, by which words and status. */
#include "tests/unit/worker/agent/command_line.h"

#include <sys/stat.h>

#include "worker/agent/agent.h"

#define SERVER "--server http://127.0.0.1:1 "

static void file(const char *name, const char *text, mode_t mode)
{
    assert_int_equal(io_publish_file(at(name), text, strlen(text), mode, NULL), 0);
    assert_int_equal(chmod(at(name), mode), 0);
}

static void a_wrong_command_line_says_what_is_wrong(void **state)
{
    static const struct {
        const char *args;
        int status;
        const char *says;
    } table[] = {
        {"", 2, "--server"},
        {SERVER, 2, "--state"},
        {SERVER "--state @/s --nonsense", 2, "nonsense"},
        {SERVER "--state @/s --threads 0", 2, "threads"},
        {SERVER "--state @/s --health-every 0", 2, "health-every"},
        {SERVER "--state @/s --log-level loud", 2, "log-level"},
        {SERVER "--state @/s --memory-limit 0", 2, "memory-limit"},
        {SERVER "--state @/s --node a/b", 2, "is no node's name"},
        {SERVER "--state @/s --node ..a,b", 2, "is no node's name"},
        {SERVER "--state @/s --devices tpu:1", 2, "tpu"},
        {SERVER "--state @/s --devices cpu:0", 2, "cpu:0"},
        {SERVER "--state @/s --devices cpu:1 --nic carrier-pigeon", 2, "carrier-pigeon"},
        {SERVER "--state @/s --devices cpu:1 --token-file @/token --join abc", 2, "does not go with --join"},
        {SERVER "--state @/s --devices cpu:1 --token-file @/token --join-file @/code", 2, "does not go with --join"},
        {SERVER "--state @/s --devices cpu:1 --join abc --join-file @/code", 2, "not both"},
        {SERVER "--state @/s --devices cpu:1 --token-file @/none", 1, "cannot use the token of --token-file"},
        {SERVER "--state @/s --devices cpu:1 --token-file @/seen", 3, "cannot use the token of --token-file"},
        {SERVER "--state @/s --devices cpu:1 --join-file @/seen", 3, "cannot use the code of --join-file"},
        {SERVER "--state @/token/s --devices cpu:1", 1, "cannot make folder"},
        {SERVER "--state @/open --devices cpu:1 --token-file @/token", 3, "@/open"},
        {SERVER "--state @/s --devices cpu:1 --token-file @/token --health-check @/token", 1,
         "cannot run the health program"},
    };
    char said[4096];

    (void)state;
    file("token", "secret\n", 0600);
    file("seen", "secret\n", 0644); /* by all users of the machine */
    assert_int_equal(mkdir(at("open"), 0777), 0);
    assert_int_equal(chmod(at("open"), 0777), 0);
    for (size_t i = 0; i < COUNT(table); i++) {
        int status = command_line(agent_main, "muster-agent", table[i].args, said);
        const char *says = table[i].says[0] == '@' ? at(table[i].says + 2) : table[i].says;

        if (status != table[i].status || !strstr(said, says))
            fail_msg("%s: %d, %s", table[i].args, status, said);
    }
}

static void help_and_version_need_nothing_else(void **state)
{
    char said[4096];

    (void)state;
    assert_int_equal(command_line(agent_main, "muster-agent", "--help", said), 0);
    assert_string_equal(said, "");
    assert_int_equal(command_line(agent_main, "muster-agent", "--version", said), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_command_line_says_what_is_wrong),
        cmocka_unit_test(help_and_version_need_nothing_else),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
