#include "worker/engine/train/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "scheduler/plan/layout.h"
#include "scheduler/plan/memory.h"
#include "worker/engine/train/batch.h"

#define ROUNDS 4 /* of a pipeline */

/* --- sizes that hold for all steps ------------------------------------------------------------------------- */

static enum schedule_kind kind_of(const struct source *source)
{
    return source->rank->spec->parallel.schedule == PIPELINE_ZB_H1 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
}

/* Rows of a micro-batch come in multiples of this. */
static int multiple_of(const struct source *source)
{
    return source->rank->model.sequence_parallel ? source->rank->mesh->tp : 1;
}

int source_open(struct source *source, const struct rank *rank, struct merr *err)
{
    struct docset_info info;

    source->rank = rank;
    if (rank->spec->train.data.samples == SAMPLES_STREAM) {
        TRY(data_open(rank->spec, &source->data, err));
        data_get_info(source->data, &source->info);
        return 0;
    }
    TRY(docset_open(rank->spec, &source->docs, err));
    docset_get_info(source->docs, &info);
    if (strcmp(rank->spec->sequence.policy, "chunk") == 0)
        source->cut = rank->spec->sequence.chunk_tokens;
    source->info = (struct data_info){
        .length = source->cut > 0 ? source->cut : rank->spec->train.batch.capacity,
        .batch = rank->spec->train.batch.sequences,
        .train_samples = info.documents[DOCSET_TRAIN],
        .heldout_samples = info.documents[DOCSET_HELDOUT],
        .end_token = -1,
    };
    return 0;
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
static int pack_heldout(struct source *source, struct merr *err)
{
    const struct rank *rank = source->rank;
    bool open = false;
    int held = 0; /* rows of the one that is open, on each rank */

    pack_init(&source->heldout.pack);
    for (int i = 0; i < source->heldout.sequences; i++) {
        struct pack *p = &source->heldout.pack;
        int rows, got = pack_read(p, source->docs, DOCSET_HELDOUT, (uint64_t)i, (uint64_t)i, err);

        if (got < 0)
            return got;
        if (got == 0)
            continue;
        rows = p->doc[p->docs - 1].inputs;
        if (rank->mesh->cp > 1)
            rows = batch_rows_of_shared(rows, rank->mesh->cp);
        if (open && held + rows > source->info.length) {
            TRY(pack_end(p, multiple_of(source), err));
            open = false;
        }
        if (rows > source->info.length) { /* and so no micro-batch is open */
            TRY(put_parts(p, p->docs - 1, source->cut, err));
            continue;
        }
        if (!open)
            TRY(pack_begin(p, err));
        held = open ? held + rows : rows;
        open = true;
        TRY(rank->mesh->cp > 1
                ? pack_put_cut(p, p->docs - 1, p->doc[p->docs - 1].inputs, rank->mesh->cp, rank->mesh->cp_index, err)
                : pack_put(p, p->docs - 1, rows, err));
    }
    return open ? pack_end(&source->heldout.pack, multiple_of(source), err) : 0;
}

/* Where a replica's held-out micro-batches begin: all parts of a document are one's. */
static int eval_share(const struct source *source, int dp_index)
{
    int at = (int)((long)dp_index * source->heldout.micros / source->rank->mesh->dp);
    const struct pack_part *part = source->heldout.pack.part;

    while (source->cut > 0 && at > 0 && at < source->heldout.micros && part[at].sequence >= 0 &&
           part[at].sequence == part[at - 1].sequence)
        at--;
    return at;
}

static int plan_eval(struct source *source, struct merr *err)
{
    const struct rank *rank = source->rank;
    int mine;

    source->heldout.sequences = rank->spec->train.eval.sequences;
    if ((uint64_t)source->heldout.sequences > source->info.heldout_samples)
        source->heldout.sequences = (int)source->info.heldout_samples;
    if (source->docs)
        TRY(pack_heldout(source, err));
    source->heldout.micros = source->docs ? (int)source->heldout.pack.micros
                                          : (source->heldout.sequences + source->micro - 1) / source->micro;
    source->heldout.begin = eval_share(source, rank->mesh->dp_index);
    source->heldout.end = eval_share(source, rank->mesh->dp_index + 1);
    mine = source->heldout.end - source->heldout.begin;
    return mine > 0 ? schedule_new(SCHEDULE_FORWARD, rank->mesh->pp, rank->chunks, mine, &source->heldout.schedule, err)
                    : 0;
}

/* Documents in parts, of which the first waits for the last: slots for the longest and what is under way beside it,
 * and activations of what is kept and at work. */
static void plan_parts(struct source *source)
{
    const struct rank *rank = source->rank;
    int most = (rank->spec->train.batch.length + source->cut - 1) / source->cut + rank->mesh->pp + 1;
    int at_once = rank->spec->sequence.keep_chunks + rank->mesh->pp;

    source->slots[0] = most > source->slots[0] ? most : source->slots[0];
    source->bodies = at_once < source->slots[0] ? at_once : source->slots[0];
}

/* Slots that any number of micro-batches makes do with: from some rounds of the pipeline on, more take no more. */
static int plan_any_slots(struct source *source, struct merr *err)
{
    const struct rank *rank = source->rank;

    for (int micros = 1; micros <= ROUNDS * rank->mesh->pp; micros++) {
        struct schedule *s = NULL;

        TRY(schedule_new(kind_of(source), rank->mesh->pp, rank->chunks, micros, &s, err));
        for (int i = 0; i < rank->chunks; i++) {
            int n = plan_slots(s, source->heldout.schedule, rank->mesh->pp_index, i);

            source->slots[i] = n > source->slots[i] ? n : source->slots[i];
        }
        schedule_free(s);
    }
    return 0;
}

static int plan_sizes(struct source *source, struct merr *err)
{
    const struct rank *rank = source->rank;
    int v = rank->spec->parallel.virtual_workers;

    source->length = source->docs ? source->info.length : source->info.length / rank->mesh->cp;
    plan_leaves_shared(rank->run.share, v, rank->mesh->dp, rank->mesh->dp_index, &source->leaf_begin,
                       &source->leaf_end);
    if (source->docs) {
        source->micro = source->per_leaf = source->micros = 1; /* the last two are each step's own */
    } else {
        TRY(run_micro(rank->spec, &source->micro, err));
        source->per_leaf = source->info.batch / v / source->micro;
        source->micros = (source->leaf_end - source->leaf_begin) * source->per_leaf;
    }
    if (source->micro * source->length % multiple_of(source) != 0)
        return merr_set(err, -EINVAL,
                        "sequence_parallel cannot share a micro-batch of %d tokens among tp %d; want a "
                        "multiple",
                        source->micro * source->length, rank->mesh->tp);
    if (source->docs || rank->mesh->cp == 1)
        return 0;
    source->samples = calloc(2 * (size_t)source->micro * source->info.length, sizeof(*source->samples));
    return source->samples ? 0 : merr_set(err, -ENOMEM, "no memory for %d samples", source->micro);
}

int source_plan(struct source *source, struct merr *err)
{
    const struct rank *rank = source->rank;

    TRY(plan_sizes(source, err));
    TRY(schedule_new(kind_of(source), rank->mesh->pp, rank->chunks, source->micros, &source->schedule, err));
    TRY(plan_eval(source, err));
    source->slots = calloc(rank->chunks, sizeof(*source->slots));
    for (int i = 0; source->slots && i < rank->chunks; i++)
        source->slots[i] = plan_slots(source->schedule, source->heldout.schedule, rank->mesh->pp_index, i);
    if (source->slots && source->docs)
        TRY(plan_any_slots(source, err));
    if (source->slots && source->cut > 0)
        plan_parts(source);
    return source->slots ? 0 : merr_set(err, -ENOMEM, "no memory for %d chunks", rank->chunks);
}

int source_docs(const struct source *source)
{
    int most = source->info.batch > source->heldout.sequences ? source->info.batch : source->heldout.sequences;

    if (!source->docs)
        return 0;
    return (most < source->info.length ? most : source->info.length) + 1; /* one of rows that fill up */
}

/* --- documents ahead --------------------------------------------------------------------------------------- */

int source_begin(struct source *source, uint64_t step, struct stage *stage, struct merr *err)
{
    const struct rank *rank = source->rank;
    struct feed_cfg f;

    source->stage = stage;
    if (!source->docs || step >= (uint64_t)rank->spec->train.steps)
        return 0;
    TRY(batch_feed_config(rank->spec, &rank->model, source->docs, rank->k->device != NULL, &f, err));
    f.first = step;
    f.multiple = multiple_of(source);
    f.dp = rank->mesh->dp;
    f.dp_index = rank->mesh->dp_index;
    f.cp_index = rank->mesh->cp_index;
    f.share = rank->run.share;
    return feed_open(&f, &source->feed, err);
}

void source_close(struct source *source)
{
    feed_close(source->feed);
    docset_close(source->docs);
    pack_clear(&source->heldout.pack);
    if (source->data)
        data_close(source->data);
    schedule_free(source->schedule);
    schedule_free(source->heldout.schedule);
    free(source->slots);
    free(source->samples);
}

/* --- one step ---------------------------------------------------------------------------------------------- */

/* The schedule of a step with documents in parts. */
static int schedule_parts(const struct source *source, int micros, struct schedule **ret, struct merr *err)
{
    const struct pack_part *part = source->fed->pack.part;
    int32_t *sequence = calloc(micros, sizeof(*sequence));
    bool *drop = calloc(micros, sizeof(*drop));
    struct schedule *s = NULL;
    int r = sequence && drop ? 0 : merr_set(err, -ENOMEM, "no memory for %d micro-batches", micros);

    for (int i = 0; r == 0 && i < micros; i++) {
        sequence[i] = part[i].sequence;
        drop[i] = part[i].drop;
    }
    if (r == 0)
        r = schedule_new_pieces(source->rank->mesh->pp, micros, sequence, &s, err);
    if (r == 0 && schedule_bodies(s, source->rank->mesh->pp_index, drop) > source->bodies) {
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
static int resize(struct source *source, int micros, struct merr *err)
{
    const struct rank *rank = source->rank;
    struct schedule *s = NULL;

    if (micros == source->micros && source->cut == 0)
        return 0;
    TRY(source->cut > 0 ? schedule_parts(source, micros, &s, err)
                        : schedule_new(kind_of(source), rank->mesh->pp, rank->chunks, micros, &s, err));
    for (int i = 0; i < rank->chunks; i++)
        if (plan_slots(s, NULL, rank->mesh->pp_index, i) > source->slots[i]) {
            schedule_free(s);
            return merr_set(err, -EPROTO, "%d micro-batches take more activations than were planned", micros);
        }
    schedule_free(source->schedule);
    source->schedule = s;
    source->micros = micros;
    return 0;
}

int source_next(struct source *source, uint64_t step, struct merr *err)
{
    source->step = step;
    if (!source->docs) {
        source->targets = source->tokens = (uint64_t)source->info.batch * source->info.length;
        return 0;
    }
    TRY(feed_take(source->feed, step, &source->fed, err));
    source->per_leaf = source->fed->per_leaf;
    source->targets = (uint64_t)source->fed->targets;
    source->tokens = (uint64_t)source->fed->tokens;
    return resize(source, (source->leaf_end - source->leaf_begin) * source->per_leaf, err);
}

const int *source_rows(const struct source *source)
{
    return source->docs ? source->fed->pack.rows : NULL;
}

double source_length(const struct source *source)
{
    return source->docs ? source->fed->mean_length : source->info.length;
}

double source_work(const struct source *source)
{
    const struct model_cfg *m = &source->rank->model;
    const struct pack *p;
    double flops = 0;

    if (!source->docs)
        return (double)source->micros * source->micro * source->length;
    p = &source->fed->pack;
    for (size_t i = 0; i < p->pieces; i++) /* its rows attend to start to start + length rows */
        flops += p->length[i] * model_flops_per_token(m, 2.0 * p->start[i] + p->length[i]);
    return flops / model_flops_per_token(m, source->info.length);
}

void source_report(const struct source *source, struct report_step *s)
{
    if (!source->docs)
        return;
    s->documents = (int)source->fed->pack.docs;
    s->micro_batches = source->per_leaf;
    s->targets = source->targets;
    s->rank_tokens_min = (uint64_t)source->fed->rank_tokens_min;
    s->rank_tokens_max = (uint64_t)source->fed->rank_tokens_max;
    s->imbalance = source->fed->imbalance;
    s->padding_share = source->fed->padding_share;
    s->sharded_share = source->fed->sharded_share;
}

static void load_pack(struct source *source, const struct pack *p, size_t micro, bool text, struct stage_slot *slot)
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
        .store = part->sequence % source->rank->mesh->pp,
    };

    if (part->sequence >= 0)
        stage_slot_piece(source->stage, slot, &piece);
    else if (wholes > 0)
        stage_slot_share(source->stage, slot, whole, wholes, length + pieces, n - pieces);
    else
        stage_slot_layout(source->stage, slot, length, n); /* all chunks have room for as much */
    pack_samples(p, micro, slot->sample);
    pack_whole_samples(p, micro, slot->shared.whole_sample);
    if (text)
        pack_fill(p, micro, slot->tokens, slot->targets);
}

/* A sample in a micro-batch of a stream is as many documents as this rank has pieces of it. */
static void number_samples(const struct source *source, struct stage_slot *slot, uint64_t first)
{
    for (int i = 0; i < slot->docs; i++)
        slot->sample[i] = first + i / (slot->docs / source->micro);
    for (int i = 0; i < slot->shared.n; i++)
        slot->shared.whole_sample[i] = first + i;
}

/* Where a micro-batch of a stream is read to; once it is there the slot gets the rows that are this rank's. */
static void find_place(struct source *source, struct stage_slot *slot, int32_t **ret_tokens, int32_t **ret_targets)
{
    *ret_tokens = source->samples ? source->samples : slot->tokens;
    *ret_targets = source->samples ? source->samples + (size_t)source->micro * source->info.length : slot->targets;
}

static void take_samples(struct source *source, struct stage_slot *slot)
{
    size_t all = (size_t)source->micro * source->info.length;

    for (int d = 0; source->samples && d < slot->docs; d++) {
        size_t from = (size_t)slot->shared.kv_at[d] + slot->shared.past[d],
               rows = (size_t)(slot->cu[d + 1] - slot->cu[d]);

        memcpy(slot->tokens + slot->cu[d], source->samples + from, rows * sizeof(*slot->tokens));
        memcpy(slot->targets + slot->cu[d], source->samples + all + from, rows * sizeof(*slot->targets));
    }
}

int source_load(struct source *source, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    int leaf = source->leaf_begin + micro / source->per_leaf;
    int first = (leaf * source->per_leaf + micro % source->per_leaf) * source->micro;
    int32_t *tokens, *targets;

    if (source->docs) {
        load_pack(source, &source->fed->pack, (size_t)micro, text, slot);
        return 0;
    }
    number_samples(source, slot, source->step * (uint64_t)source->info.batch + first);
    if (!text)
        return 0;
    data_expect(source->data, source->step + 1, first, source->micro); /* read from disk while this step computes */
    find_place(source, slot, &tokens, &targets);
    TRY(data_train(source->data, source->step, first, source->micro, tokens, targets, err));
    take_samples(source, slot);
    return 0;
}

static int load_heldout_samples(struct source *source, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    int first = micro * source->micro, count = source->heldout.sequences - first, length = source->info.length;
    int32_t *tokens, *targets;

    if (count > source->micro)
        count = source->micro;
    number_samples(source, slot, (uint64_t)first);
    if (!text)
        return 0;
    find_place(source, slot, &tokens, &targets);
    memset(tokens, 0, sizeof(*tokens) * source->micro * length);
    for (int i = 0; i < source->micro * length; i++)
        targets[i] = -1;
    TRY(data_heldout(source->data, first, count, tokens, targets, err));
    take_samples(source, slot);
    return 0;
}

int source_load_heldout(struct source *source, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    if (!source->docs)
        return load_heldout_samples(source, micro, text, slot, err);
    load_pack(source, &source->heldout.pack, (size_t)micro, text, slot);
    return 0;
}
