/* Any bytes as a saved incident; what can be read of it is judged, too. */
#include "api/protocol/incident.h"
#include "tests/fuzz/round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_it(const json_t *doc, void *ret, struct merr *err)
{
    const struct incident *i = ret;
    int r = incident_read(doc, ret, err);
    struct hang_verdict v;
    struct buf text;

    buf_init(&text, INCIDENT_TEXT_MAX - 1);
    if (r == 0)
        (void)incident_judge(i->ranks, i->n_ranks, &v, &text);
    buf_clear(&text);
    return r;
}

static json_t *write_it(const void *from)
{
    return incident_write(from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    round_trip(data, size, &incident_message, read_it, write_it);
    return 0;
}
