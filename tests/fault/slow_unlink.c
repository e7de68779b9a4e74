/* Loaded before the C library: unlinkat() waits while the file that SLOW_UNLINK names is there, as on a disk that takes
 * very long over many files. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int unlinkat(int at, const char *name, int flags)
{
    const char *hold = getenv("SLOW_UNLINK");

    while (hold && access(hold, F_OK) == 0)
        (void)poll(NULL, 0, 5);
    return (int)syscall(SYS_unlinkat, at, name, flags);
}
