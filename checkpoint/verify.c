/* verify - read and check every byte; digest - one hash over all that a checkpoint means */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/dtype.h"
#include "checkpoint/scan.h"

#define FAULTS_MAX 1000 /* more are counted, not listed */
#define PIECE_BYTES (8u << 20)

struct verify {
    struct scan scan;
    json_t *faults;
    size_t count;
    struct merr first;
    uint64_t done, all;
};

static void add_fault(struct verify *v, const char *file, int64_t chunk, json_t *tensors, const char *what)
{
    if (!v->count++)
        (void)merr_set(&v->first, 0, "%s", what);
    if (v->count <= FAULTS_MAX)
        (void)json_array_append_new(v->faults, json_pack("{s:s,s:I,s:O,s:s}", "file", file, "chunk", (json_int_t)chunk,
                                                         "tensors", tensors, "what", what));
    json_decref(tensors);
}

static void damaged_chunk(void *arg, uint32_t file, uint64_t chunk, const struct merr *why)
{
    struct verify *v = arg;
    const struct mck *c = v->scan.c;

    add_fault(v, c->paths[c->source[file].path], (int64_t)chunk,
              scan_tensors(c, file, chunk * MCK_CHUNK, (chunk + 1) * MCK_CHUNK), why->text);
}

static void verify_file(struct verify *v, uint32_t file, void (*progress)(void *, uint64_t, uint64_t), void *arg)
{
    const struct mck *c = v->scan.c;
    const struct mck_file *f = &c->ix.file[file];
    uint64_t chunks = mck_round(f->stream_len, MCK_CHUNK) / MCK_CHUNK, step = MCK_SLOT / MCK_CHUNK;

    for (uint64_t i = 0; i < chunks; i += step) {
        uint64_t to = i + step < chunks ? i + step : chunks;

        scan_check(&v->scan, file, i, to, damaged_chunk, v);
        v->done += to * MCK_CHUNK < f->stream_len ? (to - i) * MCK_CHUNK : f->stream_len - i * MCK_CHUNK;
        if (progress)
            progress(arg, v->done, v->all);
    }
}

int mck_verify(struct mck *c, void (*progress)(void *arg, uint64_t done, uint64_t all), void *arg, json_t **ret_report,
               struct merr *err)
{
    struct verify v = {.faults = json_array()};
    struct merr why;
    int r = v.faults ? scan_init(&v.scan, c, err) : merr_set(err, -ENOMEM, "no memory");

    for (size_t i = 0; i < c->ix.files; i++)
        v.all += c->ix.file[i].stream_len;
    if (!r && !(c->ix.files && c->source[0].foreign)) {
        if (index_check_cover(&c->ix, &why))
            add_fault(&v, "MANIFEST", -1, json_array(), why.text);
        for (size_t i = 0; i < c->ix.files; i++)
            if (read_quick_check_file(c, (uint32_t)i, &why)) {
                scan_add_tensors(c, (uint32_t)i, 0, UINT64_MAX, &why);
                add_fault(&v, c->paths[c->source[i].path], -1, scan_tensors(c, (uint32_t)i, 0, UINT64_MAX), why.text);
            }
    }
    for (uint32_t i = 0; i < c->ix.files && !r; i++)
        verify_file(&v, i, progress, arg);
    if (!r && v.count)
        r = merr_set(err, -EBADMSG, "%zu faults in '%s', the first: %s", v.count, c->path, v.first.text);
    if (ret_report && (!r || r == -EBADMSG))
        *ret_report = json_pack("{s:b,s:I,s:I,s:I,s:O}", "ok", !v.count, "files", (json_int_t)c->ix.files, "bytes",
                                (json_int_t)v.all, "fault_count", (json_int_t)v.count, "faults", v.faults);
    json_decref(v.faults);
    scan_clear(&v.scan);
    return r;
}

/* --- digest ------------------------------------------------------------------------------------ */

/* The logical bytes of a tensor, in pieces of bounded memory. */
static int digest_tensor(struct mck *c, const struct mck_tensor *t, struct hash128 *h, char *memory, struct merr *err)
{
    char name[MCK_NAME_MAX + 1];
    struct mck_buffer b;
    uint64_t volume, step = PIECE_BYTES / dtype_size(t->dtype);
    int r = 0;

    read_describe(c, t, name, &b, &volume);
    b.data = memory;
    hash128_add(h, name, t->name_len + 1u);
    hash128_add(h, &t->dtype, 3); /* dtype, role, ndim */
    hash128_add(h, t->shape, sizeof(t->shape));
    for (uint64_t at = 0; at < volume && !r; at += step) {
        b.sub_begin = at;
        b.sub_end = at + step < volume ? at + step : volume;
        r = mck_load(c, &b, 1, err);
        if (!r)
            hash128_add(h, memory, (b.sub_end - b.sub_begin) * dtype_size(t->dtype));
    }
    return r;
}

int mck_digest(struct mck *c, char ret_hex[33], struct merr *err)
{
    json_t *kv = read_meaning(c);
    struct hash128 *h = hash128_new();
    char *memory = malloc(PIECE_BYTES), *text = NULL;
    int r = 0;

    if (kv)
        text = json_dumps(kv, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!h || !memory || !text)
        r = merr_set(err, -ENOMEM, "no memory to digest a checkpoint");
    for (size_t i = 0; i < c->ix.tensors && !r; i++)
        r = digest_tensor(c, &c->ix.tensor[i], h, memory, err);
    if (!r) {
        hash128_add(h, text, strlen(text));
        hash128_hex(h, ret_hex);
    }
    hash128_free(h);
    json_decref(kv);
    free(memory);
    free(text);
    return r;
}
