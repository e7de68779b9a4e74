#include "scheduler/sequence/mimose.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (2 * MIMOSE_PLANS_MAX) /* of the cache; half of them stay empty */
#define SURPRISE 1.05                /* of the prediction: beyond it, it was wrong */
#define RAISE 1.10

struct entry {   /* its choice is at choices[index · blocks] */
    int64_t key; /* 0: empty */
    double peak_bytes;
    int checkpointed;
    bool reachable;
};

struct mimose {
    int blocks;
    int preferred;        /* of them, from the first on */
    double budget, fixed; /* bytes; fixed are in use whatever the input */
    double raise;         /* predictions are multiplied by it; 1 until one was too small */
    int64_t x[MIMOSE_SAMPLES_MAX];
    double *bytes;  /* [block · MIMOSE_SAMPLES_MAX + sample], the whole step as one more block */
    size_t samples; /* ever taken */
    bool ready;
    struct mimose_fit *fits; /* of each block, and of the whole step */
    double *predicted;       /* of each block, while a plan is made */
    uint8_t *all;            /* everything checkpointed */
    struct entry *slots;
    uint8_t *choices;
    size_t plans;
    uint64_t made, found;
};

static size_t samples_kept(const struct mimose *m)
{
    return m->samples < MIMOSE_SAMPLES_MAX ? m->samples : MIMOSE_SAMPLES_MAX;
}

static void drop_plans(struct mimose *m)
{
    memset(m->slots, 0, SLOTS * sizeof(m->slots[0]));
    m->plans = 0;
}

int mimose_new(int blocks, double budget_bytes, double static_bytes, struct mimose **ret, struct merr *err)
{
    struct mimose *m;

    if (blocks < 1 || blocks > MIMOSE_BLOCKS_MAX)
        return merr_set(err, -EINVAL, "%d blocks: want 1 to %d", blocks, MIMOSE_BLOCKS_MAX);
    if (!(budget_bytes > static_bytes) || !(static_bytes >= 0) || isinf(budget_bytes))
        return merr_set(err, -EINVAL,
                        "a budget of %.0f bytes with %.0f in use leaves nothing for activations: raise "
                        "it",
                        budget_bytes, static_bytes);
    m = calloc(1, sizeof(*m));
    if (!m)
        return merr_set(err, -ENOMEM, "no memory for a model of %d blocks", blocks);
    m->blocks = blocks;
    m->budget = budget_bytes;
    m->fixed = static_bytes;
    m->raise = 1;
    m->bytes = calloc(((size_t)blocks + 1) * MIMOSE_SAMPLES_MAX, sizeof(m->bytes[0]));
    m->fits = calloc((size_t)blocks + 1, sizeof(m->fits[0]));
    m->predicted = calloc((size_t)blocks, sizeof(m->predicted[0]));
    m->all = malloc((size_t)blocks);
    m->slots = calloc(SLOTS, sizeof(m->slots[0]));
    m->choices = malloc(SLOTS * (size_t)blocks);
    if (!m->bytes || !m->fits || !m->predicted || !m->all || !m->slots || !m->choices) {
        mimose_free(m);
        return merr_set(err, -ENOMEM, "no memory for a model of %d blocks", blocks);
    }
    memset(m->all, 1, (size_t)blocks);
    *ret = m;
    return 0;
}

void mimose_free(struct mimose *m)
{
    if (!m)
        return;
    free(m->bytes);
    free(m->fits);
    free(m->predicted);
    free(m->all);
    free(m->slots);
    free(m->choices);
    free(m);
}

void mimose_prefer(struct mimose *m, int n)
{
    assert(n >= 0 && n < m->blocks && m->plans == 0);
    m->preferred = n;
}

/* --- learning --------------------------------------------------------------------------------------------------- */

static void learn(struct mimose *m)
{
    size_t n = samples_kept(m), sizes = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;

        while (k < i && m->x[k] != m->x[i])
            k++;
        sizes += k == i;
    }
    if (n < MIMOSE_SAMPLES_MIN || (sizes < MIMOSE_SIZES_MIN && n < MIMOSE_SAMPLES_MAX))
        return; /* inputs of one size only: the envelope, once it is clear that no other comes */
    for (int l = 0; l <= m->blocks; l++)
        mimose_fit(m->x, m->bytes + (size_t)l * MIMOSE_SAMPLES_MAX, n, &m->fits[l]);
    m->ready = true;
    m->raise = 1;
    drop_plans(m);
}

int mimose_sample(struct mimose *m, int64_t x, const double *bytes, double whole, struct merr *err)
{
    size_t at = m->samples % MIMOSE_SAMPLES_MAX;

    if (x < 1 || x > MIMOSE_INPUT_MAX || !(whole >= 0) || isinf(whole))
        return merr_set(err, -EINVAL, "a sample of size %" PRId64 " with %g bytes cannot be", x, whole);
    for (int l = 0; l < m->blocks; l++)
        if (!(bytes[l] >= 0) || isinf(bytes[l]))
            return merr_set(err, -EINVAL, "block %d of a sample has %g bytes: want 0 or more", l, bytes[l]);
    m->x[at] = x;
    for (int l = 0; l < m->blocks; l++)
        m->bytes[(size_t)l * MIMOSE_SAMPLES_MAX + at] = bytes[l];
    m->bytes[(size_t)m->blocks * MIMOSE_SAMPLES_MAX + at] = whole;
    m->samples++;
    learn(m);
    return 0;
}

bool mimose_ready(const struct mimose *m)
{
    return m->ready;
}

/* --- planning --------------------------------------------------------------------------------------------------- */

int64_t mimose_quantise(int64_t x)
{
    int64_t step = 8;

    assert(x >= 1 && x <= MIMOSE_INPUT_MAX);
    while (step * 2 <= x / 64)
        step *= 2;
    return (x + step - 1) / step * step;
}

/* The slot of the key, or the empty one where it goes. */
static struct entry *slot_of(const struct mimose *m, int64_t key)
{
    size_t i = ((uint64_t)key * 0x9E3779B97F4A7C15u) >> 51; /* 13 bits */

    _Static_assert(SLOTS == 1 << 13, "the hash gives 13 bits");
    while (m->slots[i].key && m->slots[i].key != key)
        i = (i + 1) % SLOTS;
    return &m->slots[i];
}

/* What a choice leaves out is where the peak lies in backward: a block is rebuilt beside those kept before it. Take
 * one more of what is alive at the peak, the largest first, until it fits. */
static double repair(const struct mimose *m, uint8_t *choice, double limit)
{
    double peak;

    while ((peak = mimose_peak(m->predicted, m->blocks, choice)) > limit) {
        double kept = 0;
        int at = m->blocks, best = -1;

        for (int l = 0; l < m->blocks && at == m->blocks; l++) {
            if (kept + m->predicted[l] >= peak)
                at = l; /* giving it up too would not help: it is rebuilt right there */
            kept += choice[l] ? 0 : m->predicted[l];
        }
        for (int l = 0; l < at; l++)
            if (!choice[l] && (best < 0 || m->predicted[l] > m->predicted[best]))
                best = l;
        if (best < 0)
            break;
        choice[best] = 1;
    }
    return peak;
}

static void make_plan(struct mimose *m, int64_t key, struct entry *e, uint8_t *choice)
{
    double whole = mimose_predict_safe(&m->fits[m->blocks], key) * m->raise, sum = 0, rest, need;
    int n = m->preferred;

    for (int l = 0; l < m->blocks; l++)
        sum += m->predicted[l] = mimose_predict_safe(&m->fits[l], key) * m->raise;
    rest = fmax(0, whole - sum); /* outputs, logits and the like: always there */
    need = rest + sum + m->fixed - m->budget;
    if (n > 0)
        (void)mimose_choose(m->predicted, n, need, false, choice, &need);
    (void)mimose_choose(m->predicted + n, m->blocks - n, need, true, choice + n, NULL);
    e->peak_bytes = repair(m, choice, m->budget - m->fixed - rest) + rest + m->fixed;
    e->key = key;
    e->reachable = e->peak_bytes <= m->budget;
    if (!e->reachable)
        memset(choice, 1, (size_t)m->blocks);
    e->checkpointed = 0;
    for (int l = 0; l < m->blocks; l++)
        e->checkpointed += choice[l];
}

int mimose_plan(struct mimose *m, int64_t x, struct mimose_plan *ret, struct merr *err)
{
    struct entry *e;
    int64_t key;
    bool cached;

    if (x < 1 || x > MIMOSE_INPUT_MAX)
        return merr_set(err, -EINVAL, "an input of size %" PRId64 ": want 1 to %" PRId64, x, MIMOSE_INPUT_MAX);
    key = mimose_quantise(x);
    if (!m->ready) {
        *ret = (struct mimose_plan){
            .key = key, .checkpoint = m->all, .checkpointed = m->blocks, .sheltered = true, .reachable = true};
        return 0;
    }
    e = slot_of(m, key);
    cached = e->key != 0;
    if (!cached) {
        if (m->plans == MIMOSE_PLANS_MAX)
            drop_plans(m);
        e = slot_of(m, key);
        make_plan(m, key, e, m->choices + (size_t)(e - m->slots) * (size_t)m->blocks);
        m->plans++;
    }
    *(cached ? &m->found : &m->made) += 1;
    *ret = (struct mimose_plan){.key = key,
                                .checkpoint = m->choices + (size_t)(e - m->slots) * (size_t)m->blocks,
                                .checkpointed = e->checkpointed,
                                .peak_bytes = e->peak_bytes,
                                .cached = cached,
                                .reachable = e->reachable};
    return 0;
}

bool mimose_observe(struct mimose *m, int64_t x, double measured_bytes)
{
    struct mimose_plan p;
    double active;

    if (!m->ready || mimose_plan(m, x, &p, NULL) || !(measured_bytes > SURPRISE * p.peak_bytes))
        return false;
    active = fmax(p.peak_bytes - m->fixed, 1);
    m->raise *= fmin((measured_bytes - m->fixed) / active, 4);
    drop_plans(m);
    return true;
}

void mimose_overflow(struct mimose *m, int64_t x)
{
    int64_t key = mimose_quantise(x);
    struct entry *kept = NULL;
    size_t n = 0;

    /* Smaller plans stay: they ran. Removing from open addressing means putting the others in again. */
    for (size_t i = 0; i < SLOTS; i++)
        n += m->slots[i].key != 0 && m->slots[i].key < key;
    m->raise *= RAISE;
    if (n == 0) {
        drop_plans(m);
        return;
    }
    kept = malloc(n * (sizeof(kept[0]) + (size_t)m->blocks));
    if (!kept) {
        drop_plans(m);
        return;
    }
    n = 0;
    for (size_t i = 0; i < SLOTS; i++)
        if (m->slots[i].key != 0 && m->slots[i].key < key)
            kept[n++] = m->slots[i];
    for (size_t i = 0; i < n; i++)
        memcpy((uint8_t *)(kept + n) + i * (size_t)m->blocks,
               m->choices + (size_t)(slot_of(m, kept[i].key) - m->slots) * (size_t)m->blocks, (size_t)m->blocks);
    drop_plans(m);
    for (size_t i = 0; i < n; i++) {
        struct entry *e = slot_of(m, kept[i].key);

        *e = kept[i];
        memcpy(m->choices + (size_t)(e - m->slots) * (size_t)m->blocks, (uint8_t *)(kept + n) + i * (size_t)m->blocks,
               (size_t)m->blocks);
        m->plans++;
    }
    free(kept);
}

void mimose_set_budget(struct mimose *m, double budget_bytes, double static_bytes)
{
    assert(budget_bytes > static_bytes && static_bytes >= 0);
    m->budget = budget_bytes;
    m->fixed = static_bytes;
    drop_plans(m);
}

void mimose_counts(const struct mimose *m, uint64_t *ret_made, uint64_t *ret_found)
{
    *ret_made = m->made;
    *ret_found = m->found;
}
