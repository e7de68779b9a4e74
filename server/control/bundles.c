#include "server/control/bundles.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "api/bundle.h"
#include "base/log.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/bundle_store.h"

#define EVERY_US (INT64_C(3600) * 1000000)

static void answer(struct call *call, const char *name, const struct bundle_state *is)
{
    call_answer_new(
        call, 200,
        json_pack("{s:s, s:I, s:b}", "name", name, "stored", (json_int_t)is->stored, "complete", is->complete));
}

static void refuse(struct call *call, int r, const struct merr *err)
{
    call_problem(call,
                 r == -ESTALE                    ? 409
                 : r == -E2BIG                   ? 413
                 : r == -EDQUOT                  ? 403
                 : r == -EINVAL || r == -EBADMSG ? 422
                 : r == -ENOSPC                  ? 507
                                                 : 503,
                 r == -ESTALE    ? "upload-offset"
                 : r == -E2BIG   ? "upload-too-large"
                 : r == -EDQUOT  ? "upload-quota"
                 : r == -EINVAL  ? "upload-piece"
                 : r == -EBADMSG ? "upload-unsafe"
                                 : "upload-disk",
                 "%s", err->text);
}

bool bundles_take(const struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0), *user = http_identity(call->req)->user, *body;
    bool writes = strcmp(http_method(call->req), "PUT") == 0;
    int64_t size = call_number(call, "size", -1), offset = call_number(call, "offset", 0);
    struct bundle_state is = {.stored = 0};
    struct merr err = {""};
    size_t len;
    int r;

    if (!c->cfg.bundles)
        call_problem(call, 503, "no-uploads", "this server keeps no uploads");
    else if (!bundle_is_name(name) || (writes && size < 0))
        call_problem(call, 422, "upload-piece", "want a SHA-256 as 64 hex digits%s",
                     writes ? ", and size, the bytes of the whole" : "");
    if (call->status != 0)
        return false;
    body = http_body(call->req, &len);
    r = writes ? bundle_store_put(c->cfg.bundles, user, name, (uint64_t)size, (uint64_t)offset, body, len, &is, &err)
               : bundle_store_look(c->cfg.bundles, user, name, &is);
    if (r == 0)
        answer(call, name, &is);
    else if (r == -ENOENT)
        call_problem(call, 404, "unknown-upload", "you have uploaded nothing of that name");
    else
        refuse(call, r, &err);
    return writes && r == 0 && is.complete && len > 0;
}

bool bundles_are_there(const struct core *c, const struct entry *e, struct merr *why)
{
    int r;

    if (!e->bundle)
        return true;
    r = c->cfg.bundles ? bundle_store_use(c->cfg.bundles, e->job.user, e->bundle, c->now.wall_us) : -ENOENT;
    if (r == -ENOENT)
        (void)merr_set(why, r, "names an upload that you do not have here: `muster submit --upload` makes one");
    else if (r < 0)
        (void)merr_errno(why, r, "names an upload that cannot be read");
    return r == 0;
}

/* On the files' thread. */
static void run_sweep(void *core, struct call *call)
{
    const struct core *c = core;
    int gone = bundle_store_sweep(c->cfg.bundles, json_object_get(call->body, "needed"),
                                  json_integer_value(json_object_get(call->body, "now_us")));

    if (gone > 0)
        log_info("%d uploads that no job needs are gone", gone);
    call_free(call);
}

void bundles_tick(struct core *c)
{
    char path[PATH_MAX];
    struct call *call;
    json_t *needed;

    if (!c->cfg.bundles || c->now.mono_us < c->bundles_due_us)
        return;
    c->bundles_due_us = c->now.mono_us + EVERY_US;
    call = call_new(NULL, run_sweep);
    needed = json_object();
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        if (e && e->bundle && bundle_path("", e->job.user, e->bundle, path) == 0)
            (void)json_object_set_new(needed, path + strlen("/" BUNDLE_FOLDER "/"), json_true());
    }
    if (!call || !(call->body = json_pack("{s:O, s:I}", "needed", needed, "now_us", (json_int_t)c->now.wall_us)))
        call_free(call); /* in an hour */
    else
        files_post(c->files, call);
    json_decref(needed);
}
