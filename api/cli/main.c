/* muster - the command line of Muster */
#include <signal.h>

#include "api/cli/cli.h"

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_DFL); /* `muster list | head` just ends */
    return cli_main(argc, argv);
}
