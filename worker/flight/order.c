/* The operations that ranks of the same role make in the same order: which were the last, and whether a step departs
 * from the one before it. */
#include <stdlib.h>

#include "worker/flight/flight_priv.h"

#define STEP_OPS 4096 /* of a step that are held against those of the step before */

/* Spans of steps are odd; what ranks do together between two steps stands in one of its own. */
static uint64_t span_of(enum flight_phase phase, uint64_t step)
{
    return 2 * step + (phase >= FLIGHT_DATA && phase <= FLIGHT_UPDATE);
}

void flight_role_set(struct flight *f, uint32_t role)
{
    atomic_store_explicit(&f->page->order_of.role, role, memory_order_relaxed);
}

void flight_order_phase(struct flight *f, enum flight_phase phase, uint64_t step)
{
    uint64_t span = span_of(phase, step), was = atomic_load(&f->page->order_of.span[0]);
    uint64_t ops = atomic_load(&f->page->order_of.ops[0]);
    uint32_t *swap = f->step_ops[1];

    if (span == was || phase == FLIGHT_EXIT) /* a rank that fails may be in the middle of one */
        return;
    if (was % 2 == 1) {
        f->step_ops[1] = f->step_ops[0];
        f->step_ops[0] = swap;
        f->step_ops_n = ops <= STEP_OPS ? ops : UINT64_MAX;
    }
    atomic_store(&f->page->order_of.span[1], was);
    atomic_store(&f->page->order_of.ops[1], ops);
    atomic_store(&f->page->order_of.ops[0], 0);
    atomic_store(&f->page->order_of.odd, span % 2 == 1 && f->step_ops[1] && f->step_ops_n != UINT64_MAX);
    atomic_store(&f->page->order_of.span[0], span);
}

static void compare_step(struct flight *f, uint64_t op, uint32_t digest)
{
    if (!f->step_ops[0])
        f->step_ops[0] = calloc(STEP_OPS, sizeof(*f->step_ops[0]));
    if (!f->step_ops[0] || op >= STEP_OPS) {
        atomic_store(&f->page->order_of.odd, 0);
        return;
    }
    f->step_ops[0][op] = digest;
    if (atomic_load(&f->page->order_of.odd) == 1 && (op >= f->step_ops_n || f->step_ops[1][op] != digest))
        atomic_store(&f->page->order_of.odd, op + 2);
}

void flight_order_add(struct flight *f, uint32_t digest)
{
    uint64_t all = atomic_load_explicit(&f->page->order_of.all, memory_order_relaxed);
    uint64_t op = atomic_load_explicit(&f->page->order_of.ops[0], memory_order_relaxed);

    if (atomic_load_explicit(&f->page->order_of.span[0], memory_order_relaxed) % 2 == 1)
        compare_step(f, op, digest);
    atomic_store_explicit(&f->page->order_of.window[all % OPS_WINDOW], digest, memory_order_relaxed);
    atomic_store_explicit(&f->page->order_of.ops[0], op + 1, memory_order_relaxed);
    atomic_store_explicit(&f->page->order_of.all, all + 1, memory_order_release);
}

void flight_read_order(const struct flight *f, struct flight_order_of *ret)
{
    uint64_t all;

    FLIGHT_LOOK_HEAD(f);
    all = atomic_load(&f->page->order_of.all);
    *ret = (struct flight_order_of){.role = (uint32_t)atomic_load(&f->page->order_of.role),
                                    .odd = atomic_load(&f->page->order_of.odd),
                                    .n = all < OPS_WINDOW ? (size_t)all : OPS_WINDOW};
    for (int i = 0; i < 2; i++) {
        ret->span[i] = atomic_load(&f->page->order_of.span[i]);
        ret->ops[i] = atomic_load(&f->page->order_of.ops[i]);
    }
    for (size_t i = 0; i < ret->n; i++)
        ret->window[i] = atomic_load(&f->page->order_of.window[(all - ret->n + i) % OPS_WINDOW]);
}
