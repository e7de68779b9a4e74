/* Any bytes as the server's answer with the keys of a run. */
#include "api/protocol/rendezvous.h"
#include "tests/fuzz/round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_it(const json_t *doc, void *ret, struct merr *err)
{
    return rendezvous_read(doc, ret, err);
}

static json_t *write_it(const void *from)
{
    return rendezvous_write(from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    round_trip(data, size, &rendezvous_message, read_it, write_it);
    return 0;
}
