/* Whether the replicas still hold the same weights: memory, a device or a link may have changed a bit of one. */
#include "worker/engine/optim/optim_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/try.h"

#define PART_MIN ((size_t)1 << 18) /* weights; a mebibyte takes a tenth of a millisecond */
#define NAMED 8

void optim_part(size_t n, uint64_t turn, size_t parts, size_t *ret_begin, size_t *ret_end)
{
    size_t size = (n + parts - 1) / parts;

    size = size < PART_MIN ? PART_MIN : size;
    *ret_begin = n == 0 ? 0 : (size_t)(turn % ((n + size - 1) / size)) * size;
    *ret_end = n - *ret_begin < size ? n : *ret_begin + size;
}

int optim_odd_ones(const uint64_t *hash, int n, int *ret)
{
    int most = 0, count = 0, odd = 0;

    for (int i = 0; i < n; i++) { /* who has the majority, if anybody has */
        most = count == 0 ? i : most;
        count += hash[i] == hash[most] ? 1 : -1;
    }
    for (int i = 0; i < n; i++)
        if (hash[i] != hash[most])
            ret[odd++] = i;
    if (odd == 0 || n - odd > n / 2)
        return odd;
    for (int i = 0; i < n; i++)
        ret[i] = i;
    return n;
}

static int rank_of(const struct mesh *m, int i)
{
    return mesh_rank(m, m->tp_index, i % m->cp, i / m->cp, m->pp_index);
}

static int tell(const struct mesh *m, const int *odd, int n, struct optim_odd *ret, struct merr *err)
{
    char ranks[128] = "";
    size_t at = 0;

    ret->rank = rank_of(m, odd[0]);
    ret->alone = n < m->dp * m->cp;
    for (int i = 0; i < n && i < NAMED; i++)
        at += (size_t)snprintf(ranks + at, sizeof(ranks) - at, "%s%d", i > 0 ? ", " : "", rank_of(m, odd[i]));
    if (n > NAMED)
        (void)snprintf(ranks + at, sizeof(ranks) - at, " and %d more", n - NAMED);
    if (ret->alone)
        return merr_set(
            err, -EDOM,
            "the weights of rank %s are not those that the other %d replicas agree on: its device or memory "
            "is suspected",
            ranks, m->dp * m->cp - n);
    return merr_set(err, -EDOM,
                    "the weights of ranks %s are not the same, and no more of them agree than do not: the device or "
                    "memory of one of them is suspected",
                    ranks);
}

/* Goes on with a hash of bytes, mebibyte by mebibyte; of a device's by copies into room, else that is NULL. */
static int hash_bytes(struct optim *o, const void *from, size_t bytes, float *room, uint64_t chain[2], struct merr *err)
{
    const size_t most = PART_MIN * sizeof(*room);
    const char *p = from;

    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < most ? bytes - at : most;
        if (room)
            TRY(o->cfg.k->copy(o->cfg.stream, room, p + at, n, err));
        chain[1] = hash_xxh3(room ? (const void *)room : p + at, n);
        chain[0] = hash_xxh3(chain, 2 * sizeof(*chain));
    }
    return 0;
}

/* Of the weights [begin, end) as this rank holds them; narrow: with all vectors, which are few. */
static int hash_weights(struct optim *o, size_t begin, size_t end, float *room, uint64_t *ret, struct merr *err)
{
    const size_t size = o->cfg.narrow ? kern_size(KERN_BF16) : sizeof(float);
    const char *w = o->cfg.narrow ? o->cfg.matrices : (const void *)o->cfg.weights;
    uint64_t chain[2] = {0, 0};

    TRY(hash_bytes(o, w + begin * size, (end - begin) * size, room, chain, err));
    if (o->cfg.narrow)
        TRY(hash_bytes(o, o->cfg.vectors, o->cfg.params->vector_n * sizeof(float), room, chain, err));
    *ret = chain[0];
    return 0;
}

static int hash_part(struct optim *o, uint64_t turn, size_t parts, uint64_t *ret, struct merr *err)
{
    float *room = o->cfg.k->device ? malloc(PART_MIN * sizeof(*room)) : NULL;
    size_t begin, end;
    int r;

    if (o->cfg.k->device && !room)
        return merr_set(err, -ENOMEM, "no memory for weights on their way from the device");
    optim_part(o->cfg.params->weight_n, turn, parts, &begin, &end);
    r = hash_weights(o, begin, end, room, ret, err);
    free(room);
    return r;
}

int optim_check_replicas(struct optim *o, uint64_t turn, size_t parts, struct optim_odd *ret, struct merr *err)
{
    const struct mesh *m = &o->cfg.mesh;
    uint64_t own[COMM_RANKS_MAX], all[COMM_RANKS_MAX];
    int odd[COMM_RANKS_MAX], n;

    if (m->dp * m->cp == 1)
        return 0;
    TRY(o->cfg.k->stream_sync(o->cfg.stream, err));
    TRY(hash_part(o, turn, parts, &own[m->cp_index], err));
    if (o->cfg.cp)
        TRY(comm_all_gather(o->cfg.cp, &own[m->cp_index], sizeof(*own), own, err));
    memcpy(all + (size_t)m->dp_index * m->cp, own, m->cp * sizeof(*own));
    if (o->cfg.dp)
        TRY(comm_all_gather(o->cfg.dp, all + (size_t)m->dp_index * m->cp, m->cp * sizeof(*own), all, err));
    n = optim_odd_ones(all, m->dp * m->cp, odd);
    return n > 0 ? tell(m, odd, n, ret, err) : 0;
}
