#include "checkpoint/format/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "checkpoint/format/box.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/format.h"

static const char *const names[MCK_DTYPES] = {
    [MCK_F32] = "F32",          [MCK_BF16] = "BF16",      [MCK_F16] = "F16", [MCK_F64] = "F64", [MCK_I64] = "I64",
    [MCK_I32] = "I32",          [MCK_U8] = "U8",          [MCK_I8] = "I8",   [MCK_I16] = "I16", [MCK_BOOL] = "BOOL",
    [MCK_F8E4M3FN] = "F8_E4M3", [MCK_F8E5M2] = "F8_E5M2", [MCK_U16] = "U16", [MCK_U32] = "U32", [MCK_U64] = "U64",
    [MCK_C64] = "C64", /* it has no c128 */
};

const char *safetensors_dtype(enum mck_dtype dtype)
{
    return names[dtype];
}

void safetensors_clear(struct safetensors *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i].name);
    free(s->v);
    *s = (struct safetensors){0};
}

static int parse_dtype(const json_t *v, struct safetensor *t, struct merr *err)
{
    const char *text = json_string_value(v);

    if (!text)
        return merr_set(err, -EBADMSG, "tensor '%s' has no dtype", t->name);
    for (int i = 0; i < MCK_DTYPES; i++)
        if (names[i] && !strcmp(names[i], text)) {
            t->dtype = (enum mck_dtype)i;
            return 0;
        }
    return merr_set(err, -ENOTSUP, "tensor '%s' has type '%.20s', which Muster does not read", t->name, text);
}

static int parse_size(const json_t *v, uint64_t *ret)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -EBADMSG;
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int parse_tensor(const json_t *v, uint64_t data_len, struct safetensor *t, struct merr *err)
{
    const json_t *shape = json_object_get(v, "shape"), *range = json_object_get(v, "data_offsets");
    uint64_t volume;

    TRY(parse_dtype(json_object_get(v, "dtype"), t, err));
    if (!json_is_array(shape))
        return merr_set(err, -EBADMSG, "tensor '%s' has no shape", t->name);
    if (json_array_size(shape) > MCK_DIMS_MAX)
        return merr_set(err, -ENOTSUP, "tensor '%s' has %zu dims: at most %d are possible", t->name,
                        json_array_size(shape), MCK_DIMS_MAX);
    t->ndim = (int)json_array_size(shape);
    for (int d = 0; d < t->ndim; d++)
        if (parse_size(json_array_get(shape, (size_t)d), &t->shape[d]) || t->shape[d] > MCK_BYTES_MAX)
            return merr_set(err, -EBADMSG, "tensor '%s' has a shape that is no list of sizes", t->name);
    if (json_array_size(range) != 2 || parse_size(json_array_get(range, 0), &t->begin) ||
        parse_size(json_array_get(range, 1), &t->end))
        return merr_set(err, -EBADMSG, "tensor '%s' has no data_offsets", t->name);
    if (!box_product(t->shape, t->ndim, MCK_BYTES_MAX / dtype_size((int)t->dtype), &volume))
        return merr_set(err, -EBADMSG, "tensor '%s' has an impossible shape", t->name);
    if (t->begin > t->end || t->end > data_len || t->end - t->begin != volume * dtype_size((int)t->dtype))
        return merr_set(err, -EBADMSG, "tensor '%s' has data_offsets that do not fit its shape or the file", t->name);
    return 0;
}

static int compare_begin(const void *x, const void *y)
{
    const struct safetensor *a = x, *b = y;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end); /* empty ones first */
}

static int check_touch(const struct safetensors *s, uint64_t data_len, struct merr *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].begin != at)
            return merr_set(err, -EBADMSG, "tensor '%s' overlaps another or leaves a hole before it", s->v[i].name);
        at = s->v[i].end;
    }
    return at == data_len ? 0
                          : merr_set(err, -EBADMSG, "%llu bytes behind the last tensor belong to none",
                                     (unsigned long long)(data_len - at));
}

static bool name_ok(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return n && n <= MCK_NAME_MAX;
}

static int parse_all(json_t *doc, uint64_t data_len, struct safetensors *s, struct merr *err)
{
    const char *name;
    json_t *v;

    s->v = calloc(json_object_size(doc) + 1, sizeof(*s->v));
    if (!s->v)
        return merr_set(err, -ENOMEM, "no memory for %zu tensors", json_object_size(doc));
    json_object_foreach (doc, name, v) {
        if (!strcmp(name, "__metadata__"))
            continue;
        if (!name_ok(name))
            return merr_set(err, -EBADMSG, "a tensor's name is empty, over %u bytes or has control characters",
                            MCK_NAME_MAX);
        s->v[s->n].name = strdup(name);
        if (!s->v[s->n].name)
            return merr_set(err, -ENOMEM, "no memory");
        TRY(parse_tensor(v, data_len, &s->v[s->n++], err));
    }
    if (s->n)
        qsort(s->v, s->n, sizeof(*s->v), compare_begin);
    return check_touch(s, data_len, err);
}

int safetensors_parse(const char *json, size_t len, uint64_t data_len, struct safetensors *ret, struct merr *err)
{
    struct safetensors s = {0};
    json_error_t je;
    json_t *doc;
    int r;

    if (!len || json[0] != '{')
        return merr_set(err, -EBADMSG, "the header does not begin with '{'");
    doc = json_loadb(json, len, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return merr_set(err, -EBADMSG, "the header is no JSON object: %s", je.text);
    }
    r = parse_all(doc, data_len, &s, err);
    json_decref(doc);
    if (r < 0)
        safetensors_clear(&s);
    else
        *ret = s;
    return r;
}
