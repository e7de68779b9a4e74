/* reach - to which addresses this host calls on behalf of others
 *
 * Whoever names a URL for the server to call makes the server's calls theirs. So an address is looked at where the
 * connection is made, after the name was resolved: what is not of the public Internet is refused, unless its operator
 * has named its network. Pure.
 */
#ifndef MUSTER_API_CLIENT_REACH_H
#define MUSTER_API_CLIENT_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/merr.h"

#define REACH_NETS_MAX 32
#define REACH_TEXT_MAX 64

struct reach_net { /* IPv4 as IPv4 in IPv6 */
    unsigned char address[16];
    unsigned bits;
};

struct reach { /* networks that are allowed besides the public ones */
    struct reach_net v[REACH_NETS_MAX];
    size_t n;
};

/* Networks of a list, such as "10.1.0.0/16,fd00::/8,192.168.3.7"; NULL: none. 0; -EINVAL with words. */
int reach_read(const char *list, struct reach *ret, struct merr *err);

/* Whether it may be called. Addresses of another family may not. */
bool reach_allows(const struct reach *r, const struct sockaddr *a);

/* Whether it is of this host's loopback. */
bool reach_is_loopback(const struct sockaddr *a);

/* An address in words. */
void reach_print(const struct sockaddr *a, char ret[REACH_TEXT_MAX]);

#endif
