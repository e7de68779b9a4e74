/* Masters and moments in tiles of a store: the same bits as in memory, whatever tiles cut. */
#include "tests/unit/worker/optim_bench.h"

#include <errno.h>
#include <string.h>

struct shelf { /* a store in memory, of which only the tile at hand may be touched */
    struct optim_store calls;
    float *plane[3], *tile[3];
    size_t n;
    int begun, blank, given, settled;
    bool fails;
};

static int begin(void *arg, bool blank, struct merr *err)
{
    struct shelf *s = arg;

    (void)err;
    s->begun++;
    s->blank = blank;
    s->given = 0;
    return 0;
}

static int take(void *arg, size_t tile, void *ret[3], struct merr *err)
{
    struct shelf *s = arg;
    size_t at = tile * s->calls.tile_n, n = s->n - at < s->calls.tile_n ? s->n - at : s->calls.tile_n;

    if (s->fails && tile == 1)
        return merr_set(err, -EIO, "the shelf is broken");
    assert_int_equal(tile, s->given);
    assert_true(at < s->n);
    for (int p = 0; p < 3; p++) {
        memset(s->tile[p], 0, s->calls.tile_n * sizeof(float));
        if (!s->blank && p > 0)
            memcpy(s->tile[p], s->plane[p] + at, n * sizeof(float));
        ret[p] = s->tile[p];
    }
    return 0;
}

static int give(void *arg, size_t tile, struct merr *err)
{
    struct shelf *s = arg;
    size_t at = tile * s->calls.tile_n, n = s->n - at < s->calls.tile_n ? s->n - at : s->calls.tile_n;

    (void)err;
    for (int p = 0; p < 3; p++)
        memcpy(s->plane[p] + at, s->tile[p], n * sizeof(float));
    s->given++;
    return 0;
}

static int settle(void *arg, struct merr *err)
{
    struct shelf *s = arg;

    (void)err;
    s->settled++;
    return 0;
}

static void make_shelf(struct shelf *s, size_t n, size_t tile_n)
{
    *s = (struct shelf){.n = n};
    s->calls =
        (struct optim_store){.arg = s, .tile_n = tile_n, .begin = begin, .take = take, .give = give, .settle = settle};
    for (int p = 0; p < 3; p++) {
        s->plane[p] = calloc(n, sizeof(float));
        s->tile[p] = calloc(tile_n, sizeof(float));
    }
}

static void clear_shelf(struct shelf *s)
{
    for (int p = 0; p < 3; p++) {
        free(s->plane[p]);
        free(s->tile[p]);
    }
}

static int fill(void *arg, const struct optim_range *r, float *master, float *m, float *v, struct merr *err)
{
    const struct bench *b = arg;

    (void)err;
    memcpy(master, b->w + r->begin, (r->end - r->begin) * sizeof(float));
    for (size_t i = 0; i < r->end - r->begin; i++)
        assert_true(m[i] == 0 && v[i] == 0);
    return 0;
}

static void no_cut_into_tiles_changes_a_bit(void **state)
{
    static const size_t tile_n[] = {PARAM_BLOCK, 3 * PARAM_BLOCK, 3001, 1 << 20};
    struct bench a;
    double sums[256];

    (void)state;
    open_bench(&a, 3);
    for (uint64_t t = 1; t <= 3; t++) {
        run_leaves(&a);
        assert_int_equal(optim_update(a.o, t, 1e-2, 0.5, NULL), 0);
    }
    for (size_t k = 0; k < COUNT(tile_n); k++) {
        struct bench b;
        struct shelf s;

        make_shelf(&s, a.p.weight_n, tile_n[k]);
        open_stored(&b, 3, NULL, NULL, &s.calls);
        assert_null(optim_m(b.o));
        assert_int_equal(optim_state_n(b.o), a.p.weight_n);
        assert_int_equal(optim_store_fill(b.o, fill, &b, NULL), 0);
        for (uint64_t t = 1; t <= 3; t++) {
            run_leaves(&b);
            assert_true((size_t)b.p.tensors <= COUNT(sums));
            assert_int_equal(optim_squares(b.o, sums, NULL), 0);
            assert_int_equal(s.settled, (int)t);
            assert_int_equal(optim_update(b.o, t, 1e-2, 0.5, NULL), 0);
        }
        run_leaves(&b); /* a step that is left out */
        assert_int_equal(optim_carry(b.o, NULL), 0);
        assert_int_equal(s.given, (int)((s.n + tile_n[k] - 1) / tile_n[k]));
        assert_memory_equal(a.w, b.w, a.p.weight_n * sizeof(float));
        assert_memory_equal(a.w, s.plane[0], a.p.weight_n * sizeof(float));
        assert_memory_equal(optim_m(a.o), s.plane[1], a.p.weight_n * sizeof(float));
        assert_memory_equal(optim_v(a.o), s.plane[2], a.p.weight_n * sizeof(float));
        close_bench(&b);
        clear_shelf(&s);
    }
    close_bench(&a);
}

static void a_store_that_fails_ends_the_update(void **state)
{
    struct merr err = {""};
    struct bench b;
    struct shelf s;

    (void)state;
    open_bench(&b, 1);
    make_shelf(&s, b.p.weight_n, PARAM_BLOCK);
    close_bench(&b);
    open_stored(&b, 1, NULL, NULL, &s.calls);
    assert_int_equal(optim_store_fill(b.o, fill, &b, NULL), 0);
    s.fails = true;
    run_leaves(&b);
    assert_int_equal(optim_update(b.o, 1, 1e-2, 1, &err), -EIO);
    assert_string_equal(err.text, "the shelf is broken");
    close_bench(&b);
    clear_shelf(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_into_tiles_changes_a_bit),
        cmocka_unit_test(a_store_that_fails_ends_the_update),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
