#include "worker/engine/data/feed.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scheduler/plan/layout.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/engine/data/order.h"

#define AHEAD 2 /* the step that is trained on, and the next */

enum place_state { FREE, READY };

struct feed {
    struct feed_cfg cfg;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows; a place that is FREE is the thread's */
    pthread_cond_t changed;
    struct feed_place {
        enum place_state state;
        struct feed_step step;
        int code; /* why there is none */
        struct merr err;
    } place[AHEAD];
    bool quit;
    /* the thread's own */
    int64_t *tokens, *targets;
    double *weight;
    int *leaf;
};

/* --- dealing ------------------------------------------------------------------------------------------------- */

/* items by falling weight; each goes to the lighter half that has room. other: as many places. */
static void deal(const double *weight, int *item, int *other, int n)
{
    int left = n / 2, right = n - left, at[2] = {0, 0};
    double sum[2] = {0, 0};

    if (n < 2)
        return;
    for (int i = 0; i < n; i++) {
        int side = at[0] == left || (at[1] < right && sum[1] < sum[0]);

        other[side * left + at[side]++] = item[i];
        sum[side] += weight[item[i]];
    }
    memcpy(item, other, (size_t)n * sizeof(*item));
    deal(weight, item, other, left);
    deal(weight, item + left, other, right);
}

struct weighed {
    double weight;
    int item;
};

static int heavier(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->item - y->item;
}

int feed_deal(const double *weight, int n, int *leaf)
{
    struct weighed *v = malloc((size_t)n * sizeof(*v));
    int *other = malloc((size_t)n * sizeof(*other));
    int rc = v && other ? 0 : -ENOMEM;

    for (int i = 0; rc == 0 && i < n; i++)
        v[i] = (struct weighed){weight[i], i};
    if (rc == 0) {
        qsort(v, (size_t)n, sizeof(*v), heavier);
        for (int i = 0; i < n; i++)
            leaf[i] = v[i].item;
        deal(weight, leaf, other, n);
    }
    free(v);
    free(other);
    return rc;
}

/* --- a step ---------------------------------------------------------------------------------------------------- */

static int read_documents(struct feed *f, struct feed_step *s, struct merr *err)
{
    struct docset_info info;
    double squares = 0;

    docset_get_info(f->cfg.docs, &info);
    for (int i = 0; i < f->cfg.sequences; i++) {
        uint64_t number = s->step * (uint64_t)f->cfg.sequences + (uint64_t)i;
        uint64_t at = order_index(f->cfg.order, f->cfg.seed, number, info.documents[DOCSET_TRAIN]);
        int rc = pack_read(&s->pack, f->cfg.docs, DOCSET_TRAIN, at, number, err);

        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < s->pack.docs; i++) {
        const struct pack_doc *d = &s->pack.doc[i];

        f->tokens[i] = d->inputs;
        f->targets[i] = d->inputs - d->masked;
        s->tokens += f->tokens[i];
        s->targets += f->targets[i];
        squares += (double)d->inputs * d->inputs;
    }
    if (s->pack.docs == 0)
        return merr_set(err, -EINVAL,
                        "all %d documents of step %llu are longer than batch.length and left out; raise "
                        "batch.length, or set train.data.overlong to 'cut'",
                        f->cfg.sequences, (unsigned long long)s->step);
    s->mean_length = squares / (double)s->tokens;
    return 0;
}

static const struct seq_micro *micro_of(const struct seq_plan *p, int replica, int64_t j)
{
    return &p->micro[(int64_t)replica * p->micros + j];
}

static int piece_rows(const struct seq_micro *m, const struct seq_piece *piece)
{
    return (int)(m->padded > 0 ? m->padded : piece->tokens);
}

static int pack_micro(struct feed *f, struct feed_step *s, const struct seq_plan *p, const struct seq_micro *m,
                      struct merr *err)
{
    const struct seq_piece *part = m->sequence >= 0 ? &p->pieces[m->first] : NULL;
    int rc;

    if (part)
        return pack_put_part(&s->pack, part->seq, (int)part->start, (int)part->tokens, m->dropped, err);
    rc = pack_begin(&s->pack, err);
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        const struct seq_piece *piece = &p->pieces[m->first + i];

        if (piece->degree > 1)
            rc = pack_put_cut(&s->pack, piece->seq, piece_rows(m, piece), p->config.ranks, f->cfg.cp_index, err);
    }
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        const struct seq_piece *piece = &p->pieces[m->first + i];

        if (piece->degree == 1 && piece->rank == f->cfg.cp_index)
            rc = pack_put(&s->pack, piece->seq, piece_rows(m, piece), err);
    }
    return rc == 0 ? pack_end(&s->pack, f->cfg.multiple, err) : rc;
}

/* Tokens of a piece that are a rank's. */
static int64_t tokens_of(const struct seq_piece *piece, int ranks, int rank)
{
    int64_t tokens = 0;

    if (piece->degree == 1)
        return piece->rank == rank ? piece->tokens : 0;
    for (int i = 0; i < ZIGZAG_PIECES; i++)
        tokens += zigzag_piece(piece->tokens, ranks, rank, i).tokens;
    return tokens;
}

/* Of one rank of a replica in a step. */
struct duty {
    int64_t tokens;
    double busy_s, step_s; /* predicted: what it does itself; until the slowest of the replica has done as much */
};

static struct duty duty_of(const struct feed *f, const struct seq_plan *p, int replica, int rank)
{
    int begin, end, ranks = p->config.ranks;
    struct duty d = {0};

    plan_leaves_shared(f->cfg.share, f->cfg.plan.replicas, f->cfg.dp, replica, &begin, &end);
    for (int64_t k = 0; k < (end - begin) * p->micros; k++) {
        const struct seq_micro *m = micro_of(p, f->leaf[begin + k / p->micros], k % p->micros);

        d.step_s += m->time_s;
        d.busy_s += p->rank_s[(m - p->micro) * ranks + rank] + p->config.cost.micro_s;
        for (size_t i = 0; i < m->n; i++)
            d.tokens += tokens_of(&p->pieces[m->first + i], ranks, rank);
    }
    return d;
}

/* What each rank has to do, for people. */
static void measure(struct feed *f, struct feed_step *s, const struct seq_plan *p)
{
    int ranks = f->cfg.dp * p->config.ranks;
    double slowest = 0, busy = 0;

    for (int i = 0; i < ranks; i++) {
        struct duty d = duty_of(f, p, i / p->config.ranks, i % p->config.ranks);

        s->rank_tokens_min = i == 0 || d.tokens < s->rank_tokens_min ? d.tokens : s->rank_tokens_min;
        s->rank_tokens_max = d.tokens > s->rank_tokens_max ? d.tokens : s->rank_tokens_max;
        slowest = fmax(slowest, d.step_s);
        busy += d.busy_s / ranks;
    }
    s->imbalance = busy > 0 ? slowest / busy : 1;
    s->sharded_share = p->score.sharded_share;
    s->padding_share = p->score.padding_share;
}

static int pack_plan(struct feed *f, struct feed_step *s, const struct seq_plan *p, struct merr *err)
{
    int workers = f->cfg.plan.replicas, begin, end;

    for (int r = 0; r < workers; r++) {
        f->weight[r] = 0;
        for (int64_t j = 0; j < p->micros; j++)
            f->weight[r] += micro_of(p, r, j)->n > 0 ? micro_of(p, r, j)->time_s : 0;
    }
    if (feed_deal(f->weight, workers, f->leaf) < 0)
        return merr_set(err, -ENOMEM, "no memory to deal %d leaves", workers);
    for (int i = 0; s->step % 2 == 1 && i < workers / 2; i++) { /* the heaviest is not always the first replica's */
        int leaf = f->leaf[i];

        f->leaf[i] = f->leaf[workers - 1 - i];
        f->leaf[workers - 1 - i] = leaf;
    }
    s->per_leaf = (int)p->micros;
    plan_leaves_shared(f->cfg.share, workers, f->cfg.dp, f->cfg.dp_index, &begin, &end);
    for (int leaf = begin; leaf < end; leaf++)
        for (int64_t j = 0; j < p->micros; j++) {
            int rc = pack_micro(f, s, p, micro_of(p, f->leaf[leaf], j), err);

            if (rc < 0)
                return rc;
        }
    measure(f, s, p);
    return 0;
}

/* Read the documents of a step and plan them. */
static int plan_step(struct feed *f, uint64_t step, struct feed_step *s, struct seq_plan *ret, struct merr *err)
{
    struct seq_batch batch = {.tokens = f->tokens, .targets = f->targets};
    struct pack keep = s->pack;
    int rc;

    *s = (struct feed_step){.step = step, .pack = keep};
    pack_reset(&s->pack);
    rc = read_documents(f, s, err);
    if (rc < 0)
        return rc;
    batch.n = s->pack.docs;
    rc = seq_plan_make(&f->cfg.plan, &batch, ret, err);
    if (rc < 0)
        return merr_prefix(err, rc == -E2BIG ? -EFBIG : rc, "step %llu", (unsigned long long)step);
    rc = seq_plan_check(ret, &batch, err);
    if (rc < 0)
        seq_plan_clear(ret);
    return rc;
}

static int make_step(struct feed *f, uint64_t step, struct feed_step *s, struct merr *err)
{
    struct seq_plan plan;
    int rc = plan_step(f, step, s, &plan, err);

    if (rc < 0)
        return rc;
    rc = pack_plan(f, s, &plan, err);
    seq_plan_clear(&plan);
    return rc;
}

/* --- one step ahead -------------------------------------------------------------------------------------------- */

static void *run(void *arg)
{
    struct feed *f = arg;

    for (uint64_t step = f->cfg.first; step < f->cfg.end; step++) {
        struct feed_place *at = &f->place[step % AHEAD];
        bool quit;

        (void)pthread_mutex_lock(&f->lock);
        while (at->state != FREE && !f->quit)
            (void)pthread_cond_wait(&f->changed, &f->lock);
        quit = f->quit;
        (void)pthread_mutex_unlock(&f->lock);
        if (quit)
            break;
        at->code = make_step(f, step, &at->step, &at->err);
        (void)pthread_mutex_lock(&f->lock);
        at->state = READY;
        quit = at->code < 0; /* nothing comes after a failure */
        (void)pthread_cond_broadcast(&f->changed);
        (void)pthread_mutex_unlock(&f->lock);
        if (quit)
            break;
    }
    return NULL;
}

/* Until the place is ready, or the deadline has passed. */
static bool wait_ready(struct feed *f, const struct feed_place *at)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FEED_WAIT_S;
    while (at->state != READY)
        if (pthread_cond_timedwait(&f->changed, &f->lock, &until) == ETIMEDOUT)
            return at->state == READY;
    return true;
}

int feed_take(struct feed *f, uint64_t step, const struct feed_step **ret, struct merr *err)
{
    struct feed_place *at = &f->place[step % AHEAD], *last = &f->place[(step + 1) % AHEAD];
    bool ready;

    assert(step >= f->cfg.first && step < f->cfg.end);
    (void)pthread_mutex_lock(&f->lock);
    if (step > f->cfg.first && last->state == READY && last->step.step + 1 == step) {
        last->state = FREE;
        (void)pthread_cond_broadcast(&f->changed);
    }
    ready = wait_ready(f, at);
    (void)pthread_mutex_unlock(&f->lock);
    if (!ready)
        return merr_set(err, -EIO,
                        "the documents of step %llu were not read within %d s; does the corpus's file "
                        "system answer?",
                        (unsigned long long)step, FEED_WAIT_S);
    if (at->code < 0)
        return merr_set(err, at->code, "%s", at->err.text);
    assert(at->step.step == step);
    *ret = &at->step;
    return 0;
}

static int start(struct feed *f, struct merr *err)
{
    pthread_condattr_t attr;
    int rc;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    rc = pthread_create(&f->thread, NULL, run, f);
    if (rc == 0)
        return 0;
    (void)pthread_cond_destroy(&f->changed);
    (void)pthread_mutex_destroy(&f->lock);
    return merr_errno(err, -rc, "cannot start the thread that reads documents");
}

static void release(struct feed *f)
{
    for (int i = 0; i < AHEAD; i++)
        pack_clear(&f->place[i].step.pack);
    free(f->tokens);
    free(f->targets);
    free(f->weight);
    free(f->leaf);
    free(f);
}

/* All but the thread. */
static int prepare(const struct feed_cfg *cfg, struct feed **ret, struct merr *err)
{
    struct feed *f = calloc(1, sizeof(*f));
    size_t n = (size_t)cfg->sequences, workers = (size_t)cfg->plan.replicas;

    if (!f)
        return merr_set(err, -ENOMEM, "no memory to read documents ahead");
    f->cfg = *cfg;
    for (int i = 0; i < AHEAD; i++)
        pack_init(&f->place[i].step.pack);
    f->tokens = calloc(n, sizeof(*f->tokens));
    f->targets = calloc(n, sizeof(*f->targets));
    f->weight = calloc(workers, sizeof(*f->weight));
    f->leaf = calloc(workers, sizeof(*f->leaf));
    if (!f->tokens || !f->targets || !f->weight || !f->leaf) {
        release(f);
        return merr_set(err, -ENOMEM, "no memory for batches of %zu documents", n);
    }
    *ret = f;
    return 0;
}

int feed_plan(const struct feed_cfg *cfg, uint64_t step, struct seq_plan *ret, struct merr *err)
{
    struct feed *f = NULL;
    int rc = prepare(cfg, &f, err);

    if (rc < 0)
        return rc;
    rc = plan_step(f, step, &f->place[0].step, ret, err);
    release(f);
    return rc;
}

int feed_open(const struct feed_cfg *cfg, struct feed **ret, struct merr *err)
{
    struct feed *f = NULL;
    int rc = prepare(cfg, &f, err);

    if (rc < 0)
        return rc;
    rc = start(f, err);
    if (rc < 0) {
        release(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void feed_close(struct feed *f)
{
    if (!f)
        return;
    (void)pthread_mutex_lock(&f->lock);
    f->quit = true;
    (void)pthread_cond_broadcast(&f->changed);
    (void)pthread_mutex_unlock(&f->lock);
    (void)pthread_join(f->thread, NULL);
    (void)pthread_cond_destroy(&f->changed);
    (void)pthread_mutex_destroy(&f->lock);
    release(f);
}
