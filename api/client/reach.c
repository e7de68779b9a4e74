#include "api/client/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define V4(a, b, c, bits)                                                                                              \
    {                                                                                                                  \
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, 0}, 96 + (bits)                                            \
    }
#define LOOPBACK_V4 V4(127, 0, 0, 8)
#define LOOPBACK_V6                                                                                                    \
    {                                                                                                                  \
        {[15] = 1}, 128                                                                                                \
    }

/* What is not of the public Internet: the special purpose registries of IPv4 and IPv6. */
static const struct reach_net special[] = {
    LOOPBACK_V4,
    LOOPBACK_V6,
    V4(0, 0, 0, 8),                 /* this network */
    V4(10, 0, 0, 8),                /* private */
    V4(100, 64, 0, 10),             /* of carriers */
    V4(169, 254, 0, 16),            /* of a link: what clouds tell their machines */
    V4(172, 16, 0, 12),             /* private */
    V4(192, 0, 0, 24),              /* of protocols */
    V4(192, 0, 2, 24),              /* documentation */
    V4(192, 88, 99, 24),            /* relays of IPv6 */
    V4(192, 168, 0, 16),            /* private */
    V4(198, 18, 0, 15),             /* benchmarks */
    V4(198, 51, 100, 24),           /* documentation */
    V4(203, 0, 113, 24),            /* documentation */
    V4(224, 0, 0, 3),               /* multicast, reserved, broadcast: 224.0.0.0/3 */
    {{0}, 96},                      /* none, and IPv4 in its old form */
    {{0, 0x64, 0xff, 0x9b}, 32},    /* translated to IPv4 */
    {{1}, 8},                       /* discarded */
    {{0x20, 0x01}, 23},             /* of protocols */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x20, 0x02}, 16},             /* IPv4 in IPv6 */
    {{0x3f, 0xff}, 20},             /* documentation */
    {{0xfc}, 7},                    /* private */
    {{0xfe}, 8},                    /* of a link, of a site */
    {{0xff}, 8},                    /* multicast */
};

static bool is_in(const struct reach_net *net, const unsigned char a[16])
{
    unsigned whole = net->bits / 8, rest = net->bits % 8;

    return memcmp(net->address, a, whole) == 0 && (rest == 0 || (net->address[whole] ^ a[whole]) >> (8 - rest) == 0);
}

static bool is_among(const struct reach_net *nets, size_t n, const unsigned char a[16])
{
    for (size_t i = 0; i < n; i++)
        if (is_in(&nets[i], a))
            return true;
    return false;
}

static void of_v4(const void *four, unsigned char ret[16])
{
    memset(ret, 0, 10);
    ret[10] = ret[11] = 0xff;
    memcpy(ret + 12, four, 4);
}

static bool bytes_of(const struct sockaddr *a, unsigned char ret[16])
{
    if (a->sa_family == AF_INET) {
        struct sockaddr_in in;

        memcpy(&in, a, sizeof(in));
        of_v4(&in.sin_addr, ret);
    } else if (a->sa_family == AF_INET6) {
        struct sockaddr_in6 in;

        memcpy(&in, a, sizeof(in));
        memcpy(ret, &in.sin6_addr, 16);
    }
    return a->sa_family == AF_INET || a->sa_family == AF_INET6;
}

static int read_one(const char *text, struct reach_net *ret, struct merr *err)
{
    unsigned char four[4];
    char address[REACH_TEXT_MAX];
    size_t n = strcspn(text, "/");
    unsigned most = 128, bits;
    char after;

    if (n >= sizeof(address))
        goto bad;
    memcpy(address, text, n);
    address[n] = '\0';
    if (inet_pton(AF_INET, address, four) == 1) {
        of_v4(four, ret->address);
        most = 32;
    } else if (inet_pton(AF_INET6, address, ret->address) != 1) {
        goto bad;
    }
    bits = most;
    if (text[n] && (text[n + 1] < '0' || text[n + 1] > '9' || sscanf(text + n, "/%3u%c", &bits, &after) != 1))
        goto bad;
    if (bits > most)
        goto bad;
    ret->bits = bits + 128 - most;
    return 0;
bad:
    return merr_set(err, -EINVAL, "'%.80s' is no network; want one such as 10.1.0.0/16 or fd00::/8", text);
}

int reach_read(const char *list, struct reach *ret, struct merr *err)
{
    struct reach all = {.n = 0};

    for (size_t len; list && *list; list += len + (list[len] == ',')) {
        char one[REACH_TEXT_MAX + 8];
        int r;

        len = strcspn(list, ",");
        if (all.n == REACH_NETS_MAX)
            return merr_set(err, -EINVAL, "more than %d networks are named", REACH_NETS_MAX);
        (void)snprintf(one, sizeof(one), "%.*s", (int)len, list);
        r = read_one(one, &all.v[all.n], err);
        if (r < 0)
            return r;
        all.n++;
    }
    *ret = all;
    return 0;
}

bool reach_allows(const struct reach *r, const struct sockaddr *a)
{
    unsigned char bytes[16];

    return bytes_of(a, bytes) &&
           (is_among(r->v, r->n, bytes) || !is_among(special, sizeof(special) / sizeof(special[0]), bytes));
}

bool reach_is_loopback(const struct sockaddr *a)
{
    static const struct reach_net loopback[] = {LOOPBACK_V4, LOOPBACK_V6};
    unsigned char bytes[16];

    return bytes_of(a, bytes) && is_among(loopback, 2, bytes);
}

void reach_print(const struct sockaddr *a, char ret[REACH_TEXT_MAX])
{
    unsigned char bytes[16];
    bool known = bytes_of(a, bytes);

    if (!known || !inet_ntop(a->sa_family, a->sa_family == AF_INET ? bytes + 12 : bytes, ret, REACH_TEXT_MAX))
        (void)snprintf(ret, REACH_TEXT_MAX, "?");
}
