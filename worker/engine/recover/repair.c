#include "worker/engine/recover/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/snapshot/stream.h"

#define DAMAGED_MAX (1u << 20) /* chunks; more than a snapshot of a TB has */

struct range { /* a damaged chunk in the stream */
    uint64_t from, to;
};

struct repair {
    const struct parity *p;
    struct comm_group *group;
    uint32_t me; /* member */
    char folder[MCK_PATH_MAX];
    struct parity own;
    int fd; /* of its parity */
    struct stream *stream;
    struct range *bad;
    size_t bads, cap;
    size_t stripes; /* pieces of all parities: holder by holder */
    uint8_t *marks; /* [nodes * stripes], by member: 1 where what it brings is damaged */
    uint8_t *in;    /* [nodes] pieces */
    uint8_t *out;
    uint64_t at; /* where the data file being read begins in the stream */
    int code;    /* first failure of this node alone */
    struct merr *why;
};

static const struct parity_part *parts(const struct repair *m)
{
    return &m->p->part[m->p->member[m->me].first];
}

/* --- what is damaged here -------------------------------------------------------------------------------- */

static void note_chunk(void *arg, const struct mck_chunk *e)
{
    struct repair *m = arg;
    uint64_t from = m->at + e->file_off;

    if (m->bads == m->cap && m->cap < DAMAGED_MAX) {
        size_t cap = m->cap ? 2 * m->cap : 64;
        struct range *more = realloc(m->bad, cap * sizeof(*more));

        if (!more)
            return; /* it stays as it is */
        m->bad = more;
        m->cap = cap;
    }
    if (m->bads < m->cap)
        m->bad[m->bads++] = (struct range){.from = from, .to = from + e->stored_len};
}

static int check_file(struct repair *m, uint32_t rank, struct merr *err)
{
    char path[STREAM_PATH_MAX];

    stream_path(m->folder, rank, "", path);
    return mck_check_part(path, note_chunk, m, err);
}

static int check_files(struct repair *m, struct merr *err)
{
    m->bads = 0;
    m->at = 0;
    for (uint32_t i = 0; i < m->p->member[m->me].parts; i++) {
        TRY(check_file(m, parts(m)[i].rank, err));
        m->at += parts(m)[i].bytes;
    }
    return 0;
}

/* The stripe to which a member brings a byte of its stream, and where the piece of it ends. */
static size_t stripe_of(const struct repair *m, uint64_t at, uint64_t *ret_end)
{
    uint32_t segment = (uint32_t)(at / m->p->segment), holder = segment < m->me ? segment : segment + 1;
    uint64_t in = at % m->p->segment, end = in - in % PARITY_PIECE + PARITY_PIECE;

    *ret_end = segment * m->p->segment + (end < m->p->segment ? end : m->p->segment);
    return holder * (size_t)parity_pieces(m->p) + in / PARITY_PIECE;
}

static int look(struct repair *m, const char *dir, struct merr *err)
{
    uint8_t *mine = m->marks + m->me * m->stripes;
    char path[MCK_PATH_MAX];
    uint64_t end;

    TRY(folder_step_path(dir, m->p->step, NULL, m->folder, err));
    TRY(folder_step_path(dir, m->p->step, PARITY_NAME, path, err));
    TRY(parity_read(path, &m->own, err));
    m->fd = open(path, O_RDWR | O_CLOEXEC);
    if (m->fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    TRY(stream_open(m->folder, "", parts(m), m->p->member[m->me].parts, STREAM_CHANGE, &m->stream, err));
    TRY(check_files(m, err));
    for (size_t i = 0; i < m->bads; i++)
        for (uint64_t at = m->bad[i].from; at < m->bad[i].to; at = end)
            mine[stripe_of(m, at, &end)] = 1;
    for (uint32_t k = 0; k < parity_pieces(m->p); k++)
        if (parity_read_piece(m->fd, &m->own, k, m->out, NULL) != 0)
            mine[m->me * (size_t)parity_pieces(m->p) + k] = 1;
    return 0;
}

/* --- stripe by stripe ------------------------------------------------------------------------------------ */

/* The member whose part of a stripe is damaged, alone; -1: none or several. */
static int target_of(const struct repair *m, size_t stripe)
{
    int target = -1;

    for (uint32_t i = 0; i < m->p->nodes; i++)
        if (m->marks[i * m->stripes + stripe]) {
            if (target >= 0)
                return -1;
            target = (int)i;
        }
    return target;
}

/* What this node brings to a stripe. */
static int bring(struct repair *m, uint32_t holder, uint32_t piece, uint32_t len, struct merr *err)
{
    if (holder == m->me)
        return parity_read_piece(m->fd, &m->own, piece, m->out, err);
    return stream_read(m->stream, parity_at(m->p, m->me, holder) + (uint64_t)piece * PARITY_PIECE, m->out, len, err);
}

/* data is what this node brought to a stripe: put back what of it was damaged. */
static int put_back(struct repair *m, uint32_t holder, uint32_t piece, const uint8_t *data, uint32_t len,
                    struct merr *err)
{
    uint64_t at = holder == m->me ? 0 : parity_at(m->p, m->me, holder) + (uint64_t)piece * PARITY_PIECE;

    if (holder == m->me)
        return parity_write(m->fd, &m->own, piece, data, err); /* its sums on disk stay: they tell if this is right */
    for (size_t i = 0; i < m->bads; i++) {
        uint64_t from = m->bad[i].from > at ? m->bad[i].from : at;
        uint64_t to = m->bad[i].to < at + len ? m->bad[i].to : at + len;

        if (from < to)
            TRY(stream_write(m->stream, from, data + (from - at), to - from, err));
    }
    return 0;
}

static int repair_stripe(struct repair *m, size_t stripe, uint32_t target, struct merr *err)
{
    uint32_t holder = (uint32_t)(stripe / parity_pieces(m->p)), piece = (uint32_t)(stripe % parity_pieces(m->p));
    uint32_t len = parity_piece_bytes(m->p, piece), nodes = m->p->nodes;
    size_t out[PARITY_NODES_MAX] = {0}, in[PARITY_NODES_MAX] = {0};
    const void *send[PARITY_NODES_MAX];
    void *recv[PARITY_NODES_MAX];

    for (uint32_t i = 0; i < nodes; i++) {
        send[i] = m->out;
        recv[i] = m->in + (size_t)i * PARITY_PIECE;
        in[i] = m->me == target && i != target ? len : 0;
    }
    if (m->me != target) {
        out[target] = len;
        if (m->code == 0)
            m->code = bring(m, holder, piece, len, m->why);
    }
    TRY(comm_all_to_all_v(m->group, send, out, recv, in, err));
    if (m->me != target || m->code != 0)
        return 0;
    memset(m->out, 0, len);
    for (uint32_t i = 0; i < nodes; i++)
        if (i != target)
            parity_xor(m->out, recv[i], len);
    m->code = put_back(m, holder, piece, m->out, len, m->why);
    return 0;
}

/* All look, all tell, and those that can be helped are. */
static int repair_all(struct repair *m, const char *dir, uint64_t *ret_chunks, struct merr *err)
{
    double failed;
    size_t before;

    m->code = look(m, dir, m->why);
    failed = m->code != 0;
    TRY(comm_all_reduce(m->group, &failed, 1, COMM_F64, COMM_SUM, err));
    if (failed > 0)
        return 0;
    TRY(comm_all_gather(m->group, m->marks + m->me * m->stripes, m->stripes, m->marks, err));
    for (size_t s = 0; s < m->stripes; s++)
        if (target_of(m, s) >= 0)
            TRY(repair_stripe(m, s, (uint32_t)target_of(m, s), err));
    before = m->bads;
    if (before && m->code == 0 && (m->code = check_files(m, m->why)) == 0)
        *ret_chunks = before - m->bads;
    return 0;
}

/* Ranks by member; this node's is m->me, or the group is not its own. */
static bool find_place(struct repair *m, const struct repair_cfg *cfg, int ranks[PARITY_NODES_MAX])
{
    bool mine = false;

    for (uint32_t i = 0; i < m->p->nodes; i++) {
        ranks[i] = cfg->leader[cfg->group->holder[i]];
        if (cfg->group->holder[i] == cfg->node) {
            m->me = i;
            mine = true;
        }
    }
    return mine;
}

static void clear(struct repair *m)
{
    stream_free(m->stream);
    io_close(&m->fd);
    parity_clear(&m->own);
    free(m->bad);
    free(m->marks);
    free(m->in);
    free(m->out);
}

int repair_group(const struct repair_cfg *cfg, uint64_t *ret_chunks, int *ret_own, struct merr *why, struct merr *err)
{
    struct repair m = {.p = &cfg->group->p, .fd = -1, .why = why};
    int ranks[PARITY_NODES_MAX], r;

    *ret_chunks = 0;
    *ret_own = 0;
    if (!find_place(&m, cfg, ranks))
        return 0;
    m.stripes = m.p->nodes * (size_t)parity_pieces(m.p);
    m.marks = calloc(m.p->nodes, m.stripes);
    m.in = malloc((size_t)m.p->nodes * PARITY_PIECE);
    m.out = malloc(PARITY_PIECE);
    r = m.marks && m.in && m.out ? 0 : merr_set(err, -ENOMEM, "no memory to repair a snapshot of %u nodes", m.p->nodes);
    if (r == 0)
        r = comm_group_new(cfg->world, "repair", ranks, (int)m.p->nodes, &m.group, err);
    if (r == 0)
        r = repair_all(&m, cfg->dir, ret_chunks, err);
    *ret_own = m.code;
    clear(&m);
    return r;
}
