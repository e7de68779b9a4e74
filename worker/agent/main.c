/* muster-agent: one per node. See docs/protocol.md; `muster-agent --help` lists what it takes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker/agent/agent.h"
#include "worker/agent/order.h"
#include "worker/agent/prepare.h"
#include "worker/agent/solo.h"
#include "worker/agent/session.h"
#include "worker/agent/shim.h"
#include "worker/agent/trial.h"

/* The path of this program and that of muster-train beside it. */
static int find_programs(char *self, char *train)
{
    ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    const char *slash;

    if (n <= 0)
        return -1;
    self[n] = '\0';
    slash = strrchr(self, '/');
    (void)snprintf(train, PATH_MAX, "%.*s/muster-train", (int)(slash - self), self);
    return 0;
}

int main(int argc, char **argv)
{
    static char self[PATH_MAX], train[PATH_MAX];

    if (argc > 1 && strcmp(argv[1], "shim") == 0)
        return shim_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "session") == 0)
        return session_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "rank") == 0)
        return order_main();
    if (argc > 1 && strcmp(argv[1], "prepare") == 0)
        return prepare_main(argc - 1, argv + 1);
    if (find_programs(self, train) < 0) {
        fprintf(stderr, "muster-agent: cannot tell where this program lies: %s; is /proc mounted?\n", strerror(errno));
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "trial") == 0)
        return trial_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return solo_main(argc - 1, argv + 1, self, train);
    return agent_main(argc, argv, self, train);
}
