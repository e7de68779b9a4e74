/* program - the files through which a command and its agent speak (docs/programs.md)
 *
 * The agent publishes abi.json and order.json in the folder of a run; ranks answer in files of their own. A program may
 * leave anything there: only plain files of its account and of a sensible size are read, and what does not make sense
 * is as if it were not there. The texts are read by pure functions, which a fuzz target calls too.
 */
#ifndef MUSTER_WORKER_AGENT_PROGRAM_H
#define MUSTER_WORKER_AGENT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/protocol/exit.h"
#include "api/protocol/report.h"
#include "base/merr.h"

#define PROGRAM_ABI 1
#define PROGRAM_FILE_MAX 4096 /* bytes of a file of a rank */
#define PROGRAM_SECTION_MAX 32
#define PROGRAM_FOR_S_MAX 604800.0 /* a week: the longest that a section may declare */

enum program_order { PROGRAM_GO_ON, PROGRAM_SAVE, PROGRAM_STOP, PROGRAM_SCALE, PROGRAM_ABORT, PROGRAM_ORDERS };

/* "none", "save", "stop", "scale", "abort" */
extern const char *const program_order_names[PROGRAM_ORDERS];

struct program_telling { /* an order in words */
    enum program_order order;
    int64_t deadline_us; /* wall time; 0: none */
    const char *reason;
    int devices_now, devices_next; /* next 0: not known, or as now */
};

struct program_result { /* rank-NNNNN.result */
    enum exit_said outcome;
    enum exit_cause cause; /* of FAILED */
    int64_t step;          /* -1: not told */
    char message[EXIT_WHY_MAX];
};

struct program_beat { /* rank-NNNNN.beat */
    int64_t step;     /* -1: not told */
    int64_t at_us;    /* of the monotonic clock: the program's last step */
    char section[PROGRAM_SECTION_MAX];
    int64_t for_us; /* that the section may take; 0: it is in none */
};

/* What a text says. -EINVAL: nothing that is written down. *ret is unchanged then. */
int program_parse_result(const char *text, size_t n, struct program_result *ret);
int program_parse_beat(const char *text, size_t n, struct program_beat *ret);
int program_parse_ack(const char *text, size_t n, struct report_ack *ret);

/* The order that a text gives, and its number. */
int program_parse_order(const char *text, size_t n, enum program_order *ret, uint64_t *ret_seq);

/* Of a rank of the run in folder. 0, or a negative errno: there is none that can be read. */
int program_read_result(const char *folder, int rank, struct program_result *ret);
int program_read_beat(const char *folder, int rank, struct program_beat *ret);
int program_read_ack(const char *folder, int rank, struct report_ack *ret);

/* What the command said that ran as n ranks from this one on, or launched all that have left a result in the folder
 * (0).
 * seen->asked is set, too, where it answers an order to end whose signal came after it. */
void program_hear(const char *folder, int rank, int n, struct exit_seen *seen);

/* Tell the programs of a run that this is version PROGRAM_ABI. */
int program_publish_abi(const char *folder, struct merr *err);

/* Give an order: its number is one more than that of the order before. One that stands already, and that no rank has
 * acknowledged, is not given again: a program shall not save twice since its agent was started anew. */
int program_publish_order(const char *folder, const struct program_telling *t, struct merr *err);

#endif
