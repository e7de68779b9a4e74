#include "worker/engine/train/report.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define PATH_MAX_BYTES 4200
#define REPLICAS_MAX 64 /* whose times are told one by one */
#define LINE_MAX_BYTES 65536
#define METRICS_MAX ((size_t)4 << 30) /* bytes of a job's metrics.jsonl */

struct report {
    int rank;
    int run_metrics, job_metrics, events; /* descriptors, -1: not open */
    char job_path[PATH_MAX_BYTES];
};

static int open_append(const char *folder, const char *name, int *ret, struct merr *err)
{
    char path[PATH_MAX_BYTES];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    *ret = fd;
    return 0;
}

int report_open(const char *folder, const char *dir, int rank, struct report **ret, struct merr *err)
{
    struct report *r = calloc(1, sizeof(*r));
    int code;

    if (!r)
        return merr_set(err, -ENOMEM, "no memory for reports");
    *r = (struct report){.rank = rank, .run_metrics = -1, .job_metrics = -1, .events = -1};
    (void)snprintf(r->job_path, sizeof(r->job_path), "%s/metrics.jsonl", dir);
    code = open_append(folder, "events.jsonl", &r->events, err);
    if (code == 0 && rank == 0)
        code = io_mkdirs(dir, 0755, err);
    if (code == 0 && rank == 0)
        code = open_append(folder, "metrics.jsonl", &r->run_metrics, err);
    if (code != 0) {
        report_free(r);
        return code;
    }
    *ret = r;
    return 0;
}

/* The step of a line of ours: it begins with {"step": N. -1: not one. */
static long long line_step(const char *line)
{
    static const char head[] = "{\"step\": ";
    char *end;
    long long step;

    if (strncmp(line, head, sizeof(head) - 1) != 0)
        return -1;
    step = strtoll(line + sizeof(head) - 1, &end, 10);
    return *end == ',' ? step : -1;
}

/* Whole lines of steps below start, in a new file in place of all lines: a rank of an earlier generation that nobody
 * could stop, on a node that stood still or was cut off, goes on writing into the old one. */
static int keep_before(const char *path, uint64_t start, struct merr *err)
{
    struct buf all, kept;
    int code;

    buf_init(&all, METRICS_MAX);
    buf_init(&kept, METRICS_MAX);
    code = io_read_file(path, &all, err);
    for (char *line = all.data, *end; code == 0 && line && (end = strchr(line, '\n')); line = end + 1) {
        long long step = line_step(line);

        if (step >= 0 && (uint64_t)step < start)
            (void)buf_add(&kept, line, end + 1 - line);
    }
    if (code == 0 && buf_failed(&kept))
        code = merr_set(err, -ENOMEM, "no memory to rewrite '%s'", path);
    if (code == 0)
        code = io_publish_file(path, buf_text(&kept), kept.len, 0644, err);
    buf_clear(&all);
    buf_clear(&kept);
    return code;
}

int report_cut(struct report *r, uint64_t start, struct merr *err)
{
    if (r->rank != 0)
        return 0;
    if (access(r->job_path, F_OK) == 0)
        TRY(keep_before(r->job_path, start, err));
    io_close(&r->job_metrics);
    r->job_metrics = open(r->job_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return r->job_metrics < 0 ? merr_errno(err, -errno, "cannot open '%s'", r->job_path) : 0;
}

void report_free(struct report *r)
{
    if (!r)
        return;
    io_close(&r->run_metrics);
    io_close(&r->job_metrics);
    io_close(&r->events);
    free(r);
}

/* JSON has no NaN and no infinity: null. */
static void number(struct buf *b, const char *key, double v, bool exact)
{
    (void)buf_printf(b, ", \"%s\": ", key);
    if (!isfinite(v))
        (void)buf_addstr(b, "null");
    else if (exact)
        (void)buf_printf(b, "%.17g", v);
    else
        (void)buf_printf(b, "%.3f", v);
}

static void print_documents(struct buf *b, const struct report_step *s)
{
    (void)buf_printf(b, ", \"documents\": %d, \"micro_batches\": %d, \"targets\": %llu", s->documents, s->micro_batches,
                     (unsigned long long)s->targets);
    (void)buf_printf(b, ", \"rank_tokens_min\": %llu, \"rank_tokens_max\": %llu",
                     (unsigned long long)s->rank_tokens_min, (unsigned long long)s->rank_tokens_max);
    number(b, "imbalance", s->imbalance, false);
    number(b, "padding_share", s->padding_share, true);
    if (s->bytes_cp > 0)
        number(b, "sharded_share", s->sharded_share, true);
}

int report_metrics(struct report *r, const struct report_step *s, struct merr *err)
{
    static const char *const wires[REPORT_WIRES][2] = {
        {"wire_tp_ms", "wire_tp_predicted_ms"},
        {"wire_pp_ms", "wire_pp_predicted_ms"},
        {"wire_dp_ms", "wire_dp_predicted_ms"},
    };
    struct buf b;
    int code = 0;

    buf_init(&b, LINE_MAX_BYTES);
    (void)buf_printf(&b, "{\"step\": %llu", (unsigned long long)s->step);
    number(&b, "loss", s->loss, true);
    number(&b, "grad_norm", s->grad_norm, true);
    number(&b, "lr", s->lr, true);
    (void)buf_printf(&b, ", \"tokens\": %llu", (unsigned long long)s->tokens);
    number(&b, "tokens_per_s", s->tokens_per_s, false);
    number(&b, "step_ms", s->step_ms, false);
    number(&b, "mfu", s->mfu, true);
    (void)buf_printf(&b, ", \"bytes_tp\": %llu, \"bytes_pp\": %llu, \"bytes_dp\": %llu",
                     (unsigned long long)s->bytes_tp, (unsigned long long)s->bytes_pp, (unsigned long long)s->bytes_dp);
    if (s->bytes_cp > 0)
        (void)buf_printf(&b, ", \"bytes_cp\": %llu", (unsigned long long)s->bytes_cp);
    number(&b, "stall_ms", s->stall_ms, false);
    number(&b, "activation_mib", s->activation_mib, false);
    number(&b, "recomputed", s->recomputed, false);
    if (s->documents > 0)
        print_documents(&b, s);
    for (int i = 0; i < REPORT_WIRES; i++) {
        if (s->wire_predicted_ms[i] > 0) {
            number(&b, wires[i][0], s->wire_ms[i], false);
            number(&b, wires[i][1], s->wire_predicted_ms[i], false);
        }
    }
    if (s->leaf_ms && s->replicas <= REPLICAS_MAX) {
        for (int i = 0; i < s->replicas; i++)
            (void)buf_printf(&b, "%s%.3f", i ? ", " : ", \"leaf_ms\": [", s->leaf_ms[i]);
        (void)buf_addstr(&b, "]");
    }
    (void)buf_printf(&b, ", \"t\": %.3f, \"generation\": %llu, \"ranks\": %d}\n", (double)clock_wall_us() / 1e6,
                     (unsigned long long)s->generation, s->ranks);
    if (buf_failed(&b))
        code = -ENOMEM;
    if (code == 0)
        code = io_write_all(r->run_metrics, b.data, b.len);
    if (code == 0)
        code = io_write_all(r->job_metrics, b.data, b.len);
    buf_clear(&b);
    return code == 0 ? 0 : merr_errno(err, code, "cannot write the metrics of step %llu", (unsigned long long)s->step);
}

int report_event_take(struct report *r, json_t *event, struct merr *err)
{
    char *text;
    struct buf b;
    int code = -ENOMEM;

    if (!event)
        return merr_set(err, -ENOMEM, "no memory for an event");
    if (!json_object_get(event, "rank"))
        (void)json_object_set_new(event, "rank", json_integer(r->rank));
    text = json_dumps(event, JSON_COMPACT);
    json_decref(event);
    buf_init(&b, LINE_MAX_BYTES);
    if (text && buf_printf(&b, "%s\n", text) == 0)
        code = io_write_all(r->events, b.data, b.len);
    buf_clear(&b);
    free(text);
    return code == 0 ? 0 : merr_errno(err, code, "cannot write an event");
}

int report_note(struct report *r, uint64_t step, const char *message, struct merr *err)
{
    return report_event_take(
        r, json_pack("{s:s, s:I, s:s}", "type", "note", "step", (json_int_t)step, "message", message), err);
}
