/* Any bytes as how a rank ended, and as what a program leaves in the folder of its run. */
#include <stdlib.h>
#include <string.h>

#include "api/protocol/exit.h"
#include "tests/fuzz/round_trip.h"
#include "worker/agent/program.h"
#include "worker/agent/screen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_it(const json_t *doc, void *ret, struct merr *err)
{
    return exit_read(doc, ret, err);
}

static json_t *write_it(const void *from)
{
    return exit_write(from);
}

/* What is taken of a program's files is within its bounds, and as many bytes of metrics come out as went in. */
static void read_program(const char *text, size_t size)
{
    struct screen s = {.damaged = 0};
    struct program_result r;
    struct program_beat b;
    struct report_ack ack;
    enum program_order order;
    uint64_t seq;
    char *lines = malloc(size + 1);

    if (program_parse_result(text, size, &r) == 0 && (r.outcome < EXIT_SAID_DONE || r.outcome > EXIT_SAID_FAILED))
        abort();
    if (program_parse_beat(text, size, &b) == 0 && (b.at_us < 0 || b.for_us < 0 || (b.for_us == 0 && b.section[0])))
        abort();
    if (program_parse_ack(text, size, &ack) == 0 && (ack.seq < 1 || ack.step < -1 || ack.did >= REPORT_DIDS))
        abort();
    if (program_parse_order(text, size, &order, &seq) == 0 && (order >= PROGRAM_ORDERS || seq == 0))
        abort();
    if (!lines)
        return;
    memcpy(lines, text, size);
    screen_lines(&s, lines, size, 1700000000000000);
    for (size_t i = 0; i < size; i++)
        if (lines[i] != text[i] && (lines[i] != ' ' || text[i] == '\n'))
            abort();
    free(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_program((const char *)data, size);
    round_trip(data, size, &exit_message, read_it, write_it);
    return 0;
}
