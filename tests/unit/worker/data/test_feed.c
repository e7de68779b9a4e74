/* What a step computes is the same however many replicas share it, whenever it is begun, and loses no document. */
#include "tests/unit/test.h"

#include "tests/unit/worker/corpus_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/philox.h"
#include "scheduler/plan/layout.h"
#include "worker/engine/data/feed.h"
#include "worker/engine/data/order.h"

#define DOCUMENTS 50
#define WORKERS 6
#define BATCH 14
#define LENGTH 200

struct fixture {
    struct corpus_folder folder;
    struct docset *docs;
    struct feed_cfg cfg;
};

/* Document i: "i:" and some more letters. */
static int size_of(int i)
{
    return i % 7 == 3 ? 150 + i % 40 : 5 + i * 5 % 17;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct buf file;

    if (!f || corpus_folder_init(&f->folder, DATA_JSONL, LENGTH) < 0)
        return -1;
    buf_init(&file, 1 << 20);
    for (int i = 0; i < DOCUMENTS; i++)
        (void)buf_printf(&file, "{\"prompt\": \"%02d:\", \"completion\": \"%0*d\"}\n", i, size_of(i) - 3, i);
    corpus_folder_put(&f->folder, file.data, file.len);
    buf_clear(&file);
    if (docset_open(&f->folder.spec, &f->docs, NULL) < 0)
        return -1;
    f->cfg = (struct feed_cfg){
        .docs = f->docs,
        .order = ORDER_SHUFFLE,
        .seed = 3,
        .sequences = BATCH,
        .end = 9,
        .multiple = 1,
        .dp = 1,
        .plan = {.policy = SEQ_SWEEP,
                 .replicas = WORKERS,
                 .ranks = 1,
                 .capacity = 2 * LENGTH,
                 .micro = 2,
                 .cost = {.lin_s = 1e-6, .quad_s = 1e-9, .micro_s = 1e-5, .forward_share = 0.3}},
    };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int rc = corpus_folder_clear(&f->folder);

    docset_close(f->docs);
    free(f);
    return rc;
}

static struct feed *must_open(const struct feed_cfg *cfg)
{
    struct merr err = {""};
    struct feed *f = NULL;

    if (feed_open(cfg, &f, &err) < 0)
        fail_msg("%s", err.text);
    return f;
}

static const struct feed_step *must_take(struct feed *f, uint64_t step)
{
    const struct feed_step *s = NULL;
    struct merr err = {""};

    if (feed_take(f, step, &s, &err) < 0)
        fail_msg("step %llu: %s", (unsigned long long)step, err.text);
    return s;
}

/* A micro-batch as it is computed, in one line. */
static void describe(const struct pack *p, size_t m, struct buf *out)
{
    int32_t tokens[2 * LENGTH + 8], targets[2 * LENGTH + 8];
    uint64_t sample[BATCH + 1];
    const int *length;
    size_t n = pack_pieces(p, m, &length);
    int at = 0;

    assert_in_range(p->rows[m], 1, 2 * LENGTH);
    pack_fill(p, m, tokens, targets);
    pack_samples(p, m, sample);
    for (size_t i = 0; i < n; i++) {
        (void)buf_printf(out, "%llu(", (unsigned long long)sample[i]);
        for (int r = 0; r < length[i]; r++, at++)
            (void)buf_printf(out, "%d>%d ", tokens[at], targets[at]);
        (void)buf_addstr(out, ")");
    }
    assert_int_equal(at, p->rows[m]);
    (void)buf_addstr(out, "\n");
}

/* Steps [first, end) of dp replicas, in the order of the leaves. */
static void run(const struct feed_cfg *base, int dp, uint64_t first, uint64_t end, struct buf *out)
{
    for (uint64_t step = first; step < end; step++)
        for (int r = 0; r < dp; r++) {
            struct feed_cfg cfg = *base;
            const struct feed_step *s;
            struct feed *f;
            int a, b;

            cfg.dp = dp;
            cfg.dp_index = r;
            cfg.first = first;
            f = must_open(&cfg);
            for (uint64_t k = first; k < step; k++)
                (void)must_take(f, k);
            s = must_take(f, step);
            plan_leaves(WORKERS, dp, r, &a, &b);
            assert_int_equal(s->pack.micros, (b - a) * s->per_leaf);
            for (size_t m = 0; m < s->pack.micros; m++)
                describe(&s->pack, m, out);
            feed_close(f);
        }
}

static void leaves_are_the_same_for_any_number_of_replicas_and_any_start(void **state)
{
    struct fixture *f = *state;
    struct buf one, other;

    buf_init(&one, 16 << 20);
    buf_init(&other, 16 << 20);
    for (int policy = 0; policy < SEQ_CHUNK; policy++) {
        f->cfg.plan.policy = (enum seq_policy)policy;
        for (int dp = 1; dp <= WORKERS; dp += 2) {
            buf_reset(&one);
            buf_reset(&other);
            run(&f->cfg, 1, 2, 5, &one);
            run(&f->cfg, dp, 2, 5, &other);
            assert_string_equal(buf_text(&one), buf_text(&other));
            buf_reset(&other);
            run(&f->cfg, dp, 2, 4, &other);
            run(&f->cfg, dp, 4, 5, &other); /* begun anew at step 4 */
            assert_string_equal(buf_text(&one), buf_text(&other));
        }
    }
    assert_false(buf_failed(&one) || buf_failed(&other));
    buf_clear(&one);
    buf_clear(&other);
}

/* Documents of the step that a rank of cp has a row of, and those that it has pieces of, into text. */
static void count_rows(const struct feed_cfg *base, int rank, int *seen, struct buf *shared)
{
    struct feed_cfg cfg = *base;
    struct feed *feed;
    const struct feed_step *s;

    cfg.cp_index = rank;
    feed = must_open(&cfg);
    s = must_take(feed, 0);
    for (size_t m = 0; m < s->pack.micros; m++) {
        const int *whole;
        size_t wholes = pack_wholes(&s->pack, m, &whole);

        assert_in_range(s->pack.rows[m], 1, cfg.plan.capacity);
        assert_in_range(pack_shared(&s->pack, m), 0, 2 * wholes);
        for (size_t i = 0; i < wholes; i++)
            (void)buf_printf(shared, "%d ", whole[i]);
        (void)buf_addstr(shared, "\n");
        for (size_t i = s->pack.first[m]; i < s->pack.first[m + 1]; i++)
            for (int r = s->pack.start[i]; r < s->pack.start[i] + s->pack.length[i]; r++)
                if (s->pack.of[i] != PACK_FILL && r < s->pack.doc[s->pack.of[i]].inputs)
                    seen[s->pack.of[i] * LENGTH + (uint32_t)r]++;
    }
    feed_close(feed);
}

static void ranks_that_share_documents_have_each_row_of_them_once(void **state)
{
    struct fixture *f = *state;
    int *seen = calloc((size_t)BATCH * LENGTH, sizeof(*seen)), cut = 0;
    struct buf first, other;

    assert_non_null(seen);
    buf_init(&first, 1 << 20);
    buf_init(&other, 1 << 20);
    f->cfg.plan.capacity = 80;
    f->cfg.plan.ranks = 3;
    f->cfg.multiple = 2;
    for (int policy = 0; policy < SEQ_CHUNK; policy++) {
        f->cfg.plan.policy = (enum seq_policy)policy;
        if (policy == SEQ_DYNAMIC) /* shares documents among some of the ranks */
            continue;
        memset(seen, 0, (size_t)BATCH * LENGTH * sizeof(*seen));
        for (int rank = 0; rank < f->cfg.plan.ranks; rank++) {
            buf_reset(rank == 0 ? &first : &other);
            count_rows(&f->cfg, rank, seen, rank == 0 ? &first : &other);
            assert_true(rank == 0 || strcmp(buf_text(&first), buf_text(&other)) == 0);
        }
        for (int i = 0; i < BATCH; i++)
            for (int r = 0; r < LENGTH; r++)
                assert_int_equal(seen[i * LENGTH + r],
                                 r < size_of((int)order_index(ORDER_SHUFFLE, 3, (uint64_t)i, DOCUMENTS)));
        cut += strpbrk(buf_text(&first), "123456789") != NULL;
    }
    assert_int_equal(cut, SEQ_CHUNK - 1); /* under each policy some documents are shared */
    buf_clear(&first);
    buf_clear(&other);
    free(seen);
}

static void a_step_has_each_of_its_documents_once_under_every_policy(void **state)
{
    struct fixture *f = *state;

    for (int policy = 0; policy < SEQ_CHUNK; policy++) {
        struct feed *feed;

        f->cfg.plan.policy = (enum seq_policy)policy;
        f->cfg.multiple = 1 + policy % 3;
        f->cfg.plan.capacity = 2 * LENGTH - 4; /* a multiple of 1, 2 and 3 */
        feed = must_open(&f->cfg);
        for (uint64_t step = 0; step < f->cfg.end; step++) {
            const struct feed_step *s = must_take(feed, step);
            int seen[BATCH] = {0};
            int64_t tokens = 0, targets = 0;

            for (size_t m = 0; m < s->pack.micros; m++) {
                assert_int_equal(s->pack.rows[m] % f->cfg.multiple, 0);
                for (size_t i = s->pack.first[m]; i < s->pack.first[m + 1]; i++) {
                    const struct pack_doc *d = &s->pack.doc[s->pack.of[i] == PACK_FILL ? 0 : s->pack.of[i]];
                    int document = (int)order_index(ORDER_SHUFFLE, 3, d->sample, DOCUMENTS);

                    if (s->pack.of[i] == PACK_FILL)
                        continue;
                    seen[d->sample - step * BATCH]++;
                    assert_int_equal(d->inputs, size_of(document));
                    assert_int_equal(d->masked, 2);
                    tokens += d->inputs;
                    targets += d->inputs - 2;
                    assert_true(policy == SEQ_PAD || policy == SEQ_SORTED || s->pack.length[i] == d->inputs);
                }
            }
            for (int i = 0; i < BATCH; i++)
                assert_int_equal(seen[i], 1);
            assert_int_equal(s->tokens, tokens);
            assert_int_equal(s->targets, targets);
            assert_true(s->padding_share >= 0 && s->padding_share < 1);
            assert_true(policy == SEQ_PAD || policy == SEQ_SORTED || s->padding_share == 0);
        }
        feed_close(feed);
    }
}

static void what_is_wrong_with_a_step_is_said_when_it_is_taken(void **state)
{
    struct fixture *f = *state;
    const struct feed_step *s;
    struct merr err = {""};
    struct feed *feed;

    f->cfg.plan.capacity = 100; /* some documents are longer */
    feed = must_open(&f->cfg);
    assert_int_equal(feed_take(feed, 0, &s, &err), -EFBIG);
    assert_non_null(strstr(err.text, "step 0"));
    feed_close(feed);
    docset_close(f->docs);
    f->docs = NULL;
    f->folder.spec.train.data.overlong = OVERLONG_DROP;
    f->folder.spec.train.batch.length = 3;
    assert_int_equal(docset_open(&f->folder.spec, &f->docs, NULL), 0);
    f->cfg.docs = f->docs;
    feed = must_open(&f->cfg);
    assert_int_equal(feed_take(feed, 0, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "left out"));
    feed_close(feed);
}

static void halves_of_the_leaves_have_like_work(void **state)
{
    enum { MOST = 64 };
    const uint32_t key[2] = {7, 11};

    (void)state;
    for (int n = 1; n <= MOST; n++) {
        double weight[MOST], sum[2] = {0, 0}, heaviest = 0;
        int leaf[MOST], seen[MOST] = {0};

        for (int i = 0; i < n; i++) { /* a long tail */
            weight[i] = 1.0 / (1 + (double)philox_permute((uint64_t)i, MOST, key));
            heaviest = weight[i] > heaviest ? weight[i] : heaviest;
        }
        assert_int_equal(feed_deal(weight, n, leaf), 0);
        for (int i = 0; i < n; i++) {
            assert_in_range(leaf[i], 0, n - 1);
            seen[leaf[i]]++;
            sum[i >= n / 2] += weight[leaf[i]];
        }
        for (int i = 0; i < n; i++)
            assert_int_equal(seen[i], 1);
        if (n > 1)
            assert_true(sum[0] - sum[1] <= heaviest && sum[1] - sum[0] <= heaviest);
    }
}

/* One document's parts, in the order of the pack: nothing lost or twice, the last one named. Returns its inputs. */
static int follow_parts(const struct pack *p, size_t *m)
{
    uint32_t doc = p->of[p->first[*m]];
    int sequence = p->part[*m].sequence, at = 0;
    bool last = false;

    for (; !last; (*m)++) {
        size_t i = p->first[*m];

        assert_true(*m < p->micros && p->first[*m + 1] == i + 1);
        assert_int_equal(p->part[*m].sequence, sequence);
        assert_int_equal(p->of[i], doc);
        assert_int_equal(p->start[i], at);
        at += p->length[i];
        last = p->part[*m].last;
        assert_true(last || p->length[i] == 64);
        assert_int_equal(p->part[*m].drop, at + 64 < p->doc[doc].inputs); /* but the last two */
    }
    assert_int_equal(at, p->doc[doc].inputs);
    return at;
}

static void long_documents_come_in_parts(void **state)
{
    struct fixture *f = *state;
    struct feed_cfg cfg = f->cfg;
    int64_t parts = 0;
    struct feed *feed;

    cfg.plan.policy = SEQ_CHUNK;
    cfg.plan.chunk_tokens = 64;
    cfg.plan.keep_chunks = 2;
    cfg.plan.capacity = 128;
    feed = must_open(&cfg);
    for (uint64_t step = 0; step < cfg.end; step++) {
        const struct feed_step *s = must_take(feed, step);
        int64_t tokens = 0;
        int sequences = 0;

        for (size_t m = 0; m < s->pack.micros;) {
            const struct pack *p = &s->pack;

            if (p->part[m].sequence >= 0) {
                assert_int_equal(p->part[m].sequence, sequences++);
                tokens += follow_parts(p, &m);
                parts++;
                continue;
            }
            for (size_t i = p->first[m]; i < p->first[m + 1]; i++)
                tokens += p->of[i] == PACK_FILL ? 0 : p->length[i];
            assert_in_range(p->rows[m++], 1, 64);
        }
        assert_int_equal(tokens, s->tokens);
        assert_int_equal(sequences, s->pack.sequences);
    }
    assert_true(parts > 9);
    feed_close(feed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leaves_are_the_same_for_any_number_of_replicas_and_any_start, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_has_each_of_its_documents_once_under_every_policy, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_that_share_documents_have_each_row_of_them_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_a_step_is_said_when_it_is_taken, setup, teardown),
        cmocka_unit_test(halves_of_the_leaves_have_like_work),
        cmocka_unit_test_setup_teardown(long_documents_come_in_parts, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
