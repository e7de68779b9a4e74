/* Any bytes as what a node tells of its ranks. */
#include "api/protocol/evidence.h"
#include "tests/fuzz/round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_it(const json_t *doc, void *ret, struct merr *err)
{
    return evidence_read(doc, ret, err);
}

static json_t *write_it(const void *from)
{
    return evidence_write(from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    round_trip(data, size, &evidence_message, read_it, write_it);
    return 0;
}
