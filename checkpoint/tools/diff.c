/* diff - what two checkpoints mean differently, whatever layouts and codecs wrote them */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/read/read.h"

#define FLOATS 262144u /* elements looked at at once */
#define ELEMENT_MAX 16 /* bytes */

struct diff {
    struct mck *side[2];
    char *data[2];
    float *values[2];
    json_t *tensors; /* those that differ */
    uint64_t same, all;
};

/* What was seen of one tensor in both. */
struct seen {
    uint64_t elements, different, first;
    double largest; /* of differences between floats */
};

static bool same_shape(const struct mck_tensor *a, const struct mck_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0;
}

static void compare_piece(struct diff *d, int dtype, uint64_t at, size_t n, struct seen *s)
{
    size_t size = dtype_size(dtype);
    bool floats = dtype_converts(dtype, MCK_F32);

    if (memcmp(d->data[0], d->data[1], n * size) == 0)
        return;
    for (int i = 0; floats && i < 2; i++)
        dtype_convert(dtype, MCK_F32, d->data[i], d->values[i], n);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(d->data[0] + i * size, d->data[1] + i * size, size) == 0)
            continue;
        if (!s->different++)
            s->first = at + i;
        if (floats && !(fabs((double)d->values[0][i] - d->values[1][i]) <= s->largest))
            s->largest = fabs((double)d->values[0][i] - d->values[1][i]);
    }
}

/* Both hold the tensor in one shape and type. */
static int compare_values(struct diff *d, const struct mck_tensor *t, struct seen *s, struct merr *err)
{
    char name[MCK_NAME_MAX + 1];
    struct mck_buffer b;

    read_describe(d->side[0], t, name, &b, &s->elements);
    for (uint64_t at = 0; at < s->elements; at = b.sub_end) {
        b.sub_begin = at;
        b.sub_end = at + FLOATS < s->elements ? at + FLOATS : s->elements;
        for (int i = 0; i < 2; i++) {
            b.data = d->data[i];
            TRY(mck_load(d->side[i], &b, 1, err));
        }
        compare_piece(d, t->dtype, at, (size_t)(b.sub_end - at), s);
        read_watch_add(d->side[0], (b.sub_end - at) * dtype_size(t->dtype));
    }
    return 0;
}

static int add_difference(struct diff *d, const struct mck *c, const struct mck_tensor *t, const char *what,
                          const struct seen *s, struct merr *err)
{
    json_t *o = json_pack("{s:s%,s:s,s:s}", "name", index_name(&c->ix, t), (size_t)t->name_len, "role",
                          role_name(t->role), "what", what);

    if (o && s)
        (void)json_object_update_new(o, json_pack("{s:I,s:I,s:I}", "elements", (json_int_t)s->elements, "different",
                                                  (json_int_t)s->different, "first", (json_int_t)s->first));
    if (o && s && dtype_converts(t->dtype, MCK_F32)) /* JSON has no NaN or infinity */
        (void)json_object_set_new(o, "largest", isfinite(s->largest) ? json_real(s->largest) : json_null());
    return json_array_append_new(d->tensors, o) ? merr_set(err, -ENOMEM, "no memory to compare checkpoints") : 0;
}

static int compare_tensor(struct diff *d, const struct mck_tensor *a, const struct mck_tensor *b, struct merr *err)
{
    struct seen s = {0};

    if (!same_shape(a, b))
        return add_difference(d, d->side[0], a, "shape", NULL, err);
    if (a->dtype != b->dtype)
        return add_difference(d, d->side[0], a, "type", NULL, err);
    TRY(compare_values(d, a, &s, err));
    if (s.different)
        return add_difference(d, d->side[0], a, "values", &s, err);
    d->same++;
    return 0;
}

/* Tensors stand in the same order in both: by name, then role. */
static int compare_tensors(struct diff *d, struct merr *err)
{
    const struct mck_index *x = &d->side[0]->ix, *y = &d->side[1]->ix;
    size_t i = 0, k = 0;

    for (; i < x->tensors || k < y->tensors; d->all++) {
        int order = i == x->tensors   ? 1
                    : k == y->tensors ? -1
                                      : index_compare(x, &x->tensor[i], index_name(y, &y->tensor[k]),
                                                      y->tensor[k].name_len, y->tensor[k].role);

        if (read_is_layout(x, order <= 0 ? &x->tensor[i] : NULL) ||
            read_is_layout(y, order > 0 ? &y->tensor[k] : NULL)) {
            i += order <= 0;
            k += order >= 0;
            d->all--;
        } else if (order < 0)
            TRY(add_difference(d, d->side[0], &x->tensor[i++], "only in the first", NULL, err));
        else if (order > 0)
            TRY(add_difference(d, d->side[1], &y->tensor[k++], "only in the second", NULL, err));
        else
            TRY(compare_tensor(d, &x->tensor[i++], &y->tensor[k++], err));
    }
    return 0;
}

/* Names in the cursor whose values differ, less what tells how and by whom a checkpoint was written. */
static json_t *compare_cursors(const struct diff *d)
{
    json_t *x = read_meaning(d->side[0]), *y = read_meaning(d->side[1]), *names = json_array(), *v;
    const char *key;

    json_object_foreach (x, key, v) {
        if (!json_equal(v, json_object_get(y, key)))
            (void)json_array_append_new(names, json_string(key));
    }
    json_object_foreach (y, key, v) {
        if (!json_object_get(x, key))
            (void)json_array_append_new(names, json_string(key));
    }
    json_decref(x);
    json_decref(y);
    return names;
}

int mck_diff(struct mck *a, struct mck *b, json_t **ret, struct merr *err)
{
    struct diff d = {.side = {a, b}, .tensors = json_array()};
    json_t *cursor = NULL;
    int r = d.tensors ? 0 : -ENOMEM;

    read_watch_begin(a, read_all_bytes(a));
    for (int i = 0; i < 2; i++) {
        d.data[i] = malloc(FLOATS * ELEMENT_MAX);
        d.values[i] = malloc(FLOATS * sizeof(float));
        if (!d.data[i] || !d.values[i])
            r = -ENOMEM;
    }
    r = r < 0 ? merr_set(err, r, "no memory to compare checkpoints") : compare_tensors(&d, err);
    if (r == 0) {
        cursor = compare_cursors(&d);
        *ret = json_pack("{s:b,s:I,s:I,s:O,s:O}", "same", !json_array_size(d.tensors) && !json_array_size(cursor),
                         "tensors", (json_int_t)d.all, "equal", (json_int_t)d.same, "differences", d.tensors, "cursor",
                         cursor);
        r = *ret ? 0 : merr_set(err, -ENOMEM, "no memory to compare checkpoints");
    }
    for (int i = 0; i < 2; i++) {
        free(d.data[i]);
        free(d.values[i]);
    }
    json_decref(d.tensors);
    json_decref(cursor);
    return r;
}
