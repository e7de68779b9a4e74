/* Any bytes as the registration of an agent. */
#include "api/protocol/registration.h"
#include "tests/fuzz/round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_it(const json_t *doc, void *ret, struct merr *err)
{
    return registration_read(doc, ret, err);
}

static json_t *write_it(const void *from)
{
    return registration_write(from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    round_trip(data, size, &registration_message, read_it, write_it);
    return 0;
}
