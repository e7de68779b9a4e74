/* Any bytes as assignment.json: refused, or a run whose parts fit together. */
#include "api/protocol/assignment.h"
#include "tests/fuzz/round_trip.h"
#include "worker/engine/train/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_it(const json_t *doc, void *ret, struct merr *err)
{
    return assignment_read(doc, ret, err);
}

static json_t *write_it(const void *from)
{
    return assignment_write(from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run r;
    int micro;

    round_trip(data, size, &assignment_message, read_it, write_it);
    if (run_parse((const char *)data, size, "/run", 1, &r, NULL) != 0)
        return 0;
    assert(r.world == r.mesh.tp * r.mesh.dp * r.mesh.pp && r.mesh.rank == 1);
    assert(r.spec && r.node_of && r.threads >= 1 && r.generation >= 1);
    for (int i = 0; i < r.world; i++)
        assert(r.node_of[i] >= 0 && r.node_of[i] <= i);
    (void)run_check(&r, NULL);
    if (run_micro(r.spec, &micro, NULL) == 0)
        assert(micro >= 1 && r.spec->train.batch.sequences % micro == 0);
    run_clear(&r);
    return 0;
}
