/* export - the master weights as safetensors files, piece by piece in constant memory */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/tools/walk.h"

#define INDEX_NAME "model.safetensors.index.json"
#define TEMP_NAME ".model.safetensors.tmp"

struct export
{
    struct mck *c;
    const char *dir;
    int dtype;
    uint64_t part_bytes;
};

/* Tensors [begin, end) of the checkpoint, of which master weights count, make one file. */
struct part {
    size_t begin, end;
    uint64_t bytes;
    char name[64];
};

/* The type the weights have in the file: exported as they are when no other is asked for. */
static int parse_target(const char *dtype, struct merr *err)
{
    int d = dtype_parse(dtype ? dtype : "f32");

    if (d != MCK_F32 && d != MCK_BF16 && d != MCK_F16)
        return merr_set(err, -EINVAL, "cannot export as '%s': want f32, bf16 or f16", dtype);
    return d;
}

/* Bytes of a tensor in the file; 0 when it is no weight. */
static uint64_t exported_bytes(const struct export *x, const struct mck_tensor *t)
{
    uint64_t elements = read_tensor_bytes(t) / dtype_size(t->dtype);

    return t->role == MCK_MASTER ? elements * dtype_size(walk_dtype(x->dtype, t)) : 0;
}

static void copy_name(const struct export *x, const struct mck_tensor *t, char ret[MCK_NAME_MAX + 1])
{
    memcpy(ret, index_name(&x->c->ix, t), t->name_len);
    ret[t->name_len] = '\0';
}

/* --- one file ---------------------------------------------------------------------------------- */

/* Its entry in the header, its bytes being from at on. New; NULL when memory is short. */
static json_t *describe(const struct export *x, const struct mck_tensor *t, uint64_t at)
{
    const char *dtype = safetensors_dtype((enum mck_dtype)walk_dtype(x->dtype, t));
    json_t *shape = json_array();

    for (int k = 0; k < t->ndim; k++)
        (void)json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets", (json_int_t)at,
                     (json_int_t)(at + exported_bytes(x, t)));
}

static int make_header(const struct export *x, const struct part *p, struct buf *out, struct merr *err)
{
    json_auto_t *doc = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0, len;
    char *text;

    for (size_t i = p->begin; i < p->end; i++) {
        const struct mck_tensor *t = &x->c->ix.tensor[i];
        char name[MCK_NAME_MAX + 1];

        if (t->role != MCK_MASTER)
            continue;
        copy_name(x, t, name);
        if (!safetensors_dtype((enum mck_dtype)walk_dtype(x->dtype, t)))
            return merr_set(err, -ENOTSUP, "tensor '%s' is %s, which safetensors files do not have", name,
                            dtype_name(t->dtype));
        if (json_object_set_new(doc, name, describe(x, t, at)))
            return merr_set(err, -EINVAL, "tensor '%s' cannot be named in JSON: it is no UTF-8", name);
        at += exported_bytes(x, t);
    }
    text = json_dumps(doc, JSON_COMPACT);
    len = text ? mck_round(strlen(text) + 8, 8) - 8 : 0; /* the data begins at a multiple of 8 */
    (void)buf_add(out, &len, sizeof(len));
    (void)buf_printf(out, "%-*s", (int)len, text ? text : "");
    free(text);
    return text && !buf_failed(out) ? 0 : merr_set(err, -EMSGSIZE, "the header of the weights is too large");
}

static int write_bytes(int fd, const void *data, size_t bytes, struct merr *err)
{
    int r = io_write_all(fd, data, bytes);

    return r < 0 ? merr_errno(err, r, "cannot write the weights") : 0;
}

static int take_piece(void *fd, const struct mck_tensor *t, bool first, const void *data, size_t bytes,
                      struct merr *err)
{
    (void)t;
    (void)first;
    return write_bytes(*(const int *)fd, data, bytes, err);
}

static int write_part(const struct export *x, const struct part *p, int fd, struct merr *err)
{
    const struct walk w = {
        .begin = p->begin, .end = p->end, .role = MCK_MASTER, .dtype = x->dtype, .take = take_piece, .arg = &fd};
    struct buf b;
    int r;

    buf_init(&b, SAFETENSORS_HEADER_MAX + 8);
    r = make_header(x, p, &b, err);
    if (r == 0)
        r = write_bytes(fd, b.data, b.len, err);
    buf_clear(&b);
    TRY(r);
    TRY(walk_tensors(x->c, &w, err));
    return fsync(fd) ? merr_errno(err, -errno, "cannot write the weights") : 0;
}

static int publish_part(const struct export *x, const struct part *p, struct merr *err)
{
    char final[MCK_PATH_MAX], temp[MCK_PATH_MAX];
    int fd, r;

    TRY(folder_join(x->dir, p->name, final, err));
    TRY(folder_join(x->dir, TEMP_NAME, temp, err));
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make '%s'", temp);
    r = write_part(x, p, fd, err);
    io_close(&fd);
    if (r == 0 && rename(temp, final))
        r = merr_errno(err, -errno, "cannot rename '%s'", temp);
    if (r < 0)
        (void)unlink(temp);
    return r;
}

/* --- several ----------------------------------------------------------------------------------- */

/* Cut the weights into parts of at most part_bytes, but of one tensor at least. New *ret; *ret_all: bytes of all. */
static int cut(const struct export *x, struct part **ret, size_t *ret_n, uint64_t *ret_all, struct merr *err)
{
    struct part *v = calloc(x->c->ix.tensors + 1, sizeof(*v)), *p = v;

    if (!v)
        return merr_set(err, -ENOMEM, "no memory to export %zu tensors", x->c->ix.tensors);
    *ret_all = 0;
    for (size_t i = 0; i < x->c->ix.tensors; i++) {
        uint64_t bytes = exported_bytes(x, &x->c->ix.tensor[i]);

        if (x->part_bytes && p->bytes && p->bytes + bytes > x->part_bytes) {
            p++;
            p->begin = i;
        }
        p->bytes += bytes;
        p->end = i + 1;
        *ret_all += bytes;
    }
    *ret = v;
    *ret_n = (size_t)(p - v) + 1;
    for (size_t i = 0; i < *ret_n; i++)
        if (*ret_n == 1)
            (void)snprintf(v[i].name, sizeof(v[i].name), "model.safetensors");
        else
            (void)snprintf(v[i].name, sizeof(v[i].name), "model-%05zu-of-%05zu.safetensors", i + 1, *ret_n);
    return 0;
}

static int write_json(const char *path, const json_t *doc, struct merr *err)
{
    char *text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    int r = text ? io_write_file(path, text, strlen(text), 0644, err) : merr_set(err, -ENOMEM, "no memory");

    free(text);
    return r;
}

/* Which tensor is in which file: what makes a folder of several files a model. */
static int write_index(const struct export *x, const char *path, const struct part *v, size_t n, uint64_t all,
                       struct merr *err)
{
    json_t *map = json_object();
    json_auto_t *doc = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)all, "weight_map", map);

    for (size_t k = 0; k < n; k++)
        for (size_t i = v[k].begin; i < v[k].end; i++) {
            const struct mck_tensor *t = &x->c->ix.tensor[i];
            char name[MCK_NAME_MAX + 1];

            if (t->role != MCK_MASTER)
                continue;
            copy_name(x, t, name);
            (void)json_object_set_new(map, name, json_string(v[k].name));
        }
    return write_json(path, doc, err);
}

static int write_config(const struct export *x, struct merr *err)
{
    const json_t *model = json_object_get(x->c->kv, "model");
    char path[MCK_PATH_MAX];

    TRY(folder_join(x->dir, "config.json", path, err));
    return json_is_object(model) ? write_json(path, model, err) : 0;
}

/* An index that is there goes before its files do, a new one comes after them. */
static int write_parts(const struct export *x, const struct part *v, size_t n, uint64_t all, struct merr *err)
{
    char index[MCK_PATH_MAX], single[MCK_PATH_MAX];

    TRY(folder_join(x->dir, INDEX_NAME, index, err));
    TRY(folder_join(x->dir, "model.safetensors", single, err));
    if (n > 1 && access(single, F_OK) == 0)
        return merr_set(err, -EEXIST,
                        "'%s' is there already and would be read instead of the %zu files: remove it or "
                        "name another folder",
                        single, n);
    if (n > 1 && unlink(index) && errno != ENOENT)
        return merr_errno(err, -errno, "cannot replace '%s'", index);
    TRY(write_config(x, err));
    for (size_t i = 0; i < n; i++)
        TRY(publish_part(x, &v[i], err));
    if (n > 1)
        TRY(write_index(x, index, v, n, all, err));
    return io_sync_dir(x->dir, err);
}

int mck_export_safetensors(struct mck *c, const char *dir, const char *dtype, uint64_t part_bytes, struct merr *err)
{
    struct export x = {.c = c, .dir = dir, .dtype = parse_target(dtype, err), .part_bytes = part_bytes};
    struct part *part = NULL;
    size_t n = 0;
    uint64_t all = 0;
    int r;

    if (x.dtype < 0)
        return x.dtype;
    TRY(io_mkdirs(dir, 0755, err));
    r = cut(&x, &part, &n, &all, err);
    if (r == 0) {
        read_watch_begin(c, all);
        r = write_parts(&x, part, n, all, err);
    }
    free(part);
    return r < 0 ? merr_prefix(err, r, "export to '%s'", dir) : 0;
}
