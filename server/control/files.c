#include "server/control/files.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/report.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/cluster/job.h"
#include "server/http/call.h"
#include "server/store/metrics_read.h"
#include "server/store/spool_parts.h"
#include "server/store/spool_read.h"

#define QUEUE_MAX 4096
#define POINTS_DEFAULT 1000
#define BUCKETS_DEFAULT 500
#define CALLS_MAX 64 /* taken from it at once */

struct files {
    struct spool spool;
    void *owner; /* of the calls that it runs; borrowed */
    struct metrics_cache *metrics;
    struct queue queue;
    bool threaded;
    _Atomic int trouble; /* errno of the last piece that was not stored; 0: all were */
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct files *f = arg;

    thread_begin("files", 0); /* reports wait for it, for half a second */
    for (;;) {
        struct call *list = queue_take(&f->queue, CALLS_MAX, INT64_MAX);

        if (!list && queue_closed(&f->queue))
            return NULL;
        while (list) {
            struct call *call = list;

            list = call->next;
            call->next = NULL;
            call->run(f->owner, call);
        }
    }
}

int files_start(const struct spool *spool, bool thread, void *owner, struct files **ret, struct merr *err)
{
    struct files *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return merr_set(err, -ENOMEM, "out of memory");
    *f = (struct files){.spool = *spool, .owner = owner, .threaded = thread};
    queue_init(&f->queue, QUEUE_MAX);
    f->metrics = metrics_cache_new();
    r = !f->metrics ? ENOMEM : thread ? pthread_create(&f->thread, NULL, serve, f) : 0;
    if (r != 0) {
        files_free(f);
        return merr_errno(err, -r, "cannot start a thread");
    }
    *ret = f;
    return 0;
}

void files_stop(struct files *f)
{
    if (!f)
        return;
    queue_close(&f->queue);
    if (f->threaded)
        (void)pthread_join(f->thread, NULL);
}

bool files_threaded(const struct files *f)
{
    return f->threaded;
}

void files_free(struct files *f)
{
    if (!f)
        return;
    queue_destroy(&f->queue);
    metrics_cache_free(f->metrics);
    free(f);
}

void files_post(struct files *f, struct call *call)
{
    if (!f->threaded && !queue_closed(&f->queue)) {
        call->run(f->owner, call);
        return;
    }
    if (call->req ? queue_put(&f->queue, call) : queue_give(&f->queue, call))
        return;
    call_problem(call, 503, "busy", "more than %d requests wait for files; try again in a second", QUEUE_MAX);
    call_deliver(call);
}

static void set_trouble(struct files *f, int trouble)
{
    int was = atomic_exchange(&f->trouble, trouble);

    if (trouble != 0 && trouble != was)
        log_warn("logs and metrics wait at the agents, for the disk does not take them: %s", strerror(trouble));
    else if (trouble == 0 && was != 0)
        log_info("the disk takes logs and metrics again");
}

int files_trouble(const struct files *f)
{
    return atomic_load(&f->trouble);
}

/* A part of a job's metrics is whole: its index follows. */
static void note_metrics(const struct files *f, const json_t *fresh)
{
    const json_t *piece;
    size_t i;

    json_array_foreach (fresh, i, piece) {
        json_int_t from = json_integer_value(json_object_get(piece, "offset"));

        if (from / SPOOL_PART != json_integer_value(json_object_get(piece, "next_offset")) / SPOOL_PART)
            metrics_note(f->metrics, &f->spool, job_id_parse(json_string_value(json_object_get(piece, "job"))));
    }
}

void files_take_report(struct files *f, struct call *call)
{
    static const enum report_kind kinds[] = {REPORT_LOGS, REPORT_METRICS}; /* events are the core's */

    int trouble = 0;

    call->acks = json_object();
    call->fresh = json_object();
    for (int k = 0; k < 2; k++) {
        json_t *acks = json_array(), *fresh = json_array(), *piece;
        const char *name = report_kind_names[kinds[k]];
        size_t i;

        json_array_foreach (json_object_get(call->body, name), i, piece) {
            int r = trouble == 0 ? spool_take_piece(&f->spool, piece, kinds[k] == REPORT_LOGS, acks, fresh) : 0;

            if (r == -EINVAL)
                call_problem(call, 422, "report-invalid", "piece %zu of '%s' wants job, generation, offset and text", i,
                             name);
            else if (r < 0)
                trouble = -r;
        }
        if (kinds[k] == REPORT_METRICS)
            note_metrics(f, fresh);
        (void)json_object_set_new(call->acks, name, acks);
        (void)json_object_set_new(call->fresh, name, fresh);
    }
    set_trouble(f, trouble);
}

void files_answer_logs(const struct files *f, struct call *call)
{
    const char *grep = http_query(call->req, "grep");
    struct pattern *pattern = NULL;
    struct spool_search search = {.before = call_number(call, "before", 0)};
    struct merr err;
    int r = grep ? pattern_new(grep, &pattern, &err) : 0;

    search.pattern = pattern;
    if (r == -EINVAL) {
        call_problem(call, 422, "query-invalid", "'grep' is no pattern: %s", err.text);
    } else if (r < 0) {
        call_problem(call, 503, "no-memory", "the logs cannot be searched now; try again");
    } else {
        json_t *answer = spool_read_logs(&f->spool, call->job, (int)call_number(call, "rank", -1),
                                         (int)call_number(call, "generation", 0), call_number(call, "offset", 0),
                                         (int)call_number(call, "tail", 0), (int)call_number(call, "since_s", 0),
                                         grep ? &search : NULL);

        (void)json_object_set_new(answer, "complete", json_boolean(call->flag));
        call_answer_new(call, 200, answer);
    }
    pattern_free(pattern);
    call_deliver(call);
}

static bool is_waited_for(void *req)
{
    return !http_gone(req);
}

void files_answer_metrics(const struct files *f, struct call *call)
{
    json_t *answer = metrics_read(f->metrics, &f->spool, call->job, http_query(call->req, "names"),
                                  (int)call_number(call, "points", POINTS_DEFAULT), is_waited_for, call->req);

    if (answer)
        call_answer_new(call, 200, answer);
    else
        call_problem(call, 503, "no-memory", "the metrics cannot be read now; try again");
    call_deliver(call);
}

json_t *files_last_measured(const struct files *f, uint64_t job, const struct call *call)
{
    const char *name = http_query(call->req, "metric");
    json_auto_t *all = metrics_read(f->metrics, &f->spool, job, name, 2, is_waited_for, call->req);
    const json_t *column = json_object_get(json_object_get(all, "metrics"), name);
    json_t *last = NULL;

    for (size_t i = json_array_size(column); i-- > 0 && !last;)
        if (json_is_number(json_array_get(column, i)))
            last = json_incref(json_array_get(column, i));
    return last ? last : json_null();
}

void files_answer_series(const struct files *f, struct call *call)
{
    struct metrics_range range = {http_query(call->req, "names"), call_number(call, "from", 0),
                                  call_number(call, "to", INT64_MAX),
                                  (int)call_number(call, "buckets", BUCKETS_DEFAULT)};

    call->page = metrics_series(f->metrics, &f->spool, call->job, &range, is_waited_for, call->req);
    call->page_is_json = true;
    if (call->page)
        call->status = 200;
    else
        call_problem(call, 503, "no-memory", "the metrics cannot be read now; try again");
    call_deliver(call);
}
