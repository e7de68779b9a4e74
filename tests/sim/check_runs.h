/* check_runs - a run that the server takes for over is over
 *
 * The server may be wrong about a node that it has lost or that has another agent since: such runs are left out. Else
 * no rank that it has heard of is alive once the run is over; and a run that nobody was to stop ends by its ranks, so
 * each of them has run. Once all is put right an agent hears of a run at once. A rank that the server says holds up
 * the others stood still.
 */
#ifndef MUSTER_TESTS_SIM_CHECK_RUNS_H
#define MUSTER_TESTS_SIM_CHECK_RUNS_H

#include "tests/sim/book.h"
#include "tests/sim/world.h"

struct core;
struct check_runs;

struct check_runs *check_runs_new(struct world *w, const struct book *book);
void check_runs_free(struct check_runs *k);

/* From now on nothing goes wrong. */
void check_runs_calm(struct check_runs *k);

/* After each turn of the server. */
void check_runs_turn(struct check_runs *k, const struct core *c);

#endif
