/* ledger - the device time, waits and energy of all jobs, by hour, user, project and class of devices
 *
 * A run is entered when it is over, with the turn in which that is stored, into the hours in which it ran; runs that go
 * on are counted as they are. Hours older than LEDGER_HOURS_DAYS are kept by days, and those older than
 * LEDGER_DAYS are left out. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_LEDGER_H
#define MUSTER_SERVER_LEDGER_H

#include "base/merr.h"
#include "server/control/energy.h"

#define LEDGER_HOURS_DAYS 35
#define LEDGER_DAYS 400
#define LEDGER_ROWS_MAX 200000 /* of any more nothing is entered */
#define LEDGER_ANSWER_MAX 10000

struct call;
struct core;
struct ledger;

struct ledger *ledger_new(void); /* NULL: no memory */
void ledger_free(struct ledger *l);

/* The event is there: what is over by it is entered, and goes into the batch. */
void ledger_note(struct core *c, struct entry *e, const struct energy_run *was);

/* GET /v1/usage: of what its caller may see */
void ledger_report(struct core *c, struct call *call);

int ledger_load(struct core *c, struct merr *err);

#endif
