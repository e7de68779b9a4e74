#include "worker/engine/recover/rebuild.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/snapshot/stream.h"

#define SUFFIX ".rebuilt"
#define PLACES (PARITY_NODES_MAX + 1)

struct rebuild {
    const struct rebuild_cfg *cfg;
    const struct parity *p;
    struct comm_group *group;
    uint32_t member[PLACES]; /* of the survivors, by place in the group */
    int survivors, places;   /* places: with the target, where it is none of them */
    int me, target;          /* places */
    char folder[MCK_PATH_MAX];
    char *in, *out, *sum;
    struct parity own; /* of this survivor */
    int fd;            /* of its parity */
    struct stream *from, *to;
    int code; /* first failure of this node alone */
    struct merr *why;
};

/* Who takes part, and this node's place: -1 when it does not. */
static int *find_places(struct rebuild *b)
{
    const struct rebuild_cfg *c = b->cfg;
    int *ranks = calloc(PLACES, sizeof(*ranks));

    b->me = b->target = -1;
    for (uint32_t i = 0; ranks && i < b->p->nodes; i++) {
        int node = c->loss->holder[i];

        if (i == c->loss->member)
            continue;
        b->me = node == c->node ? b->survivors : b->me;
        b->target = node == c->target ? b->survivors : b->target;
        b->member[b->survivors] = i;
        ranks[b->survivors++] = c->leader[node];
    }
    b->places = b->survivors;
    if (b->target < 0) {
        b->me = c->target == c->node ? b->places : b->me;
        b->target = b->places;
        if (ranks)
            ranks[b->places] = c->leader[c->target];
        b->places++;
    }
    return ranks;
}

static bool survives(const struct rebuild *b)
{
    return b->me < b->survivors;
}

/* Parts of a member of the group. */
static const struct parity_part *parts_of(const struct rebuild *b, uint32_t member)
{
    return &b->p->part[b->p->member[member].first];
}

static int open_files(struct rebuild *b, struct merr *err)
{
    uint32_t lost = b->cfg->loss->member, mine = survives(b) ? b->member[b->me] : lost;
    char path[MCK_PATH_MAX];

    TRY(folder_step_path(b->cfg->dir, b->p->step, NULL, b->folder, err));
    if (survives(b)) {
        TRY(folder_step_path(b->cfg->dir, b->p->step, PARITY_NAME, path, err));
        TRY(parity_read(path, &b->own, err));
        b->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (b->fd < 0)
            return merr_errno(err, -errno, "cannot open '%s'", path);
        TRY(stream_open(b->folder, "", parts_of(b, mine), b->p->member[mine].parts, STREAM_READ, &b->from, err));
    }
    if (b->me != b->target)
        return 0;
    TRY(io_mkdirs(b->folder, 0755, err));
    return stream_open(b->folder, SUFFIX, parts_of(b, lost), b->p->member[lost].parts, STREAM_MAKE, &b->to, err);
}

static void note_failure(struct rebuild *b, int code)
{
    if (b->code == 0)
        b->code = code;
}

/* Survivors among themselves: b->sum becomes this one's piece of the lost stream. */
static int combine(struct rebuild *b, uint32_t piece, uint32_t len, struct merr *err)
{
    const void *send[PLACES];
    void *recv[PLACES];
    size_t bytes[PLACES];
    uint64_t at = (uint64_t)piece * PARITY_PIECE;

    for (int i = 0; i < b->places; i++) {
        send[i] = b->out + (size_t)i * PARITY_PIECE;
        recv[i] = b->in + (size_t)i * PARITY_PIECE;
        bytes[i] = survives(b) && i < b->survivors && i != b->me ? len : 0;
        if (bytes[i] && b->code == 0)
            note_failure(b, stream_read(b->from, parity_at(b->p, b->member[b->me], b->member[i]) + at,
                                        b->out + (size_t)i * PARITY_PIECE, len, b->why));
    }
    TRY(comm_all_to_all_v(b->group, send, bytes, recv, bytes, err));
    if (survives(b) && b->code == 0)
        note_failure(b, parity_read_piece(b->fd, &b->own, piece, b->sum, b->why));
    for (int i = 0; survives(b) && i < b->survivors; i++)
        if (i != b->me)
            parity_xor(b->sum, recv[i], len);
    return 0;
}

/* Each survivor's piece to the target. */
static int deliver(struct rebuild *b, uint32_t piece, uint32_t len, struct merr *err)
{
    const void *send[PLACES];
    void *recv[PLACES];
    size_t out[PLACES] = {0}, in[PLACES] = {0};

    for (int i = 0; i < b->places; i++) {
        send[i] = b->sum;
        recv[i] = b->in + (size_t)i * PARITY_PIECE;
        in[i] = b->me == b->target && i < b->survivors ? len : 0;
    }
    out[b->target] = survives(b) ? len : 0;
    TRY(comm_all_to_all_v(b->group, send, out, recv, in, err));
    for (int i = 0; b->me == b->target && i < b->survivors && b->code == 0; i++)
        note_failure(
            b, stream_write(b->to, parity_at(b->p, b->cfg->loss->member, b->member[i]) + (uint64_t)piece * PARITY_PIECE,
                            recv[i], len, b->why));
    return 0;
}

/* A file is what it was when it reads as one of this snapshot; its chunks are checked when they are loaded. */
static int place_file(struct rebuild *b, const struct parity_part *part, struct merr *err)
{
    char temp[STREAM_PATH_MAX], final[STREAM_PATH_MAX];

    stream_path(b->folder, part->rank, SUFFIX, temp);
    stream_path(b->folder, part->rank, "", final);
    TRY(part_check(temp, b->p->id, part->rank, part->bytes, err));
    return rename(temp, final) == 0 ? 0 : merr_errno(err, -errno, "cannot rename '%s'", temp);
}

static void finish(struct rebuild *b)
{
    uint32_t lost = b->cfg->loss->member;

    for (uint32_t i = 0; b->me == b->target && i < b->p->member[lost].parts && b->code == 0; i++)
        note_failure(b, place_file(b, parts_of(b, lost) + i, b->why));
}

static void clear(struct rebuild *b)
{
    stream_free(b->from);
    stream_free(b->to);
    io_close(&b->fd);
    parity_clear(&b->own);
    free(b->in);
    free(b->out);
    free(b->sum);
}

int rebuild_loss(const struct rebuild_cfg *cfg, int *ret_own, struct merr *why, struct merr *err)
{
    struct rebuild b = {.cfg = cfg, .p = &cfg->loss->p, .fd = -1, .why = why};
    int *ranks = find_places(&b), r = 0;

    *ret_own = 0;
    if (ranks && b.me < 0) {
        free(ranks);
        return 0;
    }
    b.in = malloc((size_t)PLACES * PARITY_PIECE);
    b.out = malloc((size_t)PLACES * PARITY_PIECE);
    b.sum = calloc(1, PARITY_PIECE);
    if (!ranks || !b.in || !b.out || !b.sum)
        r = merr_set(err, -ENOMEM, "no memory to make the data of a lost node again");
    if (r == 0)
        r = comm_group_new(cfg->world, "rebuild", ranks, b.places, &b.group, err);
    if (r == 0)
        note_failure(&b, open_files(&b, why));
    for (uint32_t i = 0; i < parity_pieces(b.p) && r == 0; i++) {
        uint32_t len = parity_piece_bytes(b.p, i);

        r = combine(&b, i, len, err);
        if (r == 0)
            r = deliver(&b, i, len, err);
    }
    if (r == 0)
        finish(&b);
    *ret_own = b.code;
    clear(&b);
    free(ranks);
    return r;
}
