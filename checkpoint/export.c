/* export - the master weights as a safetensors file, piece by piece in constant memory */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "checkpoint/dtype.h"
#include "checkpoint/read.h"
#include "checkpoint/safetensors.h"

#define PIECE_BYTES (8u << 20)

/* Floats become dtype, all else stays what it is. */
static int out_dtype(const struct mck_tensor *t, int dtype)
{
    return dtype_converts(t->dtype, dtype) ? dtype : t->dtype;
}

/* The type the weights have in the file: exported as they are when no other is asked for. */
static int parse_target(const char *dtype, struct merr *err)
{
    int d = dtype_parse(dtype ? dtype : "f32");

    if (d != MCK_F32 && d != MCK_BF16 && d != MCK_F16)
        return merr_set(err, -EINVAL, "cannot export as '%s': want f32, bf16 or f16", dtype);
    return d;
}

static int make_header(const struct mck *c, int dtype, struct buf *out, uint64_t *ret_data, struct merr *err)
{
    json_auto_t *doc = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0, volume, len;
    char *text;

    for (size_t i = 0; i < c->ix.tensors; i++) {
        const struct mck_tensor *t = &c->ix.tensor[i];
        json_t *shape = json_array();
        char name[MCK_NAME_MAX + 1];
        int d = out_dtype(t, dtype);
        uint64_t bytes;

        if (t->role != MCK_MASTER) {
            json_decref(shape);
            continue;
        }
        memcpy(name, index_name(&c->ix, t), t->name_len);
        name[t->name_len] = '\0';
        for (int k = 0; k < t->ndim; k++)
            (void)json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
        (void)box_product(t->shape, t->ndim, MCK_BYTES_MAX, &volume);
        bytes = volume * dtype_size(d);
        if (json_object_set_new(doc, name, json_pack("{s:s,s:o,s:[I,I]}", "dtype", safetensors_dtype((enum mck_dtype)d),
                                                     "shape", shape, "data_offsets", (json_int_t)at,
                                                     (json_int_t)(at + bytes))))
            return merr_set(err, -EINVAL, "tensor '%s' cannot be named in JSON: it is no UTF-8", name);
        at += bytes;
    }
    text = json_dumps(doc, JSON_COMPACT);
    len = text ? mck_round(strlen(text) + 8, 8) - 8 : 0; /* the data begins at a multiple of 8 */
    (void)buf_add(out, &len, sizeof(len));
    (void)buf_printf(out, "%-*s", (int)len, text ? text : "");
    free(text);
    *ret_data = at;
    return text && !buf_failed(out) ? 0 : merr_set(err, -EMSGSIZE, "the header of the weights is too large");
}

static int write_tensor(struct mck *c, const struct mck_tensor *t, int dtype, int fd, char *memory, struct merr *err)
{
    char name[MCK_NAME_MAX + 1];
    struct mck_buffer b = {.name = name, .role = MCK_MASTER, .dtype = (enum mck_dtype)out_dtype(t, dtype),
                           .ndim = t->ndim, .data = memory};
    uint64_t volume, step = PIECE_BYTES / dtype_size((int)b.dtype);
    int r = 0;

    memcpy(name, index_name(&c->ix, t), t->name_len);
    name[t->name_len] = '\0';
    for (int d = 0; d < t->ndim; d++)
        b.shape[d] = b.len[d] = t->shape[d];
    (void)box_product(t->shape, t->ndim, MCK_BYTES_MAX, &volume);
    for (uint64_t at = 0; at < volume && !r; at += step) {
        b.sub_begin = at;
        b.sub_end = at + step < volume ? at + step : volume;
        r = mck_load(c, &b, 1, err);
        if (!r) {
            r = io_write_all(fd, memory, (b.sub_end - b.sub_begin) * dtype_size((int)b.dtype));
            if (r)
                (void)merr_errno(err, r, "cannot write the weights");
        }
    }
    return r;
}

static int write_weights(struct mck *c, int dtype, int fd, struct merr *err)
{
    char *memory = malloc(PIECE_BYTES);
    uint64_t data;
    struct buf b;
    int r = memory ? 0 : merr_set(err, -ENOMEM, "no memory to export");

    buf_init(&b, SAFETENSORS_HEADER_MAX + 8);
    if (!r)
        r = make_header(c, dtype, &b, &data, err);
    if (!r && (r = io_write_all(fd, b.data, b.len)))
        (void)merr_errno(err, r, "cannot write the weights");
    buf_clear(&b);
    for (size_t i = 0; i < c->ix.tensors && !r; i++)
        if (c->ix.tensor[i].role == MCK_MASTER)
            r = write_tensor(c, &c->ix.tensor[i], dtype, fd, memory, err);
    if (!r && fsync(fd))
        r = merr_errno(err, -errno, "cannot write the weights");
    free(memory);
    return r;
}

static int write_config(struct mck *c, const char *dir, struct merr *err)
{
    const json_t *model = json_object_get(c->kv, "model");
    char path[MCK_PATH_MAX], *text;
    int r = folder_join(dir, "config.json", path, err);

    if (r || !json_is_object(model))
        return r;
    text = json_dumps(model, JSON_INDENT(2));
    if (!text)
        return merr_set(err, -ENOMEM, "no memory");
    r = io_write_file(path, text, strlen(text), 0644, err);
    free(text);
    return r;
}

int mck_export_safetensors(struct mck *c, const char *dir, const char *dtype, struct merr *err)
{
    char final[MCK_PATH_MAX], temp[MCK_PATH_MAX];
    int fd, target = parse_target(dtype, err), r = target < 0 ? target : io_mkdirs(dir, 0755, err);

    if (!r)
        r = folder_join(dir, "model.safetensors", final, err);
    if (!r)
        r = folder_join(dir, ".model.safetensors.tmp", temp, err);
    if (r)
        return r;
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make '%s'", temp);
    r = write_weights(c, target, fd, err);
    io_close(&fd);
    if (!r)
        r = write_config(c, dir, err);
    if (!r && rename(temp, final))
        r = merr_errno(err, -errno, "cannot rename '%s'", temp);
    if (r) {
        (void)unlink(temp);
        return merr_prefix(err, r, "export to '%s'", dir);
    }
    return io_sync_dir(dir, err);
}
