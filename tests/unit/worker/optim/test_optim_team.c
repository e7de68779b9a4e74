/* Replicas whose wire changes its way between steps: they stay the same, and go on as if it had always been so.
 * And ones that are not the same, which they find. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/hash.h"
#include "tests/unit/worker/test_comm_team.inc"
#include "tests/unit/worker/optim/far_memory.h"
#include "worker/engine/model/family.h"
#include "worker/engine/optim/optim_priv.h"

#define STEPS 3 /* of each way */

struct replica {
    struct model_cfg model;
    struct params p;
    struct kern_stream *s;
    struct tree tree;
    struct wire *wire;
    struct optim *o;
    float *pool, *w, *vectors;
    uint16_t *matrices; /* NULL: weights in f32 */
    uint64_t step;
};

static int open_replica(struct comm_world *w, struct replica *b, bool narrow)
{
    const struct kern_ops *k = kern_plain();
    struct wire_cfg wc = {.group = team_all(w, "dp"), .codec = "none", .seed = 3};
    struct kern_cfg kc = {.threads = 1};
    struct optim_cfg oc;
    int me = comm_rank(w);

    *b = (struct replica){.model = {.family = &family_gpt2,
                                    .layers = 2,
                                    .hidden = 8,
                                    .heads = 2,
                                    .ffn = 32,
                                    .context = 4,
                                    .vocab = 70,
                                    .tied = true}};
    GOOD(model_cut(&b->model, 1, 0, &err));
    GOOD(k->stream_new(&kc, &b->s, &err));
    GOOD(params_init(&b->p, &b->model, &(struct layer_range){0, 2}, 1, true, true, &err));
    b->w = calloc(b->p.weight_n, sizeof(float));
    b->pool = calloc(b->p.grad_n, sizeof(float));
    params_fill(&b->p, 1, 1, b->w);
    GOOD(tree_init(&b->tree, k, b->s, me, me + 1, &b->pool, &(struct tree_span){0, b->p.grad_n}, 1, &err));
    GOOD(wire_new(&wc, &b->wire, &err));
    oc = (struct optim_cfg){.k = k,
                            .stream = b->s,
                            .params = &b->p,
                            .leaves = comm_size(w),
                            .zero = 1,
                            .dp = wc.group,
                            .wire = b->wire,
                            .weights = b->w,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8};
    mesh_init(&oc.mesh, 1, 1, comm_size(w), 1, me);
    if (narrow) {
        oc.narrow = true;
        oc.weights = NULL;
        oc.matrices = b->matrices = calloc(b->p.weight_n, sizeof(*b->matrices));
        oc.vectors = b->vectors = calloc(b->p.vector_n, sizeof(*b->vectors));
    }
    GOOD(optim_new(&oc, &b->o, &err));
    for (int i = 0; narrow && i < 2; i++) {
        const struct optim_range *r = &optim_ranges(b->o)[i];

        params_fill_part(&b->p, 1, 2, r->begin, r->end, optim_master(b->o) + r->state);
    }
    if (narrow)
        GOOD(optim_publish(b->o, &err));
    return 0;
}

static void close_replica(struct replica *b)
{
    optim_free(b->o);
    wire_free(b->wire);
    tree_clear(&b->tree);
    params_clear(&b->p);
    kern_plain()->stream_free(b->s);
    free(b->pool);
    free(b->w);
    free(b->vectors);
    free(b->matrices);
}

/* Gradients that push every weight the same way, whichever replica adds them. */
static int steps(struct comm_world *w, struct replica *b, int n)
{
    for (int k = 0; k < n; k++) {
        float *g;

        tree_reset(&b->tree);
        GOOD(optim_begin(b->o, b->step, &err));
        GOOD(tree_leaf(&b->tree, comm_rank(w), &g, &err));
        for (int i = 0; i < b->p.n; i++)
            for (size_t e = 0; e < b->p.v[i].n; e++)
                g[b->p.v[i].at + e] = 0.5f + 0.4f * sinf((float)(e * 7 + b->step));
        GOOD(tree_push(&b->tree, &err));
        GOOD(optim_reduce(b->o, &b->tree, b->step, &err));
        GOOD(optim_update(b->o, ++b->step, 1e-2, 1, &err));
    }
    return 0;
}

static int same_everywhere(struct comm_world *w, const struct replica *b)
{
    int64_t hash = (int64_t)(hash_xxh3(b->w, b->p.weight_n * sizeof(float)) >> 1), both[2] = {hash, -hash};

    GOOD(comm_all_reduce(team_all(w, "hash"), both, 2, COMM_I64, COMM_MAX, &err));
    NEED(both[0] == -both[1]);
    return 0;
}

static int changes_its_way(struct team *t, struct comm_world *w)
{
    static const char *const ways[] = {"none", "sdp4bit", "sdp4bit", "none", "g8", "none"};
    struct replica b;
    struct optim_odd odd;
    float first;

    (void)t;
    NEED(open_replica(w, &b, false) == 0);
    first = b.w[b.p.v[0].at];
    for (size_t i = 0; i < COUNT(ways); i++) {
        GOOD(optim_settle(b.o, &err));
        GOOD(wire_use(b.wire, ways[i], &err));
        GOOD(optim_follow_wire(b.o, &err));
        NEED(steps(w, &b, STEPS) == 0 && same_everywhere(w, &b) == 0);
        GOOD(optim_check_replicas(b.o, 0, 1, &odd, &err));
        NEED(optim_settled(b.o) == !wire_coded(b.wire));
    }
    GOOD(optim_settle(b.o, &err));
    NEED(same_everywhere(w, &b) == 0);
    /* AdamW takes a step of about the learning rate each time, in one direction */
    first -= b.w[b.p.v[0].at];
    NEED(first > 0.5f * 1e-2f * STEPS * COUNT(ways) && first < 1.5f * 1e-2f * STEPS * COUNT(ways));
    close_replica(&b);
    return 0;
}

/* Everything of narrow is what comes of rounding wide, or stands there as it is. */
static int is_rounded(struct comm_world *w, const struct replica *wide, const struct replica *narrow)
{
    for (size_t e = 0; e < wide->p.weight_n; e++)
        NEED(narrow->matrices[e] == bf16_from_float(wide->w[e]));
    for (int i = 0; i < wide->p.n; i++) {
        const struct param *q = &wide->p.v[i];

        if (q->ndim == 1)
            NEED(memcmp(narrow->vectors + q->vector_at, wide->w + q->at, q->n * sizeof(float)) == 0);
    }
    for (int i = 0; i < 2; i++) {
        const struct optim_range *r = &optim_ranges(narrow->o)[i];

        NEED(memcmp(optim_master(narrow->o) + r->state, wide->w + r->begin, (r->end - r->begin) * sizeof(float)) == 0);
    }
    return 0;
}

static int holds_them_in_bf16(struct team *t, struct comm_world *w)
{
    struct replica wide, narrow;
    struct optim_odd odd;

    (void)t;
    NEED(open_replica(w, &wide, false) == 0 && open_replica(w, &narrow, true) == 0);
    NEED(optim_master(wide.o) == NULL && narrow.p.vector_n > 0);
    NEED(is_rounded(w, &wide, &narrow) == 0);
    NEED(steps(w, &wide, STEPS) == 0 && steps(w, &narrow, STEPS) == 0);
    NEED(is_rounded(w, &wide, &narrow) == 0 && optim_settled(narrow.o));
    GOOD(optim_check_replicas(narrow.o, 0, 1, &odd, &err));
    GOOD(optim_share(narrow.o, &err));
    NEED(is_rounded(w, &wide, &narrow) == 0);
    for (int k = 0; k < 2 && comm_size(w) > 1; k++) { /* what one of them has otherwise is found */
        if (comm_rank(w) == 1 && k == 0)
            narrow.matrices[7] ^= 1;
        else if (comm_rank(w) == 1)
            narrow.vectors[7] += 1;
        NEED(optim_check_replicas(narrow.o, 0, 1, &odd, NULL) == -EDOM);
        GOOD(optim_publish(narrow.o, &err));
        NEED(is_rounded(w, &wide, &narrow) == 0);
    }
    close_replica(&narrow);
    close_replica(&wide);
    return 0;
}

static void in_bf16_replicas_hold_the_rounded_weights_and_owners_the_masters(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        team_run(n, TEAM_SHM, 0, holds_them_in_bf16, NULL);
    team_run(2, TEAM_UCX, 0, holds_them_in_bf16, NULL);
}

static void replicas_follow_a_wire_that_changes_its_way(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, changes_its_way, NULL);
    team_run(2, TEAM_UCX, 0, changes_its_way, NULL);
}

/* The same of weights in memory of a device, which only copies reach. */
static int differs_far_away(struct replica *b, bool culprit)
{
    const struct kern_ops far = far_kernels();
    struct optim_odd odd;
    struct merr why;

    b->o->cfg.k = &far;
    b->o->cfg.weights = far_new();
    for (int flip = 0; flip < 2; flip++) {
        ((uint32_t *)b->w)[b->p.weight_n - 1] ^= flip && culprit;
        (void)far_copy(NULL, b->o->cfg.weights, b->w, b->p.weight_n * sizeof(float), NULL);
        if (optim_check_replicas(b->o, 0, 64, &odd, &why) != (flip ? -EDOM : 0))
            return 1;
    }
    b->o->cfg.k = kern_plain();
    b->o->cfg.weights = b->w;
    far_end();
    return 0;
}

static int differs(struct team *t, struct comm_world *w)
{
    int me = comm_rank(w), all = comm_size(w), culprit = all - 2;
    char want[100];
    struct optim_odd odd;
    struct replica b;
    struct merr why;

    (void)t;
    NEED(open_replica(w, &b, false) == 0 && steps(w, &b, 1) == 0);
    GOOD(optim_check_replicas(b.o, 0, 1, &odd, &err));
    if (me == culprit)
        ((uint32_t *)b.w)[b.p.weight_n - 1] ^= 1;
    NEED(optim_check_replicas(b.o, 0, 64, &odd, &why) == -EDOM);
    NEED(odd.alone == (all > 2) && odd.rank == (all > 2 ? culprit : 0));
    (void)snprintf(want, sizeof(want),
                   all > 2 ? "the weights of rank %d are not those that the other %d replicas"
                           : "the weights of ranks 0, 1 are not the same",
                   culprit, all - 1);
    NEED(strstr(why.text, want) != NULL);
    if (me == culprit)
        ((uint32_t *)b.w)[b.p.weight_n - 1] ^= 1;
    GOOD(optim_check_replicas(b.o, 1, 64, &odd, &err));
    NEED(differs_far_away(&b, me == culprit) == 0);
    close_replica(&b);
    return 0;
}

static void a_replica_with_another_bit_is_named_by_all(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, differs, NULL);
    team_run(3, TEAM_SHM, 0, differs, NULL);
    team_run(4, TEAM_UCX, 0, differs, NULL);
}

static void who_is_odd_is_who_is_not_like_most(void **state)
{
    static const struct {
        uint64_t hash[6];
        int n, odd, ret[6];
    } row[] = {
        {{5, 5, 5}, 3, 0, {0}},
        {{5, 6}, 2, 2, {0, 1}},
        {{5, 5, 6}, 3, 1, {2}},
        {{6, 5, 5}, 3, 1, {0}},
        {{5, 6, 7}, 3, 3, {0, 1, 2}},
        {{5, 5, 6, 6}, 4, 4, {0, 1, 2, 3}},
        {{6, 7, 5, 5, 5}, 5, 2, {0, 1}},
        {{6, 7, 5, 5, 8}, 5, 5, {0, 1, 2, 3, 4}},
        {{5, 6, 5, 5, 5, 7}, 6, 2, {1, 5}},
        {{0}, 1, 0, {0}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        int got[6];

        assert_int_equal(optim_odd_ones(row[i].hash, row[i].n, got), row[i].odd);
        assert_memory_equal(got, row[i].ret, row[i].odd * sizeof(int));
    }
}

static void each_weight_has_its_turn(void **state)
{
    static const size_t sizes[] = {1, 1000, 1 << 18, (1 << 18) + 1, 30000000, 1234567891};

    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t next = 0, begin, end;
        uint64_t turn = 0;

        do {
            optim_part(sizes[i], turn++, 64, &begin, &end);
            assert_int_equal(begin, next);
            assert_true(end > begin && end <= sizes[i] && turn <= 64);
            next = end;
        } while (next < sizes[i]);
        optim_part(sizes[i], turn, 64, &begin, &end);
        assert_int_equal(begin, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_bf16_replicas_hold_the_rounded_weights_and_owners_the_masters),
        cmocka_unit_test(replicas_follow_a_wire_that_changes_its_way),
        cmocka_unit_test(a_replica_with_another_bit_is_named_by_all),
        cmocka_unit_test(who_is_odd_is_who_is_not_like_most),
        cmocka_unit_test(each_weight_has_its_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
