/* machines - the simulated machines: disks that last, processes that run, fail and hang
 *
 * machine.c beside it is the second implementation of worker/agent/machine.h: an agent's struct machine is its view of
 * one of these. A run's folder outlives processes, agents and reboots (not a wiped disk); a rank's process lives on its
 * own, whether an agent looks or not.
 *
 * What a rank does is played from its command line (users.h) and from faults. Ranks of one
 * run of a train job step together, wherever they are, as long as all of them are alive.
 */
#ifndef MUSTER_TESTS_SIM_MACHINES_H
#define MUSTER_TESTS_SIM_MACHINES_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/world.h"

struct book;
struct machines;
struct machine; /* an agent's view: worker/agent/machine.h */

/* n machines with so many slots each. changed(arg, i) is called when a process of machine i has started or ended. */
struct machines *machines_new(struct world *w, int n, int slots, void (*changed)(void *arg, int i), void *arg);
void machines_free(struct machines *m);

/* The view of an agent that is started on machine i; machine_free() ends it. */
struct machine *machines_open(struct machines *m, int i);

const char *machines_name(const struct machines *m, int i); /* of the node: "n00017" */
bool machines_up(const struct machines *m, int i);

/* Faults. */
void machines_reboot(struct machines *m, int i);          /* all processes are gone, the disk stays */
void machines_wipe(struct machines *m, int i);            /* the disk, too */
void machines_down(struct machines *m, int i, bool down); /* off: no process until it is on again */
void machines_fill_disk(struct machines *m, int i, bool full);
void machines_step_clock(struct machines *m, int i, int64_t by_us); /* the wall clock */
void machines_kill_rank(struct machines *m, int i, int signal);     /* one of those alive, by chance */
void machines_kill_shim(struct machines *m, int i);                 /* likewise, with what is below it */
void machines_hang_rank(struct machines *m, int i); /* it goes on no more and does not hear SIGTERM or orders */
void machines_end_hangs(struct machines *m,
                        int i); /* those that no step of the others waits for are killed: somebody has noticed */

/* An agent of machine i dies at its n-th action from now on: that and all later ones do nothing. 0: none dies. Whether
 * it has died; machines_open() begins anew. */
void machines_crash_agent(struct machines *m, int i, int n);
bool machines_agent_crashed(const struct machines *m, int i);

/* What became of all ranks. */
struct book *machines_book(const struct machines *m);

/* What is there now. */
int machines_alive(const struct machines *m, int i);   /* processes of ranks */
int machines_folders(const struct machines *m, int i); /* of runs */

#endif
