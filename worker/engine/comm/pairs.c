#include "worker/engine/comm/pairs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/try.h"
#include "worker/engine/comm/cost.h"

#define SIZES 4
#define TIMES 2         /* of each size, the faster counts */
#define WARM_BYTES 4096 /* first: it opens the connection */
#define TAG 1

static const size_t size[SIZES] = {64u << 10, 256u << 10, 1u << 20, 4u << 20};

struct pairs {
    struct comm_group *g;
    char *out, *in; /* room for the largest */
    double room_us; /* of a pair */
};

int pairs_rounds(int n)
{
    return n + n % 2 - 1;
}

int pairs_partner(int n, int i, int k)
{
    int rounds = pairs_rounds(n), other; /* members go round, the last of an even number stands still */

    if (i == rounds)
        return k * (rounds + 1) / 2 % rounds; /* whom the round would have meet itself */
    other = (k - i % rounds + rounds) % rounds;
    other = other == i ? rounds : other;
    return other < n ? other : -1;
}

/* Send and receive at once. Both requests are over when it returns, whatever it comes to. */
static int swap(struct pairs *p, int peer, const void *out, void *in, size_t bytes, struct merr *err)
{
    struct comm_request *send = NULL, *recv = NULL;
    int r = comm_irecv(p->g, peer, TAG, in, bytes, &recv, err), sent, got;

    if (r == 0)
        r = comm_isend(p->g, peer, TAG, out, bytes, &send, err);
    sent = comm_wait(send, r == 0 ? err : NULL);
    got = comm_wait(recv, r == 0 && sent == 0 ? err : NULL);
    return r != 0 ? r : sent != 0 ? sent : got;
}

/* How long a swap takes, the same number on both sides: the longer of theirs. */
static int time_swap(struct pairs *p, int peer, size_t bytes, double *ret_us, struct merr *err)
{
    int64_t began = clock_mono_us();
    double mine, theirs;

    TRY(swap(p, peer, p->out, p->in, bytes, err));
    mine = (double)(clock_mono_us() - began);
    TRY(swap(p, peer, &mine, &theirs, sizeof(mine), err));
    *ret_us = mine > theirs ? mine : theirs;
    return 0;
}

static int measure(struct pairs *p, int peer, double *ret, struct merr *err)
{
    double us[SIZES], bytes[SIZES], took, left = p->room_us, least;
    struct cost_line line;
    int n = 0;

    TRY(time_swap(p, peer, WARM_BYTES, &took, err));
    while (n < SIZES && (n == 0 || 4 * TIMES * us[n - 1] < left)) {
        bytes[n] = (double)size[n];
        for (int i = 0; i < TIMES; i++) {
            TRY(time_swap(p, peer, size[n], &took, err));
            left -= took;
            us[n] = i == 0 || took < us[n] ? took : us[n];
        }
        n++;
    }
    line = cost_fit(bytes, us, n);
    least = us[n - 1] / bytes[n - 1] / 2; /* of long messages the fixed part is no half: that is noise */
    *ret = 1e6 / (line.byte_us > least ? line.byte_us : least > 0 ? least : 1e-6);
    return 0;
}

int pairs_measure(struct comm_group *g, double *ret, struct merr *err)
{
    int n = comm_group_size(g), me = comm_group_index(g), rounds = pairs_rounds(n), r = 0;
    struct pairs p = {.g = g, .out = calloc(1, size[SIZES - 1]), .in = malloc(size[SIZES - 1])};

    p.room_us = rounds * PAIRS_PAIR_US > PAIRS_ALL_US ? PAIRS_ALL_US / rounds : PAIRS_PAIR_US;
    if (!p.out || !p.in)
        r = merr_set(err, -ENOMEM, "no memory to measure links among %d nodes", n);
    ret[me] = 0;
    for (int k = 0; k < rounds && r == 0; k++) {
        int peer = pairs_partner(n, me, k);

        if (peer >= 0)
            r = measure(&p, peer, &ret[peer], err);
    }
    free(p.out);
    free(p.in);
    return r;
}
