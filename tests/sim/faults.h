/* faults - what goes wrong in a simulated cluster, when and where: a list that is drawn from a seed, or given
 *
 * A fault is a line, "12.500000 agent-kill 17 3.000000": when (seconds), what, of which node (-1: the server or all),
 * and a measure: how long it lasts (seconds), or what the kind says. The list is all that a failing run has of faults,
 * so a shorter list that still fails is a better trace (shrink.h).
 */
#ifndef MUSTER_TESTS_SIM_FAULTS_H
#define MUSTER_TESTS_SIM_FAULTS_H

#include <stddef.h>
#include <stdint.h>

enum fault_kind {
    FAULT_SERVER_KILL,  /* the server dies between two turns; measure: away for so long */
    FAULT_COMMIT_LOST,  /* it dies in its next commit, which was not applied */
    FAULT_ACK_LOST,     /* it dies in its next commit, which was applied, before anybody is answered */
    FAULT_SERVER_HOLD,  /* it is stopped for so long: of two, the other one takes the lead meanwhile */
    FAULT_STORE_AWAY,   /* nobody answers there for so long */
    FAULT_STORE_FULL,   /* it refuses each write for so long */
    FAULT_STORE_BREAK,  /* the connection breaks once, after a write and before its answer */
    FAULT_SERVER_CLOCK, /* the server's wall clock is set by so many seconds */
    FAULT_AGENT_KILL,   /* an agent dies and starts anew after so long */
    FAULT_AGENT_CRASH,  /* likewise, in the middle of a turn */
    FAULT_AGENT_HOLD,   /* an agent is stopped for so long */
    FAULT_REBOOT,       /* a machine: all processes are gone; its agent starts anew after so long */
    FAULT_WIPE,         /* likewise, and its disk is empty */
    FAULT_OFF,          /* a machine is off for so long */
    FAULT_CUT,          /* a node is cut off from the server for so long */
    FAULT_NETWORK,      /* for so long messages are lost, doubled and late, everywhere */
    FAULT_DISK_FULL,    /* of a machine, for so long */
    FAULT_NODE_CLOCK,   /* a machine's wall clock is set by so many seconds */
    FAULT_RANK_KILL,    /* one rank of a machine, by signal 9 or 11 */
    FAULT_SHIM_KILL,    /* the process that watches a rank, and the rank with it */
    FAULT_RANK_HANG,    /* one rank goes on no more and hears no order */
    FAULT_DRAIN,        /* an operator drains a node, for so long */
    FAULT_KINDS
};

struct fault {
    int64_t at_us;
    enum fault_kind kind;
    int node;
    int64_t measure_us;
};

struct faults_list { /* by time */
    struct fault *v; /* owned */
    size_t n;
};

const char *fault_name(enum fault_kind kind);

/* Kinds by name, "all", "none", or names with commas: a mask. -EINVAL: *ret_bad is the name that is none. */
int faults_mask(const char *text, uint32_t *ret, const char **ret_bad);

/* So many faults of these kinds over so long, for nodes 0 to nodes - 1. */
void faults_draw(uint64_t seed, uint32_t mask, size_t n, int64_t over_us, int nodes, struct faults_list *ret);

/* Lines as above. -EINVAL with the number of the line. */
int faults_read(const char *path, struct faults_list *ret, size_t *ret_line);
void faults_print(const struct faults_list *f, int fd);
void faults_list_clear(struct faults_list *f);

#endif
