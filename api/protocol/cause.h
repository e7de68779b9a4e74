/* cause - whose doing the end of a rank is: what Muster's own programs say of it (exit.h) */
#ifndef MUSTER_API_PROTOCOL_CAUSE_H
#define MUSTER_API_PROTOCOL_CAUSE_H

enum exit_cause {
    EXIT_CAUSE_UNTOLD,   /* not on the wire: its writer is of protocol 1, or the rank has not ended */
    EXIT_CAUSE_PROGRAM,  /* the program's own affair: its status and signal are all there is */
    EXIT_CAUSE_DONE,     /* its work is done */
    EXIT_CAUSE_DRAINED,  /* it was told to save and end, and did */
    EXIT_CAUSE_USER,     /* the spec, the data or the model is at fault: not tried again by default */
    EXIT_CAUSE_INTERNAL, /* a fault of Muster itself */
    EXIT_CAUSE_NODE,     /* its machine: disk, memory, device; or the rank could not be started, or was lost */
    EXIT_CAUSE_ABORTED,  /* it was told to give up, or lost a peer: never the first cause */
    EXIT_CAUSE_MEMORY,   /* the kernel ended it, since it took more memory than it may: its owner's affair */
    EXIT_CAUSE_NUMBERS,  /* its loss or a gradient is not finite, or replicas differ: not so from an older checkpoint */
    EXIT_CAUSE_REPLICA,  /* its weights are not those that most replicas agree on: its device is suspected */
    EXIT_CAUSES
};

/* The statuses that muster-train ends with, for those who start it by hand. No program of Muster goes by them, but
 * where a cause was left out by one of protocol 1. */
enum {
    EXIT_DONE = 0,
    EXIT_USER = 65,
    EXIT_INTERNAL = 70,
    EXIT_NODE = 74,
    EXIT_ABORTED = 75,
    EXIT_DRAINED = 76,
};

#endif
