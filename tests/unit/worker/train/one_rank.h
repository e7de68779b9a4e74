/* one_rank - a training run of one rank in this process, wired as train.c does it, in a folder of its own */
#ifndef MUSTER_TESTS_UNIT_WORKER_ONE_RANK_H
#define MUSTER_TESTS_UNIT_WORKER_ONE_RANK_H

#include "tests/unit/folder.h"

#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/log.h"
#include "worker/engine/train/resume.h"
#include "worker/engine/train/step.h"

struct one_rank {
    struct rank rank;
    struct source source;
    struct shard shard;
    struct handover handover;
    struct save save;
    struct step step;
    struct merr err;
};

/* A folder in memory, beside the test's own. */
static inline const char *one_rank_memory(void)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "/dev/shm%s", strrchr(top, '/'));
    return path;
}

/* Put a value at a path of objects ("train/batch"), o taken over. */
static inline void one_rank_set(json_t *spec, const char *path, json_t *value)
{
    const char *slash = strchr(path, '/');
    char key[64];

    (void)snprintf(key, sizeof(key), "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
    if (slash)
        one_rank_set(json_object_get(spec, key), slash + 1, value);
    else
        assert_int_equal(json_object_set_new(spec, key, value), 0);
}

/* A spec whose fields tests change: a stream of bytes, 12 steps of 8 sequences by 4 virtual workers. New. */
static inline json_t *one_rank_spec(void)
{
    char corpus[8192];

    for (size_t i = 0; i < sizeof(corpus); i++)
        corpus[i] = i % 64 == 63 ? '\n' : (char)('a' + (i * i / 7 + i / 64) % 26);
    assert_int_equal(io_publish_file(at("corpus"), corpus, sizeof(corpus), 0600, NULL), 0);
    return json_pack("{s:s, s:{s:i, s:i}, s:{s:{s:s, s:i, s:i, s:i, s:i, s:i}, s:{s:s, s:f}, s:{s:i, s:i}, s:i,"
                     " s:{s:f}, s:{s:i}, s:{s:i, s:i}}, s:{s:i}, s:{s:i, s:i}}",
                     "name", "one", "devices", "min", 1, "max", 1, "train", "model", "family", "gpt2", "layers", 2,
                     "hidden", 16, "heads", 2, "context", 16, "vocab", 256, "data", "path", at("corpus"), "holdout",
                     0.1, "batch", "sequences", 8, "micro", 1, "steps", 12, "optimizer", "lr", 1e-3, "init", "seed", 7,
                     "eval", "every_steps", 0, "sequences", 4, "parallel", "virtual_workers", 4, "checkpoint",
                     "every_steps", 0, "keep", 2);
}

static inline void one_rank_good(const struct one_rank *o, int code)
{
    if (code < 0)
        fail_msg("%d: %s", code, o->err.text);
}

static inline json_t *one_rank_assignment(json_t *spec)
{
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:{s:i, s:i, s:i, s:i}, s:i, s:[{s:i, s:s, s:i}], s:i, s:o}", "job",
                     "j1", "generation", 1, "dir", top, "node", "n0", "memory", one_rank_memory(), "layout", "tp", 1,
                     "pp", 1, "cp", 1, "dp", 1, "world", 1, "ranks", "rank", 0, "node", "n0", "slot", 0, "threads", 1,
                     "spec", spec);
}

/* Who it is and what it reads; spec is taken over. */
static inline void one_rank_plan(struct one_rank *o, json_t *spec)
{
    json_t *doc = one_rank_assignment(spec);
    char *text = json_dumps(doc, 0);

    log_init("test", LOG_LEVEL_ERROR);
    memset(o, 0, sizeof(*o));
    (void)mkdir(one_rank_memory(), 0700);
    (void)io_remove_tree(at("run"), NULL);
    (void)mkdir(at("run"), 0700);
    (void)mkdir(at("run/rendezvous"), 0700);
    assert_non_null(text);
    one_rank_good(o, run_parse(text, strlen(text), at("run"), 0, &o->rank.run, &o->err));
    free(text);
    json_decref(doc);
    o->rank.spec = o->rank.run.spec;
    o->rank.mesh = &o->rank.run.mesh;
    o->save.rank = o->step.rank = &o->rank;
    o->save.shard = o->step.shard = &o->shard;
    o->save.handover = o->step.handover = &o->handover;
    o->step.source = &o->source;
    o->step.save = &o->save;
    o->step.fault_rank = -1;
    one_rank_good(o, rank_plan(&o->rank, &o->err));
    one_rank_good(o, source_open(&o->source, &o->rank, &o->err));
}

static inline int one_rank_gate(void *arg, int place, struct merr *err)
{
    return save_gate(arg, place, err);
}

/* All up to the first step. */
static inline void one_rank_start(struct one_rank *o, json_t *spec)
{
    struct kern_cfg cfg = {.threads = 1};
    struct shard_place place = {.gate = one_rank_gate, .gate_arg = &o->save};
    struct handover *h = &o->handover;

    one_rank_plan(o, spec);
    one_rank_good(o, flight_create(at("run/rank-00000.flight"), &o->rank.flight, &o->err));
    one_rank_good(o, report_open(o->rank.run.folder, top, 0, &o->rank.report, &o->err));
    one_rank_good(o, kern_find("cpu", &o->rank.k, &o->err));
    one_rank_good(o, source_plan(&o->source, &o->err));
    one_rank_good(o, shard_plan(&o->shard, &o->rank, &o->source, &o->err));
    one_rank_good(o, step_init(&o->step, &o->err));
    handover_open(h, &o->rank, &o->shard, shard_shared_bytes(&o->shard, true));
    one_rank_good(o, rank_meet(&o->rank, shard_shared_bytes(&o->shard, h->files),
                               h->files ? handoff_arena(h->files) : 0, &o->err));
    one_rank_good(o, handover_agree(h, &o->err));
    one_rank_good(o, rank_open_wires(&o->rank, &o->err));
    one_rank_good(o, o->rank.k->stream_new(&cfg, &o->rank.stream, &o->err));
    place.shared = h->files;
    place.m = h->files ? handoff_m(h->files) : NULL;
    place.v = h->files ? handoff_v(h->files) : NULL;
    one_rank_good(o, shard_build(&o->shard, &place, &o->err));
    one_rank_good(o, resume_state(&o->rank, &o->shard, h, &o->err));
    one_rank_good(o, report_cut(o->rank.report, o->shard.step, &o->err));
    one_rank_good(o, source_begin(&o->source, o->shard.step, o->shard.stage[0], &o->err));
}

static inline void one_rank_stop(struct one_rank *o)
{
    struct flight *flight = o->rank.flight;

    save_close(&o->save);
    shard_clear(&o->shard);
    step_clear(&o->step);
    source_close(&o->source);
    rank_clear(&o->rank);
    handover_close(&o->handover);
    if (flight)
        flight_close(flight);
}

/* Nothing of the test before. */
static inline int one_rank_fresh(void **state)
{
    static const char *const left[] = {"run", "checkpoints", "metrics.jsonl", "events.jsonl", "corpus"};

    (void)state;
    for (size_t i = 0; i < COUNT(left); i++)
        (void)io_remove_tree(at(left[i]), NULL);
    (void)io_remove_tree(one_rank_memory(), NULL);
    return 0;
}

static inline int one_rank_remove(void **state)
{
    (void)one_rank_fresh(state);
    return remove_top(state);
}

/* How often a file of the job holds a text. */
static inline int one_rank_count(const char *name, const char *text)
{
    struct buf b;
    int n = 0;

    buf_init(&b, 1 << 20);
    (void)io_read_file(at(name), &b, NULL);
    for (const char *p = b.len > 0 ? buf_text(&b) : ""; (p = strstr(p, text)); p++)
        n++;
    buf_clear(&b);
    return n;
}

#endif
