/* How a process ends that hands out what its node's memory has: by what became of the ranks that asked for it. */
#include "tests/unit/test.h"

#include "tests/unit/worker/test_comm_team.inc"
#include "worker/engine/recover/sources.h"
#include "worker/engine/train/source_node.h"

#define GENERATION 3

static int node_of[1];

/* The process of the node that the job has left; ordered: it is told to give up before a rank comes. */
static int give(struct team *t, int rank, bool ordered)
{
    struct run run = {.world = 1, .rank = 1, .source_nodes = 1, .node_of = node_of, .generation = GENERATION};
    struct flight *flight = t->flight[rank]; /* of the team */
    enum exit_cause cause;

    (void)snprintf(run.folder, sizeof(run.folder), "%s", t->folder);
    if (ordered)
        flight_order_set(flight, FLIGHT_ABORT);
    cause = source_node_run(&run, flight);
    return cause == (*(const bool *)t->arg ? EXIT_CAUSE_DONE : EXIT_CAUSE_ABORTED) ? 0 : 1;
}

static int part(struct team *t, struct comm_world *w)
{
    char rendezvous[128];
    struct sources_cfg cfg = {.dir = "",
                              .rendezvous = rendezvous,
                              .disk = "/nowhere",
                              .node_of = node_of,
                              .size = 1,
                              .source_nodes = 1,
                              .generation = GENERATION,
                              .flight = t->flight[0]};
    struct sources *s;

    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", t->folder);
    GOOD(io_mkdirs(rendezvous, 0700, &err));
    if (comm_rank(w) == 1)
        return give(t, 1, false);
    GOOD(sources_open(&cfg, &s, &err));
    sources_end(s, *(const bool *)t->arg);
    sources_free(s);
    return 0;
}

static void it_is_done_once_all_ranks_go_on_and_else_was_in_vain(void **state)
{
    static const bool loaded[] = {true, false};

    (void)state;
    for (size_t i = 0; i < COUNT(loaded); i++)
        team_run(2, TEAM_UCX, 0, part, &loaded[i]);
}

static int ordered(struct team *t, struct comm_world *w)
{
    char rendezvous[128];

    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", t->folder);
    GOOD(io_mkdirs(rendezvous, 0700, &err));
    return give(t, 0, true);
}

static void it_gives_up_a_wait_when_it_is_told_to(void **state)
{
    static const bool loaded = false;

    (void)state;
    team_run(1, TEAM_UCX, 0, ordered, &loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_done_once_all_ranks_go_on_and_else_was_in_vain),
        cmocka_unit_test(it_gives_up_a_wait_when_it_is_told_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
