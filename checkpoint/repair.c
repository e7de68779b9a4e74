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
#include "checkpoint/coordinate.h"
#include "checkpoint/dtype.h"
#include "checkpoint/part.h"
#include "checkpoint/scan.h"

int mck_repair(const char *path, struct merr *err)
{
    char first[MCK_PATH_MAX];
    struct mck_index part, ix;
    struct mck *c;
    int r = folder_join(path, "rank-00000.mck", first, err);

    if (!r && mck_open_path(path, &c, NULL) == 0) {
        mck_free(c);
        return 0;
    }
    if (!r)
        r = part_read(first, &part, err);
    if (r)
        return merr_prefix(err, r, "cannot repair '%s'", path);
    r = coordinate_merge(path, part.writers, &ix, err);
    index_clear(&part);
    if (r)
        return merr_prefix(err, r, "cannot repair '%s'", path);
    r = coordinate_write_manifest(&ix, NULL, path, 0, false, err);
    index_clear(&ix);
    return r ? r : 1;
}

/* --- where the bytes come from ------------------------------------------------------------------- */

struct donors {
    struct mck **v; /* one that is committed, or data files without MANIFEST */
    size_t n;
};

static void donors_clear(struct donors *d)
{
    for (size_t i = 0; i < d->n; i++)
        mck_free(d->v[i]);
    free(d->v);
}

/* from is a folder of checkpoints, one of which is of c's step, or such a one. */
static int donors_open(const struct mck *c, const char *from, struct donors *ret, struct merr *err)
{
    char folder[MCK_PATH_MAX], path[MCK_PATH_MAX], name[32];
    struct donors d = {.v = calloc(c->ix.files + 1, sizeof(*d.v))};
    struct merr why;
    struct stat st;

    if (!d.v)
        return merr_set(err, -ENOMEM, "no memory for %zu files", c->ix.files);
    if (folder_step_path(from, c->ix.step, NULL, folder, NULL) || stat(folder, &st))
        (void)snprintf(folder, sizeof(folder), "%s", from);
    if (mck_open_path(folder, &d.v[0], &why) == 0) {
        *ret = (struct donors){.v = d.v, .n = 1};
        return 0;
    }
    for (size_t i = 0; i < c->ix.files; i++) {
        (void)snprintf(name, sizeof(name), "rank-%05zu.mck", i);
        if (folder_join(folder, name, path, NULL) == 0 && read_open_part(path, &d.v[d.n], &why) == 0)
            d.n++;
    }
    if (!d.n) {
        free(d.v);
        return merr_set(err, -ENOENT, "nothing of step %llu is in '%s': %s", (unsigned long long)c->ix.step, from,
                        why.text);
    }
    *ret = d;
    return 0;
}

static int donors_load(const struct donors *d, const struct mck_buffer *b, struct merr *err)
{
    int r = -ENOENT;

    for (size_t i = 0; i < d->n && r; i++)
        r = mck_load(d->v[i], b, 1, err);
    return r;
}

/* --- chunks -------------------------------------------------------------------------------------- */

struct heal {
    struct mck *c;
    struct donors donors;
    struct scan scan; /* its buffers serve for what is written, too */
    json_t *healed, *left;
    struct merr first; /* of left */
};

static int take_nothing(void *arg, uint64_t chunk, const void *data, uint32_t len)
{
    (void)arg, (void)chunk, (void)data, (void)len;
    return 0;
}

/* What chunk i of a file held, into scan.plain; and the type of its elements. */
static int gather(struct heal *h, uint32_t file, uint64_t i, uint32_t len, int *ret_dtype, struct merr *err)
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
        TRY(donors_load(&h->donors, &b, err));
    }
    return 0;
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
        return merr_set(err, -EBADMSG, "'%s': chunk %llu holds moments coded with loss, which are not coded anew: "
                        "copy the file", path, (unsigned long long)i);
    TRY(gather(h, file, i, e.logical_len, &dtype, err));
    if (hash_xxh3(h->scan.plain, e.logical_len) != e.xxh3)
        return merr_set(err, -EBADMSG, "'%s': chunk %llu held other bytes than are there now", path,
                        (unsigned long long)i);
    (void)part_encode(h->scan.coder, (enum chunk_codec)e.codec, dtype, h->scan.plain, e.logical_len, e.file_off,
                      h->scan.stored, &again);
    if (again.stored_len != e.stored_len || again.crc32c != e.crc32c)
        return merr_set(err, -EBADMSG, "'%s': chunk %llu was encoded by another version of its codec: copy the file",
                        path, (unsigned long long)i);
    TRY(put(h, file, &e, err));
    return scan_chunks(&h->scan, file, i, i + 1, take_nothing, NULL, err);
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

static void heal_file(struct heal *h, uint32_t file)
{
    uint64_t chunks = mck_round(h->c->ix.file[file].stream_len, MCK_CHUNK) / MCK_CHUNK, step = MCK_SLOT / MCK_CHUNK;
    struct merr err = {.text = ""};

    for (uint64_t i = 0; i < chunks; i += step) {
        uint64_t to = i + step < chunks ? i + step : chunks;

        if (scan_chunks(&h->scan, file, i, to, take_nothing, NULL, &err) == 0)
            continue;
        for (uint64_t k = i; k < to; k++)
            if (scan_chunks(&h->scan, file, k, k + 1, take_nothing, NULL, &err))
                note(h, file, (int64_t)k, heal_chunk(h, file, k, &err) ? &err : NULL);
    }
    if (read_quick_check_file(h->c, file, &err))
        note(h, file, -1, &err);
}

int mck_heal(const char *path, const char *from, json_t **ret_report, struct merr *err)
{
    struct heal h = {.healed = json_array(), .left = json_array(), .scan = {.fd = -1}};
    int r = h.healed && h.left ? mck_open_path(path, &h.c, err) : merr_set(err, -ENOMEM, "no memory");

    if (!r)
        r = donors_open(h.c, from, &h.donors, err);
    if (!r)
        r = scan_init(&h.scan, h.c, err);
    for (uint32_t i = 0; !r && i < h.c->ix.files; i++)
        heal_file(&h, i);
    if (!r && json_array_size(h.left))
        r = merr_set(err, -EBADMSG, "%zu places in '%s' are left damaged, the first: %s", json_array_size(h.left), path,
                     h.first.text);
    if (ret_report && (!r || r == -EBADMSG) && h.donors.n)
        *ret_report = json_pack("{s:O,s:O}", "healed", h.healed, "left", h.left);
    scan_clear(&h.scan);
    donors_clear(&h.donors);
    mck_free(h.c);
    json_decref(h.healed);
    json_decref(h.left);
    return r;
}
