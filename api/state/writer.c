#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/state/buffers.h"
#include "api/state/call.h"
#include "base/clock.h"
#include "base/try.h"

struct mstate_writer {
    struct mck_writer *w;
    struct buffers b;
};

static int set_up(mstate_writer *w, const struct mck_cfg *cfg, const struct mstate_buffer *buffers, size_t n)
{
    TRY(buffers_copy(buffers, n, &w->b, call_error()));
    return mck_writer_new(cfg, w->b.v, w->b.n, &w->w, call_error());
}

EXPORTED int mstate_writer_new(const struct mstate_options *options, const struct mstate_buffer *buffers, size_t n,
                               mstate_writer **ret)
{
    struct mstate_options o;
    struct mck_cfg cfg;
    mstate_writer *w;
    int r;

    TRY(call_struct(&o, sizeof(o), options, "struct mstate_options"));
    if (o.mode < MSTATE_AUTO || o.mode > MSTATE_ZEROCOPY || o.timeout_s < 0 || o.pool_bytes > SIZE_MAX / 2)
        return merr_set(call_error(), -EINVAL, "a mode, timeout or pool of a checkpoint writer is impossible");
    cfg = (struct mck_cfg){.dir = o.dir,
                           .rank = o.rank,
                           .size = o.world,
                           .generation = o.generation,
                           .mode = (enum mck_mode)o.mode,
                           .codec = o.codec ? o.codec : "none",
                           .keep = o.keep,
                           .keep_every = o.keep_every,
                           .pool_bytes = (size_t)o.pool_bytes,
                           .timeout_us = (int64_t)o.timeout_s * 1000000,
                           .hold = true};
    w = calloc(1, sizeof(*w));
    if (!w)
        return merr_set(call_error(), -ENOMEM, "no memory for a checkpoint writer");
    r = set_up(w, &cfg, buffers, n);
    if (r < 0) {
        mstate_writer_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

EXPORTED void mstate_writer_free(mstate_writer *w)
{
    if (!w)
        return;
    mck_writer_free(w->w);
    buffers_clear(&w->b);
    free(w);
}

EXPORTED int mstate_writer_begin(mstate_writer *w, uint64_t step, const char *cursor, uint32_t flags)
{
    json_error_t why;
    json_t *kv;
    int r;

    if (flags & ~MSTATE_SYNC)
        return merr_set(call_error(), -EINVAL, "flags %#x are unknown", flags);
    kv = json_loads(cursor ? cursor : "", JSON_REJECT_DUPLICATES, &why);
    if (!kv)
        return merr_set(call_error(), -EINVAL, "the cursor of step %llu is no JSON: %s", (unsigned long long)step,
                        why.text);
    r = flags & MSTATE_SYNC ? mck_begin_sync(w->w, step, kv, call_error()) : mck_begin(w->w, step, kv, call_error());
    json_decref(kv);
    return r;
}

EXPORTED int mstate_writer_gate(mstate_writer *w, int32_t bucket)
{
    return mck_gate(w->w, bucket, call_error());
}

EXPORTED int mstate_writer_abandon(mstate_writer *w, uint64_t step, const char *why)
{
    return mck_abandon(w->w, step, why ? why : "no reason was given", call_error());
}

EXPORTED int mstate_writer_drain(mstate_writer *w, int64_t timeout_ms)
{
    if (timeout_ms < 0 || timeout_ms > INT64_C(1) << 40)
        return merr_set(call_error(), -EINVAL, "a timeout of %lld ms is impossible", (long long)timeout_ms);
    return mck_drain(w->w, clock_mono_us() + timeout_ms * 1000, call_error());
}

EXPORTED int mstate_writer_next_done(mstate_writer *w, char **ret)
{
    struct mck_done d;

    if (!mck_next_done(w->w, &d))
        return 0;
    TRY(call_text(json_pack("{s:I,s:i,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:i}", "step", (json_int_t)d.step, "code", d.code,
                            "message", d.code ? json_string(d.err.text) : json_null(), "path", json_string(d.path),
                            "bytes", (json_int_t)d.bytes, "stored_bytes", (json_int_t)d.stored_bytes, "capture_us",
                            (json_int_t)d.capture_us, "write_us", (json_int_t)d.write_us, "stall_us",
                            (json_int_t)d.stall_us, "removed", (int)d.removed),
                  ret));
    return 1;
}
