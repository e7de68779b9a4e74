/* What a step's micro-batches hold: samples of a stream, all of one length, or documents of any. */
#include "worker/engine/train/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "scheduler/plan/layout.h"
#include "scheduler/plan/memory.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/engine/train/train_impl.h"

#define PLAN_TEXT_MAX ((size_t)256 << 20)
#define ROUNDS 4        /* of a pipeline */
#define CONTEXT_CALLS 3 /* keys and values forward, again in backward, and their gradients */
#define HEADS_CALLS 4   /* with ulysses, there and back in each direction */

/* --- sizes that hold for all steps ------------------------------------------------------------------------- */

static enum schedule_kind kind_of(const struct train *t)
{
    return t->spec->parallel.schedule == PIPELINE_ZB_H1 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
}

/* Rows of a micro-batch come in multiples of this. */
static int multiple_of(const struct train *t)
{
    return t->model.sequence_parallel ? t->mesh->tp : 1;
}

int train_batch_open(struct train *t, struct merr *err)
{
    struct docset_info info;

    if (t->spec->train.data.samples == SAMPLES_STREAM) {
        TRY(data_open(t->spec, &t->data, err));
        data_get_info(t->data, &t->info);
        return 0;
    }
    TRY(docset_open(t->spec, &t->docs, err));
    docset_get_info(t->docs, &info);
    if (strcmp(t->spec->sequence.policy, "chunk") == 0)
        t->cut = t->spec->sequence.chunk_tokens;
    t->info = (struct data_info){
        .length = t->cut > 0 ? t->cut : t->spec->train.batch.capacity,
        .batch = t->spec->train.batch.sequences,
        .train_samples = info.documents[DOCSET_TRAIN],
        .heldout_samples = info.documents[DOCSET_HELDOUT],
        .end_token = -1,
    };
    return 0;
}

/* Rows that each rank has room for of a document that cp ranks share. */
static int rows_of_shared(int length, int cp)
{
    return ZIGZAG_PIECES * (int)zigzag_size(length, cp);
}

static int put_parts(struct pack *p, size_t doc, int size, struct merr *err)
{
    for (int at = 0; at < p->doc[doc].inputs; at += size) {
        int left = p->doc[doc].inputs - at;

        TRY(pack_put_part(p, doc, at, left < size ? left : size, false, err));
    }
    return 0;
}

/* Held-out documents in their order, as many in a micro-batch as it holds; ranks of cp share all of them. */
static int pack_heldout(struct train *t, struct merr *err)
{
    bool open = false;
    int held = 0; /* rows of the one that is open, on each rank */

    pack_init(&t->heldout);
    for (int i = 0; i < t->eval_sequences; i++) {
        struct pack *p = &t->heldout;
        int rows, got = pack_read(p, t->docs, DOCSET_HELDOUT, (uint64_t)i, (uint64_t)i, err);

        if (got < 0)
            return got;
        if (got == 0)
            continue;
        rows = p->doc[p->docs - 1].inputs;
        if (t->mesh->cp > 1)
            rows = rows_of_shared(rows, t->mesh->cp);
        if (open && held + rows > t->info.length) {
            TRY(pack_end(p, multiple_of(t), err));
            open = false;
        }
        if (rows > t->info.length) { /* and so no micro-batch is open */
            TRY(put_parts(p, p->docs - 1, t->cut, err));
            continue;
        }
        if (!open)
            TRY(pack_begin(p, err));
        held = open ? held + rows : rows;
        open = true;
        TRY(t->mesh->cp > 1
                ? pack_put_cut(p, p->docs - 1, p->doc[p->docs - 1].inputs, t->mesh->cp, t->mesh->cp_index, err)
                : pack_put(p, p->docs - 1, rows, err));
    }
    return open ? pack_end(&t->heldout, multiple_of(t), err) : 0;
}

/* Where a replica's held-out micro-batches begin: all parts of a document are one's. */
static int eval_share(const struct train *t, int dp_index)
{
    int at = (int)((long)dp_index * t->eval_micros / t->mesh->dp);
    const struct pack_part *part = t->heldout.part;

    while (t->cut > 0 && at > 0 && at < t->eval_micros && part[at].sequence >= 0 &&
           part[at].sequence == part[at - 1].sequence)
        at--;
    return at;
}

static int plan_eval(struct train *t, struct merr *err)
{
    int mine;

    t->eval_sequences = t->spec->train.eval.sequences;
    if ((uint64_t)t->eval_sequences > t->info.heldout_samples)
        t->eval_sequences = (int)t->info.heldout_samples;
    if (t->docs)
        TRY(pack_heldout(t, err));
    t->eval_micros = t->docs ? (int)t->heldout.micros : (t->eval_sequences + t->micro - 1) / t->micro;
    t->eval_begin = eval_share(t, t->mesh->dp_index);
    t->eval_end = eval_share(t, t->mesh->dp_index + 1);
    mine = t->eval_end - t->eval_begin;
    t->eval_sums = calloc(2 * (size_t)t->eval_micros + 1, sizeof(*t->eval_sums));
    if (!t->eval_sums)
        return merr_set(err, -ENOMEM, "no memory for %d held-out micro-batches", t->eval_micros);
    return mine > 0 ? schedule_new(SCHEDULE_FORWARD, t->mesh->pp, t->chunks, mine, &t->eval_schedule, err) : 0;
}

/* Documents in parts, of which the first waits for the last: slots for the longest and what is under way beside it,
 * and activations of what is kept and at work. */
static void plan_parts(struct train *t)
{
    int most = (t->spec->train.batch.length + t->cut - 1) / t->cut + t->mesh->pp + 1;
    int at_once = t->spec->sequence.keep_chunks + t->mesh->pp;

    t->slots[0] = most > t->slots[0] ? most : t->slots[0];
    t->bodies = at_once < t->slots[0] ? at_once : t->slots[0];
}

/* Slots that any number of micro-batches makes do with: from some rounds of the pipeline on, more take no more. */
static int plan_any_slots(struct train *t, struct merr *err)
{
    for (int micros = 1; micros <= ROUNDS * t->mesh->pp; micros++) {
        struct schedule *s = NULL;

        TRY(schedule_new(kind_of(t), t->mesh->pp, t->chunks, micros, &s, err));
        for (int i = 0; i < t->chunks; i++) {
            int n = plan_slots(s, t->eval_schedule, t->mesh->pp_index, i);

            t->slots[i] = n > t->slots[i] ? n : t->slots[i];
        }
        schedule_free(s);
    }
    return 0;
}

static int plan_sizes(struct train *t, struct merr *err)
{
    int v = t->spec->parallel.virtual_workers;

    t->length = t->docs ? t->info.length : t->info.length / t->mesh->cp;
    plan_leaves_shared(t->run.share, v, t->mesh->dp, t->mesh->dp_index, &t->leaf_begin, &t->leaf_end);
    t->buffers = tree_buffers(t->leaf_begin, t->leaf_end);
    if (t->docs) {
        t->micro = t->per_leaf = t->micros = 1; /* the last two are each step's own */
    } else {
        TRY(run_micro(t->spec, &t->micro, err));
        t->per_leaf = t->info.batch / v / t->micro;
        t->micros = (t->leaf_end - t->leaf_begin) * t->per_leaf;
    }
    if (t->micro * t->length % multiple_of(t) != 0)
        return merr_set(err, -EINVAL,
                        "sequence_parallel cannot share a micro-batch of %d tokens among tp %d; want a "
                        "multiple",
                        t->micro * t->length, t->mesh->tp);
    if (t->docs || t->mesh->cp == 1)
        return 0;
    t->samples = calloc(2 * (size_t)t->micro * t->info.length, sizeof(*t->samples));
    return t->samples ? 0 : merr_set(err, -ENOMEM, "no memory for %d samples", t->micro);
}

int train_batch_plan(struct train *t, struct merr *err)
{
    TRY(plan_sizes(t, err));
    TRY(schedule_new(kind_of(t), t->mesh->pp, t->chunks, t->micros, &t->schedule, err));
    TRY(plan_eval(t, err));
    t->slots = calloc(t->chunks, sizeof(*t->slots));
    for (int i = 0; t->slots && i < t->chunks; i++)
        t->slots[i] = plan_slots(t->schedule, t->eval_schedule, t->mesh->pp_index, i);
    if (t->slots && t->docs)
        TRY(plan_any_slots(t, err));
    if (t->slots && t->cut > 0)
        plan_parts(t);
    t->squares = (size_t)t->params.tensors * t->mesh->tp;
    t->loss = calloc(t->micros, sizeof(*t->loss));
    t->sums = calloc(t->squares + t->spec->parallel.virtual_workers + SUM_EXTRAS + t->mesh->dp, sizeof(*t->sums));
    return t->slots && t->loss && t->sums ? 0 : merr_set(err, -ENOMEM, "no memory for a step's sums");
}

int train_batch_docs(const struct train *t)
{
    int most = t->info.batch > t->eval_sequences ? t->info.batch : t->eval_sequences;

    if (!t->docs)
        return 0;
    return (most < t->info.length ? most : t->info.length) + 1; /* one of rows that fill up */
}

/* --- documents ahead --------------------------------------------------------------------------------------- */

/* What planners reckon with: a processor's or a GPU's usual speed, not this one's, for plans must be the same on every
 * rank and after every restart. */
static struct seq_cost cost_of(const struct model_cfg *m, bool gpu, int cp, enum cp_mode mode)
{
    double rate = gpu ? 2e14 : 1e11, layer_s = gpu ? 600e-6 : 50e-6, byte_s = gpu ? 6e-12 : 2e-10, call_s = 50e-6;
    double line = model_flops_per_token(m, 0), kv = 2.0 * m->kv_heads * m->dim, q = (double)m->heads * m->dim;
    bool heads = mode == CP_ULYSSES; /* a rank's are all of its rows; queries and results travel too, 3 times each */
    struct seq_cost c = {
        .lin_s = line / rate,
        .quad_s = (model_flops_per_token(m, 1) - line) / rate,
        .micro_s = layer_s * m->layers,
        .forward_share = 1.0 / 3,
    };

    if (cp == 1)
        return c;
    c.half_tokens = gpu ? 256 : 16;
    c.comm_call_s = (heads ? HEADS_CALLS : CONTEXT_CALLS) * m->layers * call_s;
    c.comm_token_s = m->layers * (heads ? 3 * (kv + 2 * q) / cp : CONTEXT_CALLS * kv) * sizeof(float) * byte_s;
    if (!gpu) /* into messages and out; keys of all rows are put in order twice, their gradients cleared and cut up */
        c.copy_token_s = m->layers * (heads ? 12 * (kv + 2 * q) / cp : (4 + 6.0 / cp) * kv) * sizeof(float) * byte_s;
    return c;
}

int batch_feed_config(const struct job_spec *spec, const struct model_cfg *model, const struct docset *docs, bool gpu,
                      struct feed_cfg *ret, struct merr *err)
{
    const typeof(spec->train.batch) *b = &spec->train.batch;
    int cp = spec->parallel.cp, rows = cp > 1 ? rows_of_shared(b->length, cp) : b->length;
    struct feed_cfg f = {
        .docs = docs,
        .order = spec->train.data.order,
        .seed = spec->train.init.seed,
        .sequences = b->sequences,
        .end = (uint64_t)spec->train.steps,
        .multiple = 1,
        .dp = 1,
        .plan = {.replicas = spec->parallel.virtual_workers,
                 .ranks = cp,
                 .capacity = b->capacity,
                 .micro = b->micro == SPEC_AUTO ? b->capacity / rows : b->micro,
                 .seed = spec->train.init.seed,
                 .cost = cost_of(model, gpu, cp, spec->parallel.cp_mode)},
    };

    TRY(seq_policy_find(spec->sequence.policy, &f.plan.policy, err));
    if (f.plan.policy == SEQ_CHUNK) { /* what a rank holds follows the parts, not the micro-batches of other policies */
        f.plan.chunk_tokens = spec->sequence.chunk_tokens;
        f.plan.keep_chunks = spec->sequence.keep_chunks;
        f.plan.capacity = (int64_t)f.plan.chunk_tokens * f.plan.keep_chunks;
    }
    *ret = f;
    return 0;
}

static int print_steps(const struct feed_cfg *f, int steps, FILE *out, struct merr *err)
{
    for (uint64_t step = 0; step < (uint64_t)steps; step++) {
        struct seq_plan plan;
        struct buf text;
        int r;

        TRY(feed_plan(f, step, &plan, err));
        buf_init(&text, PLAN_TEXT_MAX);
        seq_plan_print(&plan, &text);
        seq_plan_clear(&plan);
        r = buf_failed(&text) || fprintf(out, "%s\n", buf_text(&text)) < 0 ? -EIO : 0;
        buf_clear(&text);
        if (r != 0)
            return merr_set(err, r, "cannot print the plan of step %llu", (unsigned long long)step);
    }
    return 0;
}

int batch_print(const struct job_spec *spec, int steps, FILE *out, struct merr *err)
{
    struct model_cfg model;
    struct docset *docs = NULL;
    struct feed_cfg f;
    int r;

    if (spec->kind != JOB_TRAIN || spec->train.data.samples != SAMPLES_DOCUMENTS)
        return merr_set(err, -EINVAL,
                        "only a job on documents has plans to print; set train.data.samples to "
                        "'documents'");
    TRY(model_from_spec(spec, NULL, 1, 0, &model, err));
    TRY(docset_open(spec, &docs, err));
    r = batch_feed_config(spec, &model, docs, false, &f, err);
    if (r == 0)
        r = print_steps(&f, steps, out, err);
    docset_close(docs);
    return r;
}

int train_batch_start(struct train *t, struct merr *err)
{
    struct feed_cfg f;

    if (!t->docs || t->step >= (uint64_t)t->spec->train.steps)
        return 0;
    TRY(batch_feed_config(t->spec, &t->model, t->docs, t->k->device != NULL, &f, err));
    f.first = t->step;
    f.multiple = multiple_of(t);
    f.dp = t->mesh->dp;
    f.dp_index = t->mesh->dp_index;
    f.cp_index = t->mesh->cp_index;
    f.share = t->run.share;
    return feed_open(&f, &t->feed, err);
}

void train_batch_close(struct train *t)
{
    feed_close(t->feed);
    docset_close(t->docs);
    pack_clear(&t->heldout);
    if (t->data)
        data_close(t->data);
}

/* --- one step ---------------------------------------------------------------------------------------------- */

/* The schedule of a step with documents in parts. */
static int schedule_parts(const struct train *t, int micros, struct schedule **ret, struct merr *err)
{
    const struct pack_part *part = t->fed->pack.part;
    int32_t *sequence = calloc(micros, sizeof(*sequence));
    bool *drop = calloc(micros, sizeof(*drop));
    struct schedule *s = NULL;
    int r = sequence && drop ? 0 : merr_set(err, -ENOMEM, "no memory for %d micro-batches", micros);

    for (int i = 0; r == 0 && i < micros; i++) {
        sequence[i] = part[i].sequence;
        drop[i] = part[i].drop;
    }
    if (r == 0)
        r = schedule_new_pieces(t->mesh->pp, micros, sequence, &s, err);
    if (r == 0 && schedule_bodies(s, t->mesh->pp_index, drop) > t->bodies) {
        schedule_free(s);
        r = merr_set(err, -EPROTO, "parts of documents keep more activations than were planned");
    } else if (r == 0) {
        *ret = s;
    }
    free(sequence);
    free(drop);
    return r;
}

/* Another number of micro-batches than in the step before, or other parts. */
static int resize(struct train *t, int micros, struct merr *err)
{
    struct schedule *s = NULL;
    double *loss;

    if (micros == t->micros && t->cut == 0)
        return 0;
    loss = realloc(t->loss, micros * sizeof(*loss));
    if (!loss)
        return merr_set(err, -ENOMEM, "no memory for the losses of %d micro-batches", micros);
    t->loss = loss;
    TRY(t->cut > 0 ? schedule_parts(t, micros, &s, err)
                   : schedule_new(kind_of(t), t->mesh->pp, t->chunks, micros, &s, err));
    for (int i = 0; i < t->chunks; i++)
        if (plan_slots(s, NULL, t->mesh->pp_index, i) > t->slots[i]) {
            schedule_free(s);
            return merr_set(err, -EPROTO, "%d micro-batches take more activations than were planned", micros);
        }
    schedule_free(t->schedule);
    t->schedule = s;
    t->micros = micros;
    return 0;
}

int train_batch_next(struct train *t, struct merr *err)
{
    if (!t->docs) {
        t->targets = t->step_tokens = (uint64_t)t->info.batch * t->info.length;
        return 0;
    }
    TRY(feed_take(t->feed, t->step, &t->fed, err));
    t->per_leaf = t->fed->per_leaf;
    t->targets = (uint64_t)t->fed->targets;
    t->step_tokens = (uint64_t)t->fed->tokens;
    return resize(t, (t->leaf_end - t->leaf_begin) * t->per_leaf, err);
}

const int *train_batch_rows(const struct train *t)
{
    return t->docs ? t->fed->pack.rows : NULL;
}

double train_batch_length(const struct train *t)
{
    return t->docs ? t->fed->mean_length : t->info.length;
}

void train_batch_report(const struct train *t, struct report_step *s)
{
    if (!t->docs)
        return;
    s->documents = (int)t->fed->pack.docs;
    s->micro_batches = t->per_leaf;
    s->targets = t->targets;
    s->rank_tokens_min = (uint64_t)t->fed->rank_tokens_min;
    s->rank_tokens_max = (uint64_t)t->fed->rank_tokens_max;
    s->imbalance = t->fed->imbalance;
    s->padding_share = t->fed->padding_share;
    s->sharded_share = t->fed->sharded_share;
}

void train_load_pack(struct train *t, const struct pack *p, size_t micro, bool text, struct stage_slot *slot)
{
    const struct pack_part *part = &p->part[micro];
    const int *length, *whole;
    int n = (int)pack_pieces(p, micro, &length), pieces = (int)pack_shared(p, micro);
    int wholes = (int)pack_wholes(p, micro, &whole);
    struct stage_piece piece = {
        .tokens = length[0],
        .past = p->start[p->first[micro]],
        .last = part->last,
        .drop = part->drop,
        .store = part->sequence % t->mesh->pp,
    };

    if (part->sequence >= 0)
        stage_slot_piece(t->stage[0], slot, &piece);
    else if (wholes > 0)
        stage_slot_share(t->stage[0], slot, whole, wholes, length + pieces, n - pieces);
    else
        stage_slot_layout(t->stage[0], slot, length, n); /* all chunks have room for as much */
    pack_samples(p, micro, slot->sample);
    pack_whole_samples(p, micro, slot->whole_sample);
    if (text)
        pack_fill(p, micro, slot->tokens, slot->targets);
}

/* A sample in a micro-batch of a stream is as many documents as this rank has pieces of it. */
void train_number_samples(const struct train *t, struct stage_slot *slot, uint64_t first)
{
    for (int i = 0; i < slot->docs; i++)
        slot->sample[i] = first + i / (slot->docs / t->micro);
    for (int i = 0; i < slot->shared; i++)
        slot->whole_sample[i] = first + i;
}

void train_sample_room(struct train *t, struct stage_slot *slot, int32_t **ret_tokens, int32_t **ret_targets)
{
    *ret_tokens = t->samples ? t->samples : slot->tokens;
    *ret_targets = t->samples ? t->samples + (size_t)t->micro * t->info.length : slot->targets;
}

void train_take_samples(struct train *t, struct stage_slot *slot)
{
    size_t all = (size_t)t->micro * t->info.length;

    for (int d = 0; t->samples && d < slot->docs; d++) {
        size_t from = (size_t)slot->kv_at[d] + slot->past[d], rows = (size_t)(slot->cu[d + 1] - slot->cu[d]);

        memcpy(slot->tokens + slot->cu[d], t->samples + from, rows * sizeof(*slot->tokens));
        memcpy(slot->targets + slot->cu[d], t->samples + all + from, rows * sizeof(*slot->targets));
    }
}

int train_load(void *arg, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    struct train *t = arg;
    int leaf = t->leaf_begin + micro / t->per_leaf;
    int first = (leaf * t->per_leaf + micro % t->per_leaf) * t->micro;
    int32_t *tokens, *targets;

    if (t->docs) {
        train_load_pack(t, &t->fed->pack, (size_t)micro, text, slot);
        return 0;
    }
    train_number_samples(t, slot, t->step * (uint64_t)t->info.batch + first);
    if (!text)
        return 0;
    data_expect(t->data, t->step + 1, first, t->micro); /* read from disk while this step computes */
    train_sample_room(t, slot, &tokens, &targets);
    TRY(data_train(t->data, t->step, first, t->micro, tokens, targets, err));
    train_take_samples(t, slot);
    return 0;
}
