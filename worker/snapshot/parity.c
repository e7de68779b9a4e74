#include "worker/snapshot/parity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "checkpoint/parts.h"
#include "worker/snapshot/stream.h"

#define MAGIC "MUSTRPA1"
#define VERSION 1
#define ALIGN 4096u

struct head {
    uint8_t magic[8];
    uint32_t version, nodes;
    uint8_t id[16];
    uint64_t step, segment;
    uint32_t writers, index, parts, pieces;
    struct parity_member member[PARITY_NODES_MAX];
    uint64_t table_xxh3;
    uint8_t zero[ALIGN - 64 - 16 * PARITY_NODES_MAX - 8 - 4];
    uint32_t crc32c; /* of bytes 0..4091 */
};
_Static_assert(sizeof(struct head) == ALIGN, "head");
_Static_assert(sizeof(struct parity_part) == 16 && sizeof(struct parity_member) == 16, "parts and members");
_Static_assert(sizeof(struct parity_sum) == 16, "sums");

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

void parity_group(int nodes, int node, int *ret_first, int *ret_n)
{
    int groups = (nodes + PARITY_NODES_MAX - 1) / PARITY_NODES_MAX, i = 0;

    while (nodes * (i + 1) / groups <= node)
        i++;
    *ret_first = nodes * i / groups;
    *ret_n = nodes * (i + 1) / groups - *ret_first;
}

uint64_t parity_segment(const struct parity *p)
{
    uint64_t longest = 0;

    for (uint32_t i = 0; i < p->nodes; i++)
        longest = p->member[i].bytes > longest ? p->member[i].bytes : longest;
    return round_up((longest + p->nodes - 2) / (p->nodes - 1), ALIGN);
}

uint32_t parity_pieces(const struct parity *p)
{
    return (uint32_t)((p->segment + PARITY_PIECE - 1) / PARITY_PIECE);
}

uint32_t parity_piece_bytes(const struct parity *p, uint32_t piece)
{
    uint64_t left = p->segment - (uint64_t)piece * PARITY_PIECE;

    return left < PARITY_PIECE ? (uint32_t)left : PARITY_PIECE;
}

uint64_t parity_at(const struct parity *p, uint32_t member, uint32_t holder)
{
    return (holder < member ? holder : holder - 1) * p->segment;
}

void parity_xor(void *to, const void *from, size_t n)
{
    uint8_t *a = to;
    const uint8_t *b = from;

    for (size_t i = 0; i < n; i++) /* the compiler makes vectors of it */
        a[i] ^= b[i];
}

/* --- head and tables ------------------------------------------------------------------------------------- */

static size_t parts_bytes(const struct parity *p)
{
    return p->parts * sizeof(*p->part);
}

static size_t sums_bytes(const struct parity *p)
{
    return parity_pieces(p) * sizeof(*p->sum);
}

static uint64_t data_at(const struct parity *p)
{
    return round_up(ALIGN + parts_bytes(p) + sums_bytes(p), ALIGN);
}

int parity_encode(const struct parity *p, struct buf *b, struct merr *err)
{
    struct head h = {.version = VERSION,
                     .nodes = p->nodes,
                     .step = p->step,
                     .segment = p->segment,
                     .writers = p->writers,
                     .index = p->index,
                     .parts = p->parts,
                     .pieces = parity_pieces(p)};
    size_t at = b->len;
    int r;

    memcpy(h.magic, MAGIC, sizeof(h.magic));
    memcpy(h.id, p->id, sizeof(h.id));
    memcpy(h.member, p->member, sizeof(h.member));
    r = buf_add(b, &h, sizeof(h));
    if (r == 0)
        r = buf_add(b, p->part, parts_bytes(p));
    if (r == 0)
        r = buf_add(b, p->sum, sums_bytes(p));
    if (r != 0)
        return merr_set(err, r, "no memory for the head of a parity");
    h.table_xxh3 = hash_xxh3(b->data + at + sizeof(h), parts_bytes(p) + sums_bytes(p));
    h.crc32c = hash_crc32c(0, &h, sizeof(h) - 4);
    memcpy(b->data + at, &h, sizeof(h));
    return 0;
}

static int bad(struct merr *err, const char *what)
{
    return merr_set(err, -EBADMSG, "a parity %s", what);
}

static int check_head(const struct head *h, size_t len, struct merr *err)
{
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0 || h->crc32c != hash_crc32c(0, h, sizeof(*h) - 4))
        return bad(err, "has a damaged head");
    if (h->version != VERSION)
        return merr_set(err, -EBADMSG, "a parity has format version %u: use a newer Muster", h->version);
    if (h->nodes < 2 || h->nodes > PARITY_NODES_MAX || h->index >= h->nodes)
        return bad(err, "is of an impossible group");
    if (h->parts > PARITY_PARTS_MAX || h->writers > PARITY_PARTS_MAX || h->parts > h->writers)
        return bad(err, "is of too many data files");
    if (h->segment == 0 || h->segment > PARITY_BYTES_MAX || h->segment % ALIGN ||
        h->pieces != (h->segment + PARITY_PIECE - 1) / PARITY_PIECE)
        return bad(err, "has an impossible length");
    if (len - sizeof(*h) < (h->parts + (uint64_t)h->pieces) * 16)
        return bad(err, "is cut short");
    return 0;
}

/* Members' parts follow one another, add up to their streams, and ranks rise. */
static bool members_fit(const struct parity *p)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < p->nodes; i++) {
        const struct parity_member *m = &p->member[i];
        uint64_t bytes = 0;

        if (m->first != next || m->parts == 0 || m->parts > p->parts - next)
            return false;
        for (uint32_t k = m->first; k < m->first + m->parts; k++) {
            const struct parity_part *q = &p->part[k];

            if (q->rank >= p->writers || q->bytes > PARITY_BYTES_MAX || (k > m->first && q->rank <= q[-1].rank))
                return false;
            bytes += q->bytes;
        }
        next += m->parts;
        if (bytes != m->bytes)
            return false;
    }
    return next == p->parts && parity_segment(p) == p->segment;
}

int parity_decode(const void *data, size_t len, struct parity *ret, struct merr *err)
{
    struct parity p;
    struct head h;

    if (len < sizeof(h))
        return bad(err, "is cut short");
    memcpy(&h, data, sizeof(h));
    if (check_head(&h, len, err) != 0)
        return -EBADMSG;
    p = (struct parity){.step = h.step,
                        .segment = h.segment,
                        .writers = h.writers,
                        .nodes = h.nodes,
                        .index = h.index,
                        .parts = h.parts};
    memcpy(p.id, h.id, sizeof(p.id));
    memcpy(p.member, h.member, sizeof(p.member));
    if (h.table_xxh3 != hash_xxh3((const char *)data + sizeof(h), parts_bytes(&p) + sums_bytes(&p)))
        return bad(err, "has a damaged table");
    p.part = malloc(parts_bytes(&p) + 1);
    p.sum = malloc(sums_bytes(&p) + 1);
    if (!p.part || !p.sum) {
        parity_clear(&p);
        return merr_set(err, -ENOMEM, "no memory for the tables of a parity");
    }
    memcpy(p.part, (const char *)data + sizeof(h), parts_bytes(&p));
    memcpy(p.sum, (const char *)data + sizeof(h) + parts_bytes(&p), sums_bytes(&p));
    if (!members_fit(&p)) {
        parity_clear(&p);
        return bad(err, "has members that do not fit its table");
    }
    *ret = p;
    return 0;
}

void parity_clear(struct parity *p)
{
    free(p->part);
    free(p->sum);
    *p = (struct parity){0};
}

/* --- the file -------------------------------------------------------------------------------------------- */

int parity_create(const char *path, const struct parity *p, int *ret_fd, struct merr *err)
{
    int fd, r;

    (void)unlink(path);
    fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make '%s'", path);
    r = -posix_fallocate(fd, 0, (off_t)(data_at(p) + p->segment));
    if (r != 0) {
        io_close(&fd);
        (void)unlink(path);
        return merr_errno(err, r, "no room for %llu MiB of parity in '%s'", (unsigned long long)p->segment >> 20, path);
    }
    *ret_fd = fd;
    return 0;
}

int parity_write(int fd, struct parity *p, uint32_t piece, const void *data, struct merr *err)
{
    uint32_t n = parity_piece_bytes(p, piece);

    p->sum[piece] = (struct parity_sum){.crc32c = hash_crc32c(0, data, n), .xxh3 = hash_xxh3(data, n)};
    return stream_write_at(fd, PARITY_NAME, data_at(p) + (uint64_t)piece * PARITY_PIECE, data, n, err);
}

int parity_seal(int fd, const struct parity *p, struct merr *err)
{
    struct buf b;
    int r;

    buf_init(&b, ALIGN + parts_bytes(p) + sums_bytes(p) + 1);
    r = parity_encode(p, &b, err);
    if (r == 0)
        r = stream_write_at(fd, PARITY_NAME, 0, b.data, b.len, err);
    buf_clear(&b);
    return r;
}

int parity_read(const char *path, struct parity *ret, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct head h;
    struct stat st;
    size_t len;
    char *data;
    int r;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    r = input_read_at(fd, path, 0, &h, sizeof(h), err);
    if (r == 0)
        r = check_head(&h, SIZE_MAX, err);
    if (r != 0)
        return merr_prefix(err, r, "'%s'", path);
    len = sizeof(h) + (h.parts + (size_t)h.pieces) * 16;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != round_up(len, ALIGN) + h.segment)
        return merr_set(err, -EBADMSG, "'%s' has another length than its head says", path);
    data = malloc(len);
    if (!data)
        return merr_set(err, -ENOMEM, "no memory for the tables of '%s'", path);
    r = input_read_at(fd, path, 0, data, len, err);
    if (r == 0)
        r = parity_decode(data, len, ret, err);
    free(data);
    return r;
}

int parity_read_piece(int fd, const struct parity *p, uint32_t piece, void *data, struct merr *err)
{
    uint32_t n = parity_piece_bytes(p, piece);
    int r = input_read_at(fd, PARITY_NAME, data_at(p) + (uint64_t)piece * PARITY_PIECE, data, n, err);

    if (r != 0)
        return r;
    if (hash_crc32c(0, data, n) != p->sum[piece].crc32c || hash_xxh3(data, n) != p->sum[piece].xxh3)
        return merr_set(err, -EBADMSG, "a parity fails its checksum at piece %u", piece);
    return 0;
}
