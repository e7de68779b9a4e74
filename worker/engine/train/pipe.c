#include "worker/engine/train/pipe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"

enum { SENT_F, SENT_B, GOT_F, GOT_B, REQUESTS };

struct place { /* a micro-batch's slot, and the messages under way to and from it */
    struct stage_slot *slot;
    struct comm_request *request[REQUESTS];
};

struct pipe {
    struct pipe_cfg cfg;
    struct place **place; /* [chunks][slots] */
    const struct pipe_run *run;
};

int pipe_new(const struct pipe_cfg *cfg, struct pipe **ret, struct merr *err)
{
    struct pipe *p = calloc(1, sizeof(*p));

    if (p) {
        p->cfg = *cfg;
        p->place = calloc(cfg->chunks, sizeof(*p->place));
    }
    for (int c = 0; p && p->place && c < cfg->chunks; c++) {
        p->place[c] = calloc(cfg->slots[c], sizeof(**p->place));
        if (!p->place[c])
            goto fail;
        for (int i = 0; i < cfg->slots[c]; i++)
            p->place[c][i].slot = stage_slot(cfg->stage[c], i);
    }
    if (!p || !p->place)
        goto fail;
    *ret = p;
    return 0;
fail:
    pipe_free(p);
    return merr_set(err, -ENOMEM, "no memory for a pipeline of %d chunks", cfg->chunks);
}

void pipe_free(struct pipe *p)
{
    if (!p)
        return;
    for (int c = 0; p->place && c < p->cfg.chunks; c++) {
        for (int i = 0; p->place[c] && i < p->cfg.slots[c]; i++)
            for (int k = 0; k < REQUESTS; k++)
                (void)comm_wait(p->place[c][i].request[k], NULL);
        free(p->place[c]);
    }
    free(p->place);
    free(p);
}

static int settle(struct pipe *p, struct place *at, int which, struct merr *err)
{
    struct comm_request *q = at->request[which];

    at->request[which] = NULL;
    return wire_wait(p->cfg.pp, q, which == GOT_F || which == GOT_B, err);
}

static int settle_all(struct pipe *p, struct place *at, struct merr *err)
{
    for (int i = 0; i < REQUESTS; i++)
        TRY(settle(p, at, i, err));
    return 0;
}

static int chunk_of(const struct pipe *p, const struct action *a)
{
    return a->stage / p->cfg.mesh->pp;
}

static struct place *place_of(const struct pipe *p, const struct action *a)
{
    int c = chunk_of(p, a);

    return &p->place[c][a->micro % p->cfg.slots[c]];
}

/* Whether the action's stage has the model's head. */
static bool is_last(const struct pipe *p, const struct action *a)
{
    return p->cfg.mesh->last && chunk_of(p, a) == p->cfg.chunks - 1;
}

/* Both ends name a message by the stage it is for. */
static uint32_t tag_of(const struct pipe *p, const struct action *a)
{
    bool backward = a->op == ACT_SB || a->op == ACT_RB;
    int to = a->op == ACT_SF ? a->stage + 1 : a->op == ACT_SB ? a->stage - 1 : a->stage;

    return ((uint32_t)to * p->run->schedule->micros + a->micro) * 2 + backward;
}

static int message(struct pipe *p, const struct action *a, struct merr *err)
{
    struct place *at = place_of(p, a);
    size_t n = p->cfg.floats * (p->run->rows ? p->run->rows[a->micro] : p->cfg.rows) / p->cfg.rows;

    assert(p->cfg.pp);
    switch (a->op) {
    case ACT_RF:
        TRY(settle_all(p, at, err));
        return wire_irecv(p->cfg.pp, a->peer, tag_of(p, a), at->slot->in, n, &at->request[GOT_F], err);
    case ACT_RB:
        TRY(settle(p, at, SENT_F, err)); /* the gradient takes the place of the output */
        return wire_irecv(p->cfg.pp, a->peer, tag_of(p, a), at->slot->out, n, &at->request[GOT_B], err);
    default:
        TRY(p->cfg.k->stream_sync(p->cfg.stream, err));
        return wire_isend(p->cfg.pp, a->peer, tag_of(p, a), at->slot->out, n,
                          &at->request[a->op == ACT_SF ? SENT_F : SENT_B], err);
    }
}

/* The buffer for the gradients of a micro-batch in one of the trees, and the end of its leaf. */
static int leaf_of(const struct pipe *p, struct tree *t, int micro, float **ret, struct merr *err)
{
    return tree_leaf(t, t->begin + micro / p->run->per_leaf, ret, err);
}

/* turn: of the micro-batch among those of its direction. */
static int leaf_done(const struct pipe *p, struct tree *t, int turn, struct merr *err)
{
    return (turn + 1) % p->run->per_leaf == 0 ? tree_push(t, err) : 0;
}

static int forward(struct pipe *p, const struct action *a, struct merr *err)
{
    const struct pipe_run *run = p->run;
    struct stage *st = p->cfg.stage[chunk_of(p, a)];
    struct place *at = place_of(p, a);
    struct tree *head = run->tree && is_last(p, a) ? &run->tree[PIPE_TREE_HEAD(p->cfg.chunks)] : NULL;
    float *grad = NULL;

    if (a->stage == 0)
        TRY(settle_all(p, at, err));
    if (run->tree)
        flight_phase_set(p->cfg.flight, FLIGHT_DATA, run->step);
    TRY(run->load(run->arg, a->micro, a->stage == 0 || is_last(p, a), at->slot, err));
    flight_phase_set(p->cfg.flight, run->tree ? FLIGHT_FORWARD : FLIGHT_EVAL, run->step);
    TRY(settle(p, at, GOT_F, err));
    if (head)
        TRY(leaf_of(p, head, a->micro, &grad, err));
    else if (run->tree)
        grad = run->tree->pool[0]; /* any address says "train" */
    TRY(stage_forward(st, at->slot, grad, run->weight, err));
    if (is_last(p, a))
        run->loss[a->micro] = at->slot->loss;
    return head ? leaf_done(p, head, a->micro, err) : 0;
}

struct watch { /* of one backward */
    const struct pipe_run *run;
    struct tree *tree;
};

static int tell(void *arg, int layer, struct merr *err)
{
    struct watch *w = arg;

    return w->run->done(w->run->arg, w->tree, layer, err);
}

/* B, I or W. In a whole backward both trees stand at the same leaf, and so in the same buffer. */
static int backward(struct pipe *p, const struct action *a, struct merr *err)
{
    int chunk = chunk_of(p, a);
    struct tree *input = &p->run->tree[PIPE_TREE_INPUT(chunk)], *weights = &p->run->tree[PIPE_TREE_WEIGHTS(chunk)];
    struct stage *st = p->cfg.stage[chunk];
    struct place *at = place_of(p, a);
    struct watch watch = {p->run, weights};
    const struct schedule *s = p->run->schedule;
    int turn = s->turn ? s->turn[a->micro] : a->micro;
    float *grad, *same;

    stage_watch(st, p->run->done && turn == s->micros - 1 ? tell : NULL, &watch);
    flight_phase_set(p->cfg.flight, FLIGHT_BACKWARD, p->run->step);
    if (a->op == ACT_W) {
        TRY(leaf_of(p, weights, a->micro, &grad, err));
        TRY(stage_backward_weights(st, at->slot, grad, err));
        return leaf_done(p, weights, turn, err);
    }
    TRY(settle(p, at, GOT_B, err));
    TRY(leaf_of(p, input, a->micro, &grad, err));
    if (a->op == ACT_I) {
        TRY(stage_backward_input(st, at->slot, grad, err));
        return leaf_done(p, input, turn, err);
    }
    TRY(leaf_of(p, weights, a->micro, &same, err));
    assert(same == grad);
    TRY(stage_backward(st, at->slot, grad, err));
    TRY(leaf_done(p, input, turn, err));
    return leaf_done(p, weights, turn, err);
}

int pipe_go(struct pipe *p, const struct pipe_run *run, struct merr *err)
{
    const struct action_list *l = &run->schedule->rank[p->cfg.mesh->pp_index];

    p->run = run;
    for (size_t i = 0; i < l->n; i++) {
        const struct action *a = &l->v[i];

        if (flight_aborted(p->cfg.flight))
            return merr_set(err, -ECANCELED, "told to give up");
        switch (a->op) {
        case ACT_F:
            TRY(forward(p, a, err));
            break;
        case ACT_B:
        case ACT_I:
        case ACT_W:
            TRY(backward(p, a, err));
            break;
        default:
            TRY(message(p, a, err));
        }
    }
    for (int c = 0; c < p->cfg.chunks; c++)
        for (int i = 0; i < p->cfg.slots[c]; i++)
            TRY(settle_all(p, &p->place[c][i], err));
    return 0;
}
