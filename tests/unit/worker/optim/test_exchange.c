/* Replicas of forked processes: what owners receive makes the sums of the tree's definition, however early sent and
 * whether leaves are coded or not. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "scheduler/plan/layout.h"
#include "tests/unit/worker/test_comm_team.inc"
#include "worker/engine/model/param.h"
#include "worker/engine/optim/exchange.h"

#define BLOCKS 7 /* of the first region: not all pieces are equal, and with 8 replicas one is empty */
#define REST (BLOCKS * PARAM_BLOCK)
#define TIED PARAM_BLOCK
#define ALL (REST + TIED)
#define TENSOR (REST - 100) /* floats of the first of two: what pads it to blocks is not coded */
#define STEP 5

struct shape {
    int replicas, leaves;
    size_t from[4];   /* where the parts that go early begin, down; 0 ends the list */
    const char *word; /* NULL: not coded */
    size_t bucket;    /* 0: all of a piece at once */
};

static float *coded; /* [leaves][ALL], NULL: leaves are not coded */

static float leaf_value(int leaf, size_t i)
{
    return (float)((leaf * 7919 + (int)(i % 1009) * 31) % 2003) * 1e-3f - 1;
}

static struct keyed *keyed_of(const char *word)
{
    static struct param v[] = {{.n = TENSOR, .id = 0}, {.n = TIED, .at = REST, .id = 1, .copy = true}};
    static const struct params p = {.v = v, .n = 2, .tensors = 2, .rest_n = REST, .tied_n = TIED, .grad_n = ALL};
    struct keyed *k = NULL;

    return keyed_new(word, 11, &p, &k, NULL) == 0 ? k : NULL;
}

/* All leaves as one process codes them in one go. */
static int code_all(struct comm_world *w, const struct shape *s)
{
    struct keyed *k = keyed_of(s->word);

    coded = calloc((size_t)s->leaves * ALL, sizeof(*coded));
    NEED(k && coded);
    for (int leaf = 0; leaf < s->leaves; leaf++) {
        float *g = coded + (size_t)leaf * ALL;

        for (size_t i = 0; i < ALL; i++)
            g[i] = i < TENSOR || i >= REST ? leaf_value(leaf, i) : 0;
        (void)keyed_code_leaf(k, STEP, leaf, g, 0, ALL, NULL, NULL);
    }
    keyed_free(k);
    return 0;
}

/* The definition, without any cleverness. */
static float plain(int leaves, int lo, int size, size_t i)
{
    if (size == 1)
        return coded ? coded[(size_t)lo * ALL + i] : leaf_value(lo, i);
    if (lo + size / 2 >= leaves)
        return plain(leaves, lo, size / 2, i);
    return plain(leaves, lo, size / 2, i) + plain(leaves, lo + size / 2, size / 2, i);
}

static int run_leaves(struct tree *t, struct exchange *x, const struct shape *s, struct merr *err)
{
    for (int leaf = t->begin; leaf < t->end; leaf++) {
        float *g;
        int r = tree_leaf(t, leaf, &g, err);

        if (r != 0)
            return r;
        for (size_t i = 0; i < ALL; i++)
            g[i] += coded && i >= TENSOR && i < REST ? 0 : leaf_value(leaf, i);
        for (int k = 0; leaf == t->end - 1 && s->from[k] > 0; k++) {
            r = tree_push_from(t, s->from[k], err);
            if (r == 0)
                r = exchange_from(x, t, s->from[k], err);
            if (r != 0)
                return r;
        }
        r = tree_push(t, err);
        if (r != 0)
            return r;
    }
    return exchange_rest(x, t, err);
}

static int check_pieces(struct comm_world *w, struct exchange *x, const struct tree *t, const struct exchange_cfg *c)
{
    int root = 1;

    while (root < c->leaves)
        root *= 2;
    for (int r = 0; r < EXCHANGE_REGIONS; r++) {
        size_t begin, n;
        const float *sum;

        exchange_piece(x, r, c->index, &begin, &n);
        sum = exchange_sum(x, r, t);
        for (size_t i = 0; i < n; i++) {
            float want = plain(c->leaves, 0, root, c->region[r].at + begin + i);

            NEED(memcmp(&sum[i], &want, sizeof(want)) == 0);
        }
    }
    return 0;
}

static int leaf_complete(void *arg, int leaf, float *buffer, size_t at, size_t n, struct merr *err)
{
    return exchange_leaf(arg, leaf, buffer, at, n, err);
}

static int replica(struct team *team, struct comm_world *w)
{
    const struct shape *s = team->arg;
    struct exchange_cfg c = {.k = kern_plain(),
                             .group = team_all(w, "dp"),
                             .replicas = s->replicas,
                             .index = comm_rank(w),
                             .leaves = s->leaves,
                             .bucket = s->bucket,
                             .region = {{0, REST}, {REST, TIED}, {0, 0}}};
    struct tree_span span[] = {{0, REST}, {REST, TIED}};
    float *pool[TREE_PARTIALS_MAX];
    struct kern_cfg kc = {.threads = 1};
    struct exchange *x;
    struct tree t;
    int begin, end, rc = 0;

    GOOD(c.k->stream_new(&kc, &c.stream, &err));
    plan_leaves(s->leaves, s->replicas, c.index, &begin, &end);
    for (int i = 0; i < tree_buffers(begin, end); i++)
        pool[i] = calloc(ALL, sizeof(float));
    GOOD(tree_init(&t, c.k, c.stream, begin, end, pool, span, 2, &err));
    if (s->word) {
        c.keyed = keyed_of(s->word);
        rc = code_all(w, s);
    }
    GOOD(exchange_new(&c, &x, &err));
    NEED((s->replicas == 1) == (exchange_bytes(&c) == 0) || s->replicas > 7); /* with 8 a piece is empty */
    if (c.keyed)
        tree_on_complete(&t, leaf_complete, x);
    NEED(exchange_own_nodes(x) >= 1);
    for (int step = 0; step < 2 && rc == 0; step++) { /* the second step begins where nothing is under way */
        tree_reset(&t);
        GOOD(exchange_begin(x, STEP, &err));
        GOOD(run_leaves(&t, x, s, &err));
        rc = check_pieces(w, x, &t, &c);
    }
    NEED(!keyed_broken_take(c.keyed));
    exchange_free(x);
    keyed_free(c.keyed);
    free(coded);
    coded = NULL;
    for (int i = 0; i < t.buffers; i++)
        free(pool[i]);
    tree_clear(&t);
    c.k->stream_free(c.stream);
    return rc;
}

static void owners_finish_the_tree_whatever_was_sent_early(void **state)
{
    static const struct shape t[] = {
        {1, 3, {2048}, NULL, 0},
        {2, 2, {0}, NULL, 0},
        {2, 5, {5 * 1024 + 100, 3000, 1}, NULL, 0},
        {3, 7, {6000}, NULL, 0},
        {3, 3, {7167, 7166, 1024}, NULL, 0},
        {8, 8, {4096}, NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        team_run(t[i].replicas, TEAM_SHM, 0, replica, &t[i]);
        if (i == 2)
            team_run(t[i].replicas, TEAM_UCX, 0, replica, &t[i]);
    }
}

/* With room for three buckets of pieces that have more: early and late ones, whole and not, coded leaves among them. */
static void owners_with_room_for_a_few_buckets_get_the_same_sums(void **state)
{
    static const struct shape t[] = {
        {2, 2, {0}, NULL, PARAM_BLOCK / 4},         {2, 5, {5 * 1024 + 100, 3000, 1}, NULL, PARAM_BLOCK},
        {3, 7, {6000, 100}, NULL, PARAM_BLOCK / 4}, {8, 8, {4096}, NULL, PARAM_BLOCK / 8},
        {2, 16, {4096}, "sdp4bit", PARAM_BLOCK},    {1, 3, {2048}, NULL, PARAM_BLOCK},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        team_run(t[i].replicas, TEAM_SHM, 0, replica, &t[i]);
        if (i == 1)
            team_run(t[i].replicas, TEAM_UCX, 0, replica, &t[i]);
    }
}

/* However much there is of the others, no more of it lies here than the buckets that have room. */
static void an_owner_holds_a_few_buckets_of_the_others(void **state)
{
    struct exchange_cfg c = {.replicas = 8, .leaves = 8, .region = {{0, (size_t)1 << 32}}};

    (void)state;
    assert_int_equal(exchange_bytes(&c), 7 * EXCHANGE_SLOTS * EXCHANGE_BUCKET * sizeof(float));
    c.leaves = 24; /* two nodes each */
    assert_int_equal(exchange_bytes(&c), 14 * EXCHANGE_SLOTS * EXCHANGE_BUCKET * sizeof(float));
    c.region[0].n = (size_t)1 << 20; /* where pieces are smaller, all of them */
    assert_int_equal(exchange_bytes(&c), 14 * (sizeof(float) << 17));
}

static void coded_leaves_make_the_same_sums_on_any_number_of_replicas(void **state)
{
    static const struct shape t[] = {
        {1, 3, {2048}, "sdp4bit", 0},
        {2, 2, {0}, "g8", 0},
        {2, 5, {4096}, "sdp4bit", 0},
        {3, 7, {6144, 2048}, "sdp4bit", 0},
        {2, 16, {4096}, "sdp4bit", 0} /* nodes of 8 travel as sums */,
        {2, 9, {2048}, "g8", 0} /* of 4 and 5 leaves, too */,
        {8, 8, {4096}, "sdp4bit", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        team_run(t[i].replicas, TEAM_SHM, 0, replica, &t[i]);
        if (i == 2)
            team_run(t[i].replicas, TEAM_UCX, 0, replica, &t[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_finish_the_tree_whatever_was_sent_early),
        cmocka_unit_test(owners_with_room_for_a_few_buckets_get_the_same_sums),
        cmocka_unit_test(an_owner_holds_a_few_buckets_of_the_others),
        cmocka_unit_test(coded_leaves_make_the_same_sums_on_any_number_of_replicas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
