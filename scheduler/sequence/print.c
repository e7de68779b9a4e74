#include <inttypes.h>

#include "scheduler/sequence/plan.h"

static void print_micro(const struct seq_plan *p, int64_t k, struct buf *out)
{
    const struct seq_micro *m = &p->micro[k];
    int ranks = p->config.ranks;

    (void)buf_printf(out, "{\"time_s\":%.9g,\"peak_tokens\":%" PRId64, m->time_s, m->peak_tokens);
    if (m->padded)
        (void)buf_printf(out, ",\"padded_to\":%" PRId64, m->padded);
    if (m->sequence >= 0)
        (void)buf_printf(out, ",\"sequence\":%" PRId64 ",\"index\":%d,\"of\":%d,\"dropped\":%s", m->sequence, m->index,
                         m->of, m->dropped ? "true" : "false");
    (void)buf_addstr(out, ",\"rank_s\":[");
    for (int r = 0; r < ranks; r++)
        (void)buf_printf(out, "%s%.9g", r ? "," : "", p->rank_s[k * ranks + r]);
    (void)buf_addstr(out, "],\"rank_tokens\":[");
    for (int r = 0; r < ranks; r++)
        (void)buf_printf(out, "%s%" PRId64, r ? "," : "", p->rank_tokens[k * ranks + r]);
    (void)buf_addstr(out, "],\"pieces\":[");
    for (size_t x = m->first; x < m->first + m->n; x++) {
        const struct seq_piece *q = &p->pieces[x];

        (void)buf_printf(
            out, "%s{\"sequence\":%" PRIu32 ",\"start\":%" PRId64 ",\"tokens\":%" PRId64 ",\"rank\":%d,\"ranks\":%d}",
            x == m->first ? "" : ",", q->seq, q->start, q->tokens, q->rank, q->degree);
    }
    (void)buf_addstr(out, "]}");
}

static void print_score(const struct seq_plan *p, struct buf *out)
{
    const struct seq_bounds *b = &p->bounds;
    const struct seq_score *s = &p->score;

    (void)buf_printf(out,
                     "\"bounds\":{\"work_s\":%.9g,\"longest_s\":%.9g,\"exchange_s\":%.9g,\"micro_batches\":%" PRId64
                     ",\"step_s\":%.9g},",
                     b->work_s, b->long_s, b->comm_s, b->micros, b->step_s);
    (void)buf_printf(out,
                     "\"score\":{\"step_s\":%.9g,\"rho\":%.6f,\"rho_plain\":%.6f,\"replica_imbalance\":%.6f,"
                     "\"rank_imbalance\":%.6f,\"sharded_share\":%.6f,\"padding_share\":%.6f,\"peak_share\":%.6f,"
                     "\"recomputed_share\":%.6f}",
                     s->step_s, s->rho, s->rho_plain, s->replica_imbalance, s->rank_imbalance, s->sharded_share,
                     s->padding_share, s->peak_share, s->recomputed_share);
}

void seq_plan_print(const struct seq_plan *p, struct buf *out)
{
    const struct seq_config *c = &p->config;

    (void)buf_printf(out,
                     "{\"version\":%d,\"policy\":\"%s\",\"digest\":\"%016" PRIx64 "\",\"replicas\":%d,"
                     "\"ranks\":%d,\"capacity\":%" PRId64 ",",
                     SEQ_PLAN_VERSION, seq_policy_name(c->policy), p->digest, c->replicas, c->ranks, c->capacity);
    (void)buf_printf(out,
                     "\"sequences\":%zu,\"tokens\":%" PRId64 ",\"targets\":%" PRId64 ",\"micro_batches\":%" PRId64 ",",
                     p->n, p->tokens, p->targets, p->micros);
    print_score(p, out);
    (void)buf_addstr(out, ",\"plan\":[");
    for (int i = 0; i < c->replicas; i++) {
        (void)buf_addstr(out, i ? ",[" : "[");
        for (int64_t j = 0; j < p->micros; j++) {
            (void)buf_addstr(out, j ? "," : "");
            print_micro(p, i * p->micros + j, out);
        }
        (void)buf_addstr(out, "]");
    }
    (void)buf_addstr(out, "]}");
}
