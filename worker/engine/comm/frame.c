#include "worker/engine/comm/frame.h"

#include <errno.h>
#include <stddef.h>

#include "base/hash.h"
#include "worker/flight/flight_read.h"
#include "worker/engine/comm/comm.h"

#define FRAME_MAGIC 0x3266636du /* "mcf2" */

static uint32_t crc_of(const struct frame *f)
{
    return hash_crc32c(0, &f->generation, sizeof(*f) - offsetof(struct frame, generation));
}

void frame_seal(struct frame *f, const void *payload)
{
    f->sum = payload ? hash_xxh3(payload, f->part) : 0;
    f->magic = FRAME_MAGIC;
    f->crc = crc_of(f);
}

int frame_check(const struct frame *f, uint32_t part, struct merr *err)
{
    if (f->magic != FRAME_MAGIC || f->crc != crc_of(f))
        return merr_set(err, -EPROTO, "a frame arrived damaged (magic %08x, crc %08x, want %08x)", f->magic, f->crc,
                        crc_of(f));
    if (f->part != part || f->kind < FRAME_CALL || f->kind > FRAME_WRONG || f->offset > f->length ||
        (f->kind < FRAME_CREDIT && f->part > f->length - f->offset))
        return merr_set(err, -EPROTO, "a frame of kind %u of rank %u makes no sense: %u of %u bytes at %llu of %llu",
                        f->kind, f->source, part, f->part, (unsigned long long)f->offset,
                        (unsigned long long)f->length);
    return 0;
}

bool frame_holds(const struct frame *f, const void *payload)
{
    return f->part == 0 || hash_xxh3(payload, f->part) == f->sum;
}

const char *frame_call_name(unsigned op)
{
    return flight_read_op_name(op);
}
