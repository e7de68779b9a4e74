#include "api/state/buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/state/call.h"
#include "base/try.h"

_Static_assert(MSTATE_DIMS == MCK_DIMS_MAX, "dims");
_Static_assert((int)MSTATE_OPAQUE == (int)MCK_OPAQUE && (int)MSTATE_C128 == (int)MCK_C128, "roles and types");

static int copy_one(const struct mstate_buffer *from, struct mck_buffer *to, struct merr *err)
{
    struct mstate_buffer b;

    TRY(call_struct(&b, sizeof(b), from, "struct mstate_buffer"));
    if (b.ndim < 0 || b.ndim > MSTATE_DIMS || b.role < 0 || b.dtype < 0 || !b.name)
        return merr_set(err, -EINVAL, "buffer '%s' has an impossible name, role, type or number of dims",
                        b.name ? b.name : "");
    *to = (struct mck_buffer){.name = strdup(b.name),
                              .role = (enum mck_role)b.role,
                              .dtype = (enum mck_dtype)b.dtype,
                              .ndim = b.ndim,
                              .sub_begin = b.sub_begin,
                              .sub_end = b.sub_end,
                              .data = b.data,
                              .bucket = b.bucket,
                              .replica = b.replica != 0};
    memcpy(to->shape, b.shape, sizeof(to->shape));
    memcpy(to->off, b.off, sizeof(to->off));
    memcpy(to->len, b.len, sizeof(to->len));
    return to->name ? 0 : merr_set(err, -ENOMEM, "no memory for names");
}

int buffers_copy(const struct mstate_buffer *from, size_t n, struct buffers *ret, struct merr *err)
{
    const size_t stride = n && from ? from->size : 0;

    *ret = (struct buffers){.v = calloc(n + 1, sizeof(*ret->v))};
    if (!ret->v)
        return merr_set(err, -ENOMEM, "no memory for %zu buffers", n);
    for (; ret->n < n; ret->n++)
        TRY(copy_one((const void *)((const char *)from + ret->n * stride), &ret->v[ret->n], err));
    return 0;
}

void buffers_clear(struct buffers *b)
{
    for (size_t i = 0; i <= b->n && b->v; i++)
        free((char *)b->v[i].name);
    free(b->v);
    *b = (struct buffers){0};
}
