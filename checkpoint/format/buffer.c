#include "checkpoint/format/buffer.h"

#include <errno.h>
#include <string.h>

#include "checkpoint/format/dtype.h"
#include "checkpoint/format/format.h"

#define BUCKETS_MAX (1 << 20)

static bool clean_name(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return n && n <= MCK_NAME_MAX;
}

void buffer_range(const struct mck_buffer *b, struct box *ret_box, uint64_t *ret_begin, uint64_t *ret_end)
{
    *ret_box = (struct box){.ndim = b->ndim};
    for (int d = 0; d < b->ndim; d++) {
        ret_box->off[d] = b->off[d];
        ret_box->len[d] = b->len[d];
    }
    *ret_begin = b->sub_begin;
    *ret_end = b->sub_begin || b->sub_end ? b->sub_end : box_volume(ret_box);
}

int buffer_check(const struct mck_buffer *b, struct merr *err)
{
    uint64_t volume;

    if (!clean_name(b->name))
        return merr_set(err, -EINVAL, "a buffer has no name, or one with control characters or over %u bytes",
                        MCK_NAME_MAX);
    if (!dtype_size((int)b->dtype) || (int)b->role < 0 || (int)b->role >= MCK_ROLES)
        return merr_set(err, -EINVAL, "buffer '%s' has an unknown type or role", b->name);
    if (b->ndim < 0 || b->ndim > MCK_DIMS_MAX)
        return merr_set(err, -EINVAL, "buffer '%s' has %d dims: 0 to %d are possible", b->name, b->ndim, MCK_DIMS_MAX);
    if (!box_product(b->shape, b->ndim, MCK_BYTES_MAX / dtype_size((int)b->dtype), &volume))
        return merr_set(err, -EINVAL, "buffer '%s': its tensor's shape is too large", b->name);
    for (int d = 0; d < b->ndim; d++)
        if (b->len[d] > b->shape[d] || b->off[d] > b->shape[d] - b->len[d])
            return merr_set(err, -EINVAL, "buffer '%s': its box passes the tensor's shape in dim %d", b->name, d);
    if (!box_product(b->len, b->ndim, MCK_BYTES_MAX, &volume) || b->sub_begin > b->sub_end || b->sub_end > volume)
        return merr_set(err, -EINVAL, "buffer '%s': its range passes its box", b->name);
    if (b->bucket < 0 || b->bucket >= BUCKETS_MAX)
        return merr_set(err, -EINVAL, "buffer '%s': bucket %d is not in 0..%d", b->name, b->bucket, BUCKETS_MAX - 1);
    if (b->pad > MCK_PAD_MAX)
        return merr_set(err, -EINVAL, "buffer '%s': more than %u bytes of padding", b->name, MCK_PAD_MAX);
    if (!b->data && volume)
        return merr_set(err, -EINVAL, "buffer '%s' has no memory", b->name);
    return 0;
}

static uint64_t elements(const struct mck_buffer *b)
{
    struct box box;
    uint64_t from, to;

    buffer_range(b, &box, &from, &to);
    return to - from;
}

uint64_t mck_buffer_bytes(const struct mck_buffer *b)
{
    return elements(b) * dtype_size(b->dtype);
}
