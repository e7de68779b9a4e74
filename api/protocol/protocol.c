#include "api/protocol/protocol.h"

#include <errno.h>

int protocol_check(int version, const char *what, struct merr *err)
{
    if (version >= PROTOCOL_OLDEST && version <= PROTOCOL_VERSION)
        return 0;
    return merr_set(err, -EPROTO,
                    "%s speaks version %d of the protocol, this program versions %d to %d: install the same release of "
                    "Muster on all nodes, the server's first",
                    what, version, PROTOCOL_OLDEST, PROTOCOL_VERSION);
}
