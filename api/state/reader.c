#include <errno.h>

#include "api/state/buffers.h"
#include "api/state/call.h"
#include "base/try.h"

/* struct mstate is struct mck under another name. */

static mstate *outside(struct mck *c)
{
    return (mstate *)c;
}

static struct mck *inside(const mstate *c)
{
    return (struct mck *)c;
}

EXPORTED int mstate_list(const char *dir, char **ret)
{
    json_t *all = NULL, *skipped = NULL;
    uint64_t newest;
    int r;

    if (!dir)
        return merr_set(call_error(), -EINVAL, "no checkpoint folder is given");
    TRY(mck_list(dir, &all, call_error()));
    r = mck_latest(dir, &newest, &skipped, call_error());
    if (r < 0) {
        json_decref(all);
        return r;
    }
    return call_text(json_pack("{s:o,s:o}", "checkpoints", all, "skipped", skipped), ret);
}

EXPORTED int mstate_open(const char *dir, uint64_t step, mstate **ret)
{
    struct mck *c;

    if (!dir)
        return merr_set(call_error(), -EINVAL, "no checkpoint folder is given");
    TRY(mck_open(dir, step, &c, call_error()));
    *ret = outside(c);
    return 0;
}

EXPORTED void mstate_free(mstate *c)
{
    mck_free(inside(c));
}

/* Remove a member of each object of an array. */
static void leave_out(json_t *array, const char *member)
{
    json_t *one;
    size_t i;

    json_array_foreach (array, i, one)
        (void)json_object_del(one, member);
}

EXPORTED int mstate_inspect(const mstate *c, uint32_t flags, char **ret)
{
    json_t *doc;

    if (flags & ~MSTATE_BRIEF)
        return merr_set(call_error(), -EINVAL, "flags %#x are unknown", flags);
    doc = mck_inspect(inside(c));
    if (flags & MSTATE_BRIEF) {
        leave_out(json_object_get(doc, "files"), "chunks");
        leave_out(json_object_get(doc, "tensors"), "shards");
    }
    return call_text(doc, ret);
}

static int load(struct mck *c, const struct mstate_buffer *buffers, size_t n, struct buffers *copy)
{
    TRY(buffers_copy(buffers, n, copy, call_error()));
    return mck_load(c, copy->v, copy->n, call_error());
}

EXPORTED int mstate_load(mstate *c, const struct mstate_buffer *buffers, size_t n)
{
    struct buffers b;
    int r = load(inside(c), buffers, n, &b);

    buffers_clear(&b);
    return r;
}
