#include "worker/train/pipe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "worker/train/try.h"

enum { SENT_F, SENT_B, GOT_F, GOT_B, REQUESTS };

struct pipe {
    struct stage *st;
    int slots;
    size_t floats; /* of a message: rows · hidden */
    const struct mesh *mesh;
    struct comm_group *pp;
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct flight *flight;
    struct comm_request *(*request)[REQUESTS]; /* [slots] */
    const struct pipe_run *run;
};

int pipe_new(struct stage *st, int slots, size_t floats, const struct mesh *mesh, struct comm_group *pp,
             const struct kern_ops *k, struct kern_stream *s, struct flight *flight, struct pipe **ret,
             struct merr *err)
{
    struct pipe *p = calloc(1, sizeof(*p));

    if (p) {
        *p = (struct pipe){.st = st, .slots = slots, .floats = floats, .mesh = mesh, .pp = pp, .k = k, .stream = s,
                           .flight = flight};
        p->request = calloc(slots, sizeof(*p->request));
    }
    if (!p || !p->request) {
        pipe_free(p);
        return merr_set(err, -ENOMEM, "no memory for a pipeline of %d slots", slots);
    }
    *ret = p;
    return 0;
}

void pipe_free(struct pipe *p)
{
    if (!p)
        return;
    for (int i = 0; p->request && i < p->slots * REQUESTS; i++)
        (void)comm_wait(p->request[i / REQUESTS][i % REQUESTS], NULL);
    free(p->request);
    free(p);
}

static int settle(struct pipe *p, int slot, int which, struct merr *err)
{
    struct comm_request *q = p->request[slot][which];

    p->request[slot][which] = NULL;
    return comm_wait(q, err);
}

static int settle_slot(struct pipe *p, int slot, struct merr *err)
{
    for (int i = 0; i < REQUESTS; i++)
        TRY(settle(p, slot, i, err));
    return 0;
}

static int message(struct pipe *p, const struct action *a, struct merr *err)
{
    int i = a->micro % p->slots;
    struct stage_slot *slot = stage_slot(p->st, i);
    bool forward = a->op == ACT_SF || a->op == ACT_RF;
    uint32_t tag = (uint32_t)a->micro * 2 + !forward;
    size_t bytes = p->floats * sizeof(float);

    assert(p->pp);
    switch (a->op) {
    case ACT_RF:
        TRY(settle_slot(p, i, err));
        return comm_irecv(p->pp, a->peer, tag, slot->in, bytes, &p->request[i][GOT_F], err);
    case ACT_RB:
        TRY(settle(p, i, SENT_F, err)); /* the gradient takes the place of the output */
        return comm_irecv(p->pp, a->peer, tag, slot->out, bytes, &p->request[i][GOT_B], err);
    default:
        TRY(p->k->stream_sync(p->stream, err));
        return comm_isend(p->pp, a->peer, tag, slot->out, bytes, &p->request[i][forward ? SENT_F : SENT_B], err);
    }
}

static int forward(struct pipe *p, int micro, struct merr *err)
{
    const struct pipe_run *run = p->run;
    int i = micro % p->slots;
    struct stage_slot *slot = stage_slot(p->st, i);
    float *grad = NULL;

    flight_phase_set(p->flight, run->tree ? FLIGHT_FORWARD : FLIGHT_EVAL, run->step);
    if (p->mesh->first)
        TRY(settle_slot(p, i, err));
    TRY(run->load(run->arg, micro, slot, err));
    TRY(settle(p, i, GOT_F, err));
    /* The head's gradient is made here, so the last stage opens the leaf; elsewhere any address says "train". */
    if (run->tree && p->mesh->last)
        TRY(tree_leaf(run->tree, run->tree->begin + micro / run->per_leaf, &grad, err));
    else if (run->tree)
        grad = run->tree->pool[0];
    TRY(stage_forward(p->st, slot, grad, run->weight, err));
    if (p->mesh->last)
        run->loss[micro] = slot->loss;
    return 0;
}

static int backward(struct pipe *p, int micro, struct merr *err)
{
    const struct pipe_run *run = p->run;
    int i = micro % p->slots;
    float *grad;

    flight_phase_set(p->flight, FLIGHT_BACKWARD, run->step);
    TRY(settle(p, i, GOT_B, err));
    TRY(tree_leaf(run->tree, run->tree->begin + micro / run->per_leaf, &grad, err));
    TRY(stage_backward(p->st, stage_slot(p->st, i), grad, err));
    return (micro + 1) % run->per_leaf == 0 ? tree_push(run->tree, err) : 0;
}

int pipe_go(struct pipe *p, const struct pipe_run *run, struct merr *err)
{
    const struct action_list *l = &run->schedule->rank[p->mesh->pp_index];

    p->run = run;
    for (size_t i = 0; i < l->n; i++) {
        const struct action *a = &l->v[i];

        if (flight_aborted(p->flight))
            return merr_set(err, -ECANCELED, "told to give up");
        switch (a->op) {
        case ACT_F:
            TRY(forward(p, a->micro, err));
            break;
        case ACT_B:
            TRY(backward(p, a->micro, err));
            break;
        default:
            TRY(message(p, a, err));
        }
    }
    for (int i = 0; i < p->slots; i++)
        TRY(settle_slot(p, i, err));
    return 0;
}
