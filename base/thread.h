/* thread - what a thread says of itself to the system: a name, and how patient it is */
#ifndef MUSTER_BASE_THREAD_H
#define MUSTER_BASE_THREAD_H

#define THREAD_PATIENT 10 /* nice: a tenth of the processor where others want it, all of it otherwise */

/* Called first in a thread. name: at most 15 characters, as ps shows it; nice: beyond that of the process, from 0. */
void thread_begin(const char *name, int nice);

#endif
