/* muster profile: what was measured of classes of devices. */
#include <stdio.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"

int profile_run(struct cli *c)
{
    const char *const argv[] = {"muster-train",
                                "--profile",
                                "--devices",
                                cli_option(c, "devices"),
                                "--threads",
                                cli_option(c, "threads"),
                                cli_option(c, "quick") ? "--quick" : NULL,
                                NULL};

    return cli_exec("muster-train", argv);
}
