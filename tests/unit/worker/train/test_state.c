/* What the ranks of a layout save together covers each logical tensor once, whatever the layout. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/engine/model/family.h"
#include "worker/engine/train/state.h"

#define LAYERS 5

static struct model_cfg model(int tp, int tp_index)
{
    struct model_cfg c = {.family = &family_gpt2,
                          .layers = LAYERS,
                          .hidden = 24,
                          .heads = 4,
                          .ffn = 100,
                          .context = 10,
                          .vocab = 100,
                          .tied = true};

    assert_int_equal(model_cut(&c, tp, tp_index, NULL), 0);
    return c;
}

struct rank {
    struct model_cfg model;
    struct params p;
    struct mesh mesh;
    struct optim *o;
    struct kern_stream *s;
    float *w;
    struct state_view view;
    struct mck_buffer *list;
    size_t n;
};

static void open_rank(struct rank *r, int tp, int cp, int dp, int pp, int chunks, int rank, int zero)
{
    struct plan_split split = {.layers = LAYERS, .stages = pp * chunks};
    struct layer_range chunk[LAYERS];
    struct optim_cfg oc = {.k = kern_plain(), .leaves = 8, .zero = zero};
    struct kern_cfg kc = {.threads = 1};
    struct state_view v;

    mesh_init(&r->mesh, tp, cp, dp, pp, rank);
    r->model = model(tp, r->mesh.tp_index);
    assert_int_equal(oc.k->stream_new(&kc, &r->s, NULL), 0);
    for (int i = 0; i < chunks; i++)
        plan_split_layers(&split, i * pp + r->mesh.pp_index, &chunk[i].begin, &chunk[i].end);
    assert_int_equal(params_init(&r->p, &r->model, chunk, chunks, r->mesh.first, r->mesh.last, NULL), 0);
    r->w = calloc(r->p.weight_n, sizeof(float));
    params_fill(&r->p, 5, 1, r->w);
    oc.stream = r->s;
    oc.params = &r->p;
    oc.mesh = r->mesh;
    oc.weights = r->w;
    assert_int_equal(optim_new(&oc, &r->o, NULL), 0);
    v = (struct state_view){.params = &r->p,
                            .mesh = &r->mesh,
                            .zero = zero,
                            .weights = r->w,
                            .range = optim_ranges(r->o),
                            .m = optim_m(r->o),
                            .v = optim_v(r->o)};
    /* moments that say where they belong: the weights themselves */
    for (int i = 0; i < 2; i++) {
        const struct optim_range *q = &v.range[i];

        memcpy(v.m + q->state, r->w + q->begin, (q->end - q->begin) * sizeof(float));
        memcpy(v.v + q->state, r->w + q->begin, (q->end - q->begin) * sizeof(float));
    }
    r->view = v;
    assert_int_equal(state_save_list(&v, &r->list, &r->n, NULL), 0);
}

static void close_rank(struct rank *r)
{
    free(r->list);
    optim_free(r->o);
    params_clear(&r->p);
    kern_plain()->stream_free(r->s);
    free(r->w);
}

struct global {
    const struct params *p; /* of the whole model on one rank */
    const float *w;
    int *times[3]; /* by role, [weight_n] */
};

static void scatter(struct global *g, const struct mck_buffer *b)
{
    int role = b->role == MCK_MASTER ? 0 : b->role == MCK_MOMENT1 ? 1 : 2;
    uint64_t cols = b->ndim > 1 ? b->len[1] : b->len[0], n = cols * (b->ndim > 1 ? b->len[0] : 1);
    uint64_t from = b->sub_begin, to = b->sub_end ? b->sub_end : n;
    const struct param *q = NULL;

    for (int i = 0; i < g->p->n; i++)
        if (strcmp(g->p->v[i].name, b->name) == 0)
            q = &g->p->v[i];
    assert_non_null(q);
    assert_true(from < to && to <= n);
    for (uint64_t e = from; e < to; e++) {
        uint64_t row = b->ndim > 1 ? b->off[0] + e / cols : 0, col = (b->ndim > 1 ? b->off[1] : b->off[0]) + e % cols;
        size_t at = q->at + (b->ndim > 1 ? row * b->shape[1] : 0) + col;

        g->times[role][at]++;
        assert_memory_equal((float *)b->data + (e - from), &g->w[at], sizeof(float));
    }
}

static void together_the_ranks_save_every_element_once(void **state)
{
    static const struct {
        int tp, dp, pp, chunks, zero;
    } t[] = {
        {1, 1, 1, 1, 1}, {2, 1, 1, 1, 1}, {4, 1, 1, 1, 1}, {1, 2, 1, 1, 1}, {1, 3, 1, 1, 1},
        {1, 5, 1, 1, 0}, {1, 1, 3, 1, 1}, {2, 2, 2, 1, 1}, {2, 3, 2, 1, 1}, {4, 3, 3, 1, 1},
        {2, 2, 3, 1, 0}, {1, 8, 1, 1, 1}, {1, 1, 2, 2, 1}, {2, 3, 2, 2, 1}, {1, 2, 2, 2, 0},
    };
    struct rank whole;

    (void)state;
    open_rank(&whole, 1, 1, 1, 1, 1, 0, 1);
    for (size_t i = 0; i < COUNT(t); i++) {
        struct global g = {.p = &whole.p, .w = whole.w};

        for (int k = 0; k < 3; k++)
            g.times[k] = calloc(whole.p.weight_n, sizeof(int));
        for (int r = 0; r < t[i].tp * t[i].dp * t[i].pp; r++) {
            struct rank mine = {.n = 0};

            open_rank(&mine, t[i].tp, 1, t[i].dp, t[i].pp, t[i].chunks, r, t[i].zero);
            for (size_t b = 0; b < mine.n; b++)
                if (!mine.list[b].replica)
                    scatter(&g, &mine.list[b]);
            close_rank(&mine);
        }
        for (int k = 0; k < 3; k++) {
            for (int j = 0; j < whole.p.n; j++)
                for (size_t e = 0; e < whole.p.v[j].shape[0] * (whole.p.v[j].ndim > 1 ? whole.p.v[j].shape[1] : 1); e++)
                    assert_int_equal(g.times[k][whole.p.v[j].at + e], 1);
            free(g.times[k]);
        }
    }
    close_rank(&whole);
}

static void every_buffer_of_a_rank_is_there_even_when_another_writes_it(void **state)
{
    struct rank r;
    size_t replicas = 0;

    (void)state;
    open_rank(&r, 2, 1, 1, 2, 1, 3, 1); /* second tensor rank of the last stage: norms and the tied copy */
    for (size_t i = 0; i < r.n; i++)
        replicas += r.list[i].replica;
    assert_true(replicas > 0 && replicas < r.n);
    for (size_t i = 0; i < r.n; i++)
        assert_int_equal(r.list[i].replica, r.list[i].ndim == 1 ? strstr(r.list[i].name, "c_attn") == NULL &&
                                                                      strstr(r.list[i].name, "c_fc") == NULL
                                                                : strcmp(r.list[i].name, "wte.weight") == 0);
    close_rank(&r);
}

/* Of one tensor rank's peers. */
static void what_ranks_that_keep_the_same_load_of_it_is_read_once(void **state)
{
    static const struct {
        int cp, dp, zero;
    } t[] = {{1, 3, 1}, {2, 1, 1}, {2, 3, 1}, {3, 2, 0}, {1, 4, 0}};

    (void)state;
    for (size_t k = 0; k < COUNT(t); k++) {
        int n = t[k].cp * t[k].dp, *readers = NULL;
        struct rank r[8] = {{.n = 0}};

        for (int i = 0; i < n; i++) {
            const struct optim_range *load, *keep;

            open_rank(&r[i], 2, t[k].cp, t[k].dp, 1, 1, 2 * i, t[k].zero);
            readers = readers ? readers : calloc(r[i].p.weight_n, sizeof(*readers));
            load = optim_load_ranges(r[i].o);
            keep = optim_ranges(r[i].o);
            for (int j = 0; j < 2; j++) {
                assert_true(load[j].begin >= keep[j].begin && load[j].end <= keep[j].end);
                assert_int_equal(load[j].begin % PARAM_BLOCK, 0);
                assert_int_equal(load[j].state - keep[j].state, load[j].begin - keep[j].begin);
                for (size_t e = load[j].begin; e < load[j].end; e++)
                    readers[e]++;
            }
        }
        for (size_t e = 0; e < r[0].p.weight_n; e++)
            assert_int_equal(readers[e], 1);
        for (int i = 0; i < n; i++)
            close_rank(&r[i]);
        free(readers);
    }
}

/* --- every layout loads what every other saved --------------------------------------------------------- */

struct cut {
    int tp, dp, pp;
};

static const struct cut cuts[] = {{1, 1, 1}, {2, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 2}, {2, 2, 2}};

#define RANKS_MAX 8
#define SAVE_US (INT64_C(30) * 1000000)

/* Moments that differ from the weights and from each other. */
static void mark(struct rank *r)
{
    for (int i = 0; i < 2; i++) {
        const struct optim_range *q = &r->view.range[i];

        for (size_t e = 0; e < q->end - q->begin; e++) {
            r->view.m[q->state + e] *= 2;
            r->view.v[q->state + e] *= 4;
        }
    }
}

static void wipe(struct rank *r)
{
    for (size_t e = 0; e < r->p.weight_n; e++)
        r->w[e] = -77;
    for (int i = 0; i < 2; i++)
        for (size_t e = 0; e < r->view.range[i].end - r->view.range[i].begin; e++)
            r->view.m[r->view.range[i].state + e] = r->view.v[r->view.range[i].state + e] = -88;
}

struct world {
    struct rank rank[RANKS_MAX];
    struct mck_writer *writer[RANKS_MAX];
    int n;
};

static void open_world(struct world *w, const struct cut *c, const char *dir)
{
    struct merr err = {""};

    w->n = c->tp * c->dp * c->pp;
    for (int i = 0; i < w->n; i++) {
        struct mck_cfg cfg = {.dir = dir, .rank = i, .size = w->n, .generation = 1, .codec = "none", .keep = 100};

        open_rank(&w->rank[i], c->tp, 1, c->dp, c->pp, 1, i, 1);
        mark(&w->rank[i]);
        if (mck_writer_new(&cfg, w->rank[i].list, w->rank[i].n, &w->writer[i], &err))
            fail_msg("%s", err.text);
    }
}

static void close_world(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        mck_writer_free(w->writer[i]);
        close_rank(&w->rank[i]);
    }
}

static void save_world(struct world *w, uint64_t step)
{
    json_t *kv = json_pack("{s:i}", "step", 1); /* the meaning is to be the same */
    struct mck_done d;

    for (int i = 0; i < w->n; i++)
        assert_int_equal(mck_begin(w->writer[i], step, kv, NULL), 0);
    for (int i = w->n; i-- > 0;) {
        assert_int_equal(mck_drain(w->writer[i], clock_mono_us() + SAVE_US, NULL), 0);
        assert_int_equal(mck_next_done(w->writer[i], &d), 1);
        if (d.code)
            fail_msg("%s", d.err.text);
    }
    json_decref(kv);
}

static void load_world(struct world *w, const char *dir, uint64_t step)
{
    struct merr err = {""};
    struct mck *c;

    if (mck_open(dir, step, &c, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < w->n; i++) {
        wipe(&w->rank[i]);
        if (state_load(&w->rank[i].view, c, &err))
            fail_msg("%s", err.text);
    }
    mck_free(c);
}

static void digest_of(const char *dir, uint64_t step, char ret[33])
{
    struct merr err = {""};
    struct mck *c;

    if (mck_open(dir, step, &c, &err) || mck_digest(c, ret, &err))
        fail_msg("%s", err.text);
    mck_free(c);
}

static void what_any_layout_saved_any_other_loads_and_saves_with_the_same_digest(void **state)
{
    char dir[] = "/dev/shm/muster-state-XXXXXX", first[33], hex[33]; /* there: hundreds of syncs */
    struct world w[COUNT(cuts)];
    uint64_t step = COUNT(cuts);

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < COUNT(cuts); i++) {
        open_world(&w[i], &cuts[i], dir);
        save_world(&w[i], i + 1);
        digest_of(dir, i + 1, i ? hex : first);
        assert_string_equal(i ? hex : first, first);
    }
    for (size_t to = 0; to < COUNT(cuts); to++)
        for (size_t from = 0; from < COUNT(cuts); from++) {
            load_world(&w[to], dir, from + 1);
            save_world(&w[to], ++step);
            digest_of(dir, step, hex);
            assert_string_equal(hex, first);
        }
    for (size_t i = 0; i < COUNT(cuts); i++)
        close_world(&w[i]);
    assert_int_equal(io_remove_tree(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_the_ranks_save_every_element_once),
        cmocka_unit_test(every_buffer_of_a_rank_is_there_even_when_another_writes_it),
        cmocka_unit_test(what_ranks_that_keep_the_same_load_of_it_is_read_once),
        cmocka_unit_test(what_any_layout_saved_any_other_loads_and_saves_with_the_same_digest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
