/* repair - a lost MANIFEST from the parts; damaged chunks from another checkpoint that holds the same */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/part.h"
#include "checkpoint/read/load.h"
#include "checkpoint/read/scan.h"
#include "checkpoint/write/coordinate.h"

int mck_repair(const char *path, struct merr *err)
{
    char first[MCK_PATH_MAX];
    struct mck_index part, ix;
    struct mck *c;
    int r = folder_join(path, "rank-00000.mck", first, err);

    if (r == 0 && mck_open_path(path, &c, NULL) == 0) {
        mck_free(c);
        return 0;
    }
    if (r == 0)
        r = part_read(first, &part, err);
    if (r < 0)
        return merr_prefix(err, r, "cannot repair '%s'", path);
    r = coordinate_merge(path, part.writers, &ix, err);
    index_clear(&part);
    if (r < 0)
        return merr_prefix(err, r, "cannot repair '%s'", path);
    r = coordinate_write_manifest(&ix, NULL, path, 0, false, err);
    index_clear(&ix);
    return r < 0 ? r : 1;
}

/* --- where the bytes come from ------------------------------------------------------------------- */

struct donors {
    struct mck **v; /* one that is committed, or a data file without MANIFEST */
    size_t n;
};

static void donors_clear(struct donors *d)
{
    for (size_t i = 0; i < d->n; i++)
        mck_free(d->v[i]);
    free(d->v);
}

static int donors_reserve(struct donors *d, size_t more, struct merr *err)
{
    struct mck **v = realloc(d->v, (d->n + more) * sizeof(*v));

    if (!v)
        return merr_set(err, -ENOMEM, "no memory for %zu files", d->n + more);
    d->v = v;
    return 0;
}

/* from is a folder of checkpoints, one of which is of c's step, or such a one. */
static int donors_add(struct donors *d, const struct mck *c, const char *from, struct merr *err)
{
    char folder[MCK_PATH_MAX], path[MCK_PATH_MAX], name[32];
    size_t before = d->n;
    struct merr why;
    struct stat st;

    TRY(donors_reserve(d, c->ix.files + 1, err));
    if (folder_step_path(from, c->ix.step, NULL, folder, NULL) || stat(folder, &st))
        (void)snprintf(folder, sizeof(folder), "%s", from);
    if (mck_open_path(folder, &d->v[d->n], &why) == 0) {
        d->n++;
        return 0;
    }
    for (size_t i = 0; i < c->ix.files; i++) {
        (void)snprintf(name, sizeof(name), "rank-%05zu.mck", i);
        if (folder_join(folder, name, path, NULL) == 0 && read_open_part(path, &d->v[d->n], &why) == 0)
            d->n++;
    }
    return d->n > before ? 0
                         : merr_set(err, -ENOENT, "nothing of step %llu is in '%s': %s", (unsigned long long)c->ix.step,
                                    from, why.text);
}

/* --- chunks -------------------------------------------------------------------------------------- */

struct heal {
    struct mck *c;
    struct donors donors;
    struct scan scan; /* its buffers serve for what is written, too */
    char *some;       /* what one donor has of a chunk, */
    char *marks;      /* of which elements that is, */
    char *have;       /* and of which it has been had from any: MCK_CHUNK each */
    json_t *healed, *left;
    struct merr first; /* of left */
};

/* Put together a buffer of at most a chunk: each element from the first of the donors, from number first around, that
 * has it whole. */
static int piece_together(struct heal *h, const struct mck_buffer *want, size_t first, struct merr *err)
{
    size_t esize = dtype_size((int)want->dtype), n = want->sub_end - want->sub_begin, missing = n;
    struct mck_buffer b = *want;

    b.data = h->some;
    memset(h->have, 0, n);
    for (size_t i = 0; i < h->donors.n && missing; i++) {
        memset(h->marks, 0, n);
        (void)load_some(h->donors.v[(first + i) % h->donors.n], &b, h->marks, NULL); /* what it lacks others may have */
        for (size_t k = 0; k < n; k++)
            if (h->marks[k] && !h->have[k]) {
                memcpy((char *)want->data + k * esize, h->some + k * esize, esize);
                h->have[k] = 1;
                missing--;
            }
    }
    return missing ? merr_set(err, -ENOENT, "tensor '%s' (%s): %zu of %zu elements are whole nowhere else", want->name,
                              role_name((int)want->role), missing, n)
                   : 0;
}

/* What chunk i of a file held, into scan.plain; and the type of its elements. */
static int gather(struct heal *h, uint32_t file, uint64_t i, uint32_t len, size_t first, int *ret_dtype,
                  struct merr *err)
{
    const struct mck_index *ix = &h->c->ix;
    uint64_t lo = i * MCK_CHUNK, hi = lo + len;

    memset(h->scan.plain, 0, len);
    for (size_t k = 0; k < ix->shards; k++) {
        const struct mck_shard *s = &ix->shard[k];
        const struct mck_tensor *t = &ix->tensor[s->tensor];
        uint64_t from = s->stream_off > lo ? s->stream_off : lo, volume;
        uint64_t to = s->stream_off + s->bytes < hi ? s->stream_off + s->bytes : hi;
        char name[MCK_NAME_MAX + 1];
        struct mck_buffer b;

        if (!index_shard_meets(s, file, lo, hi))
            continue;
        read_describe(h->c, t, name, &b, &volume);
        memcpy(b.off, s->off, sizeof(b.off));
        memcpy(b.len, s->len, sizeof(b.len));
        b.sub_begin = s->sub_begin + (from - s->stream_off) / dtype_size(t->dtype);
        b.sub_end = s->sub_begin + (to - s->stream_off) / dtype_size(t->dtype);
        b.data = h->scan.plain + (from - lo);
        *ret_dtype = t->dtype;
        TRY(piece_together(h, &b, first, err));
    }
    return 0;
}

/* The same with the checksum that the chunk had: donors of another state, too, may stand before those of this one. */
static int gather_right(struct heal *h, uint32_t file, uint64_t i, const struct mck_chunk *e, int *ret_dtype,
                        struct merr *err)
{
    for (size_t first = 0; first < h->donors.n; first++) {
        TRY(gather(h, file, i, e->logical_len, first, ret_dtype, err));
        if (hash_xxh3(h->scan.plain, e->logical_len) == e->xxh3)
            return 0;
    }
    return merr_set(err, -EBADMSG, "'%s': chunk %llu held other bytes than are there now",
                    h->c->paths[h->c->source[file].path], (unsigned long long)i);
}

static int put(const struct heal *h, uint32_t file, const struct mck_chunk *e, struct merr *err)
{
    const char *path = h->c->paths[h->c->source[file].path];
    IO_CLOSE_AUTO int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    if (lseek(fd, (off_t)e->file_off, SEEK_SET) < 0 || io_write_all(fd, h->scan.stored, e->stored_len) < 0 ||
        fdatasync(fd))
        return merr_errno(err, -errno, "cannot write '%s'", path);
    return 0;
}

static int heal_chunk(struct heal *h, uint32_t file, uint64_t i, struct merr *err)
{
    const char *path = h->c->paths[h->c->source[file].path];
    struct mck_chunk e, again;
    int dtype = MCK_U8;

    read_chunk_entry(h->c, file, i, &e);
    if (e.codec > CHUNK_PLANE)
        return merr_set(err, -EBADMSG,
                        "'%s': chunk %llu holds moments coded with loss, which are not coded anew: "
                        "copy the file",
                        path, (unsigned long long)i);
    TRY(gather_right(h, file, i, &e, &dtype, err));
    (void)part_encode(h->scan.coder, (enum chunk_codec)e.codec, dtype, h->scan.plain, e.logical_len, e.file_off,
                      h->scan.stored, &again);
    if (again.stored_len != e.stored_len || again.crc32c != e.crc32c)
        return merr_set(err, -EBADMSG, "'%s': chunk %llu was encoded by another version of its codec: copy the file",
                        path, (unsigned long long)i);
    TRY(put(h, file, &e, err));
    return scan_chunks(&h->scan, file, i, i + 1, NULL, NULL, err);
}

static void note(struct heal *h, uint32_t file, int64_t chunk, const struct merr *left)
{
    uint64_t lo = chunk < 0 ? 0 : (uint64_t)chunk * MCK_CHUNK, hi = chunk < 0 ? UINT64_MAX : lo + MCK_CHUNK;
    json_t *o = json_pack("{s:s,s:I,s:o}", "file", h->c->paths[h->c->source[file].path], "chunk", (json_int_t)chunk,
                          "tensors", scan_tensors(h->c, file, lo, hi));

    if (left) {
        if (!json_array_size(h->left))
            h->first = *left;
        (void)json_object_set_new(o, "what", json_string(left->text));
    }
    (void)json_array_append_new(left ? h->left : h->healed, o);
}

static void try_chunk(void *arg, uint32_t file, uint64_t chunk, const struct merr *why)
{
    struct heal *h = arg;
    struct merr err;

    (void)why;
    note(h, file, (int64_t)chunk, heal_chunk(h, file, chunk, &err) ? &err : NULL);
}

static void heal_file(struct heal *h, uint32_t file)
{
    struct merr err;

    scan_check(&h->scan, file, try_chunk, h);
    if (read_quick_check_file(h->c, file, &err))
        note(h, file, -1, &err);
}

static int heal_init(struct heal *h, struct mck *c, const char *const *from, size_t n, struct merr *err)
{
    *h = (struct heal){.c = c,
                       .healed = json_array(),
                       .left = json_array(),
                       .scan = {.fd = -1},
                       .some = malloc(MCK_CHUNK),
                       .marks = malloc(MCK_CHUNK),
                       .have = malloc(MCK_CHUNK)};
    if (!h->healed || !h->left || !h->some || !h->marks || !h->have)
        return merr_set(err, -ENOMEM, "no memory to heal a checkpoint");
    for (size_t i = 0; i < n; i++)
        TRY(donors_add(&h->donors, h->c, from[i], err));
    return scan_init(&h->scan, h->c, err);
}

static void heal_clear(struct heal *h)
{
    scan_clear(&h->scan);
    donors_clear(&h->donors);
    free(h->some);
    free(h->marks);
    free(h->have);
    json_decref(h->healed);
    json_decref(h->left);
}

int mck_heal(struct mck *c, const char *const *from, size_t n, json_t **ret_report, struct merr *err)
{
    struct heal h;
    int r = heal_init(&h, c, from, n, err);

    read_watch_begin(c, read_stream_bytes(c));
    for (uint32_t i = 0; r == 0 && i < c->ix.files; i++)
        heal_file(&h, i);
    if (r == 0 && ret_report)
        *ret_report = json_pack("{s:O,s:O}", "healed", h.healed, "left", h.left);
    if (r == 0 && json_array_size(h.left))
        r = merr_set(err, -EBADMSG, "%zu places in '%s' are left damaged, the first: %s", json_array_size(h.left),
                     c->path, h.first.text);
    heal_clear(&h);
    return r;
}
