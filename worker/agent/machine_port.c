#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/io.h"
#include "worker/agent/machine.h"

int machine_port_free(const struct machine *h, int port, struct merr *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    IO_CLOSE_AUTO int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1; /* one of which only closed connections are left is free */

    (void)h;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
        return merr_errno(err, -errno, "cannot have port %d of this node", port);
    return 0;
}
