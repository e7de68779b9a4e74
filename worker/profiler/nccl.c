/* libnccl-profiler for Muster: what a program that uses NCCL waits in, told through the flight page of its rank
 *
 * NCCL loads it by NCCL_PROFILER_PLUGIN=$MUSTER_LIB/libmuster-nccl-profiler.so and takes the newest table that both
 * know: versions 4 and 5 of the interface are here, whose events say how many channels an operation has. The layouts
 * below are this file's own words for that interface.
 *
 * NCCL tells when an operation was enqueued; that it is done is known once the kernel has ended on all of its channels.
 * Operations of a stream run one after the other, which is how queue.h takes them.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/profiler/queue.h"

#define EXPORTED __attribute__((visibility("default")))

/* --- the interface ----------------------------------------------------------------------------------- */

enum { SUCCESS = 0 };
enum { EVENT_COLL = 1 << 1, EVENT_KERNEL = 1 << 6 }; /* bits of the mask, and types of events */

struct collective {
    uint64_t number; /* of its function: no count of all calls */
    const char *function;
    const void *from;
    void *to;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
};

struct event_4 {
    uint8_t type;
    void *parent; /* of a kernel's channel: the operation */
    int rank;
    union {
        struct collective coll;
        uint64_t room[16];
    };
};

struct event_5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct collective coll;
        uint64_t room[16];
    };
};

struct table_4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log);
    int (*start)(void *context, void **handle, struct event_4 *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

struct table_5 {
    const char *name;
    int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log);
    int (*start)(void *context, void **handle, struct event_5 *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

/* --- what is followed -------------------------------------------------------------------------------- */

/* What NCCL holds of an event: the number of its operation, and in the lowest bits what it is of it. */
enum { HANDLE_OTHER = 1, HANDLE_OPERATION, HANDLE_CHANNEL, HANDLE_BITS = 2, HANDLE_MASK = (1 << HANDLE_BITS) - 1 };

static void *handle_of(uint64_t operation, unsigned kind)
{
    return (void *)(uintptr_t)(operation << HANDLE_BITS | kind); /* never looked into */
}

static uint64_t operation_of(const void *handle, unsigned kind) /* 0: it is of another kind */
{
    return ((uintptr_t)handle & HANDLE_MASK) == kind ? (uintptr_t)handle >> HANDLE_BITS : 0;
}

static uint32_t op_of(const char *function)
{
    static const char *const names[] = {[1] = "AllReduce", "ReduceScatter", "AllGather", "AlltoAll", "Broadcast"};

    for (uint32_t i = 1; function && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(function, names[i]) == 0)
            return i;
    return 0;
}

static uint64_t bytes_of(const struct collective *c)
{
    static const struct {
        const char *part;
        unsigned bytes;
    } sizes[] = {{"64", 8}, {"32", 4}, {"16", 2}, {"8", 1}};

    for (size_t i = 0; c->datatype && i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strstr(c->datatype, sizes[i].part))
            return (uint64_t)c->count * sizes[i].bytes;
    return (uint64_t)c->count;
}

/* --- calls ------------------------------------------------------------------------------------------- */

static int begin(void **context, int *mask, const char *name, uint64_t key, int ranks)
{
    struct queue_group *g = malloc(sizeof(*g));

    *mask = g && queue_open() ? EVENT_COLL | EVENT_KERNEL : 0;
    *context = g;
    if (g)
        queue_group_init(g, name && *name ? name : "nccl", key, ranks);
    return SUCCESS;
}

static int start(void *context, void **handle, uint64_t type, void *parent, const struct collective *c)
{
    *handle = handle_of(0, HANDLE_OTHER); /* of groups and the like, without which NCCL tells nothing of their parts */
    if (context && type == EVENT_COLL) {
        const struct queue_call call = {.op = op_of(c->function),
                                        .peer = -1,
                                        .bytes = bytes_of(c),
                                        .agree = bytes_of(c) * 31 + (uint64_t)c->root,
                                        .parts = c->channels ? c->channels : 1};

        *handle = handle_of(queue_begin(context, &call), HANDLE_OPERATION);
    } else if (context && type == EVENT_KERNEL && operation_of(parent, HANDLE_OPERATION)) {
        *handle = handle_of(operation_of(parent, HANDLE_OPERATION), HANDLE_CHANNEL);
        queue_moved();
    }
    return SUCCESS;
}

/* Of an operation it says only that this is enqueued. */
static int stop(void *handle)
{
    if (operation_of(handle, HANDLE_CHANNEL))
        queue_part_done(operation_of(handle, HANDLE_CHANNEL));
    return SUCCESS;
}

static int record(void *handle, int state, void *arguments)
{
    (void)handle;
    (void)state;
    (void)arguments;
    return SUCCESS;
}

static int finalize(void *context)
{
    queue_forget(context);
    free(context);
    return SUCCESS;
}

static int init_4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log)
{
    (void)nodes;
    (void)rank;
    (void)log;
    return begin(context, mask, name, hash, ranks);
}

static int init_5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log)
{
    (void)nodes;
    (void)rank;
    (void)log;
    return begin(context, mask, name, id, ranks);
}

static int start_4(void *context, void **handle, struct event_4 *event)
{
    return start(context, handle, event->type, event->parent, &event->coll);
}

static int start_5(void *context, void **handle, struct event_5 *event)
{
    return start(context, handle, event->type, event->parent, &event->coll);
}

EXPORTED const struct table_4 ncclProfiler_v4 = {"muster", init_4, start_4, stop, record, finalize};
EXPORTED const struct table_5 ncclProfiler_v5 = {"muster", init_5, start_5, stop, record, finalize};
