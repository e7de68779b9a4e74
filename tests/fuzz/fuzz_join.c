/* Any bytes as the trade of a join code, and as the answer to one. */
#include "api/protocol/join.h"
#include "tests/fuzz/round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_join(const json_t *doc, void *ret, struct merr *err)
{
    return join_read(doc, ret, err);
}

static json_t *write_join(const void *from)
{
    return join_write(from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *doc = json_loadb((const char *)data, size, 0, NULL);
    struct join_answer answer;

    round_trip(data, size, &join_message, read_join, write_join);
    if (join_answer_read(doc, &answer, NULL) == 0)
        assert(join_node_ok(answer.node));
    json_decref(doc);
    return 0;
}
