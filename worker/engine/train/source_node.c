#include "worker/engine/train/source_node.h"

#include <stdio.h>

#include "base/log.h"
#include "worker/engine/recover/sources.h"

enum exit_cause source_node_run(const struct run *run, struct flight *flight)
{
    char rendezvous[RUN_PATH_MAX + 16];
    struct sources_cfg cfg = {.dir = run->memory,
                              .rendezvous = rendezvous,
                              .disk = run->checkpoints,
                              .node_of = run->node_of,
                              .size = run->world,
                              .source_nodes = run->source_nodes,
                              .rank = run->rank,
                              .generation = run->generation,
                              .flight = flight};
    struct merr err;
    bool loaded;
    int code;

    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", run->folder);
    flight_phase_set(flight, FLIGHT_LOAD, 0);
    code = sources_serve(&cfg, &loaded, &err);
    if (code != 0)
        log_warn("what this node's memory has of the job was not asked for to the end: %s", err.text);
    else
        log_info("%s", loaded ? "the job goes on: nothing here is needed any more"
                              : "the job does not go on from what this node's memory has");
    flight_phase_set(flight, FLIGHT_EXIT, 0);
    return code == 0 && loaded ? EXIT_CAUSE_DONE : EXIT_CAUSE_ABORTED;
}
