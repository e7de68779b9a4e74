/* handle - what the parts of libmuster share: the handle, and how a call begins and fails */
#ifndef MUSTER_API_PROGRAM_HANDLE_H
#define MUSTER_API_PROGRAM_HANDLE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "api/program/muster.h"

#define PATH_ROOM (PATH_MAX + 256)
#define LINE_MAX_BYTES 16384
#define SECTIONS_MAX 16
#define SECTION_NAME_MAX 32
#define EXPORTED __attribute__((visibility("default")))

struct muster {
    int rank;
    unsigned opened;                   /* how often, under the lock of open.c */
    int forks;                         /* of this process when it was opened: another number, another process */
    char run[PATH_MAX], job[PATH_MAX]; /* folders; job "": none */

    _Atomic int64_t step, at_us; /* of the last sign of life; at 0: none yet */
    _Atomic bool quiet;          /* it has ended: no sign of life any more */

    pthread_mutex_t lock; /* all below */
    pthread_cond_t wake;
    pthread_t thread;
    bool ending, orphan; /* orphan: the thread frees the handle */
    struct {
        char name[SECTION_NAME_MAX];
        double timeout_s;
    } section[SECTIONS_MAX];
    int sections;
    struct muster_order order;
    uint64_t told_seq; /* that the callback has seen */
    void (*on_order)(void *arg, const struct muster_order *order);
    void *on_order_arg;
    int64_t full_us; /* when it was last told that the disk is full; 0: never */
    bool torn[2];    /* the last line of metrics, of events, is not whole */
};

extern _Atomic int handle_forks; /* of this process and those before it, since one of them opened */

/* Whether a call has anything to do: not outside Muster, and not in a child. */
bool handle_live(const struct muster *m);

/* Keep words for muster_last_error(). Returns code. */
int handle_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A name as metrics may have. */
bool handle_name_ok(const char *name, size_t max);

/* files.c: those of docs/programs.md. A file of this rank: rank-00003.SUFFIX. */
const char *files_rank_path(const struct muster *m, const char *suffix, char ret[PATH_ROOM]);

/* Put text into a file at once or not at all; durable: until after a loss of power. Negative errno. */
int files_publish(const char *path, const void *data, size_t len, bool durable);

/* Up to max bytes of a plain file, without waiting for anybody. Negative errno. */
long files_read(const char *path, char *text, size_t max);

/* text.c: JSON as far as it is needed here. */

/* Whether text is one JSON value, well formed, and an object. */
bool text_is_object(const char *text, size_t n);

/* Where the value of a member of an object stands; NULL: it has none. text is well formed and ends in NUL. */
const char *text_member(const char *text, const char *key);

/* Append text as it stands between quotation marks: at most max bytes of it, whole characters; what is no UTF-8 or a
 * control character becomes a space. Returns how many bytes were written to ret, which has room for 2 × max. */
size_t text_quote(const char *text, size_t max, char *ret);

/* orders.c: the thread that looks for orders and shows signs of life. */
void *orders_watch(void *handle);

#endif
