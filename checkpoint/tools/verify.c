/* verify - read and check every byte; digest - one hash over all that a checkpoint means */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/read/scan.h"
#include "checkpoint/tools/walk.h"

#define FAULTS_MAX 1000 /* more are counted, not listed */

struct verify {
    struct scan scan;
    json_t *faults;
    size_t count;
    struct merr first;
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

int mck_verify(struct mck *c, json_t **ret_report, struct merr *err)
{
    struct verify v = {.faults = json_array()};
    uint64_t all = read_stream_bytes(c);
    struct merr why;
    int r = v.faults ? scan_init(&v.scan, c, err) : merr_set(err, -ENOMEM, "no memory");

    read_watch_begin(c, all);
    if (r == 0 && !(c->ix.files && c->source[0].foreign)) {
        if (index_check_cover(&c->ix, &why))
            add_fault(&v, "MANIFEST", -1, json_array(), why.text);
        for (size_t i = 0; i < c->ix.files; i++)
            if (read_quick_check_file(c, (uint32_t)i, &why)) {
                scan_add_tensors(c, (uint32_t)i, 0, UINT64_MAX, &why);
                add_fault(&v, c->paths[c->source[i].path], -1, scan_tensors(c, (uint32_t)i, 0, UINT64_MAX), why.text);
            }
    }
    for (uint32_t i = 0; i < c->ix.files && r == 0; i++)
        scan_check(&v.scan, i, damaged_chunk, &v);
    if (r == 0 && v.count)
        r = merr_set(err, -EBADMSG, "%zu fault%s in '%s', the first: %s", v.count, v.count == 1 ? "" : "s", c->path,
                     v.first.text);
    if (ret_report && (r == 0 || r == -EBADMSG))
        *ret_report = json_pack("{s:b,s:I,s:I,s:I,s:O}", "ok", !v.count, "files", (json_int_t)c->ix.files, "bytes",
                                (json_int_t)all, "fault_count", (json_int_t)v.count, "faults", v.faults);
    json_decref(v.faults);
    scan_clear(&v.scan);
    return r;
}

/* --- digest ------------------------------------------------------------------------------------ */

struct digest {
    const struct mck *c;
    struct hash128 *h;
};

static int add_tensor(void *digest, const struct mck_tensor *t, bool first, const void *data, size_t bytes,
                      struct merr *err)
{
    struct digest *d = digest;

    (void)err;
    if (read_is_layout(&d->c->ix, t))
        return 0;
    if (first) {
        hash128_add(d->h, index_name(&d->c->ix, t), t->name_len);
        hash128_add(d->h, "", 1);
        hash128_add(d->h, &t->dtype, 3); /* dtype, role, ndim */
        hash128_add(d->h, t->shape, sizeof(t->shape));
    }
    hash128_add(d->h, data, bytes);
    return 0;
}

int mck_digest(struct mck *c, char ret_hex[33], struct merr *err)
{
    struct digest d = {.c = c, .h = hash128_new()};
    const struct walk all = {
        .end = c->ix.tensors, .role = WALK_ALL_ROLES, .dtype = WALK_AS_STORED, .take = add_tensor, .arg = &d};
    json_t *kv = read_meaning(c);
    char *text = kv ? json_dumps(kv, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
    int r;

    read_watch_begin(c, read_all_bytes(c));
    r = d.h && text ? walk_tensors(c, &all, err) : merr_set(err, -ENOMEM, "no memory to digest a checkpoint");
    if (r == 0) {
        hash128_add(d.h, text, strlen(text));
        hash128_hex(d.h, ret_hex);
    }
    hash128_free(d.h);
    json_decref(kv);
    free(text);
    return r;
}
