/* libnccl-profiler for Muster: what a program that uses NCCL waits in, told through the flight page of its rank
 *
 * NCCL loads it by NCCL_PROFILER_PLUGIN=$MUSTER_LIB/libmuster-nccl-profiler.so and takes the newest table that both
 * know: versions 4 and 5 of the interface are here, whose events say how many channels an operation has. The layouts
 * below are this file's own words for that interface.
 *
 * NCCL tells when an operation was enqueued; that it is done is known once the kernel has ended on all of its channels.
 * Operations of a stream run one after the other, so the rank waits in the oldest that is not done: that is the one in
 * the page, and those behind it are not entered yet. Events come on the program's threads and on NCCL's own: all is
 * behind one lock. Every call succeeds, for a failure here must not be the program's.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ops.h"
#include "worker/flight/flight.h"

#define EXPORTED __attribute__((visibility("default")))
#define PLACES 4096 /* operations that are followed at a time; older ones are taken to be done */

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

struct communicator {
    char name[16];
    uint64_t key, calls;
    int size;
};

struct operation;

struct handle { /* what NCCL holds of an event */
    enum { HANDLE_OTHER, HANDLE_OPERATION, HANDLE_CHANNEL } kind;
    struct operation *of;
    uint64_t serial; /* of it, for its place may be another's by now */
};

struct operation {
    struct handle handle; /* first */
    struct communicator *in;
    struct operation *next; /* younger */
    struct flight_call call;
    unsigned channels, ended; /* that it has, and whose kernel has ended */
    bool listed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below */
static struct flight *page;                              /* NULL: this process has none */
static struct operation place[PLACES];                   /* taken in turn; never freed, so no late event hits nothing */
static struct operation *oldest, **last = &oldest;
static uint64_t begun, told; /* operations in all time; of them, in the page */
static struct handle other;

static struct flight *open_page(void)
{
    const char *folder = getenv("MUSTER_RUN_DIR"), *rank = getenv("RANK");
    struct flight *f = NULL;
    char path[4096];

    if (!folder || !rank || !*rank || strspn(rank, "0123456789") != strlen(rank) || strlen(rank) > 5)
        return NULL;
    (void)snprintf(path, sizeof(path), "%.4000s/rank-%05ld.flight", folder, strtol(rank, NULL, 10));
    return flight_open(path, &f, NULL) == 0 ? f : NULL;
}

/* The rank waits in the oldest operation, if there is one. */
static void enter_oldest(void)
{
    if (!oldest)
        return;
    flight_phase_set(page, FLIGHT_PROGRAM, ++told);
    flight_enter(page, &oldest->call);
}

static void take_out(struct operation *o)
{
    bool was_told = o == oldest;
    struct operation **at = &oldest;

    if (!o->listed)
        return;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    if (!*at)
        last = at;
    o->listed = false;
    if (was_told) {
        flight_leave(page);
        enter_oldest();
    }
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

static void *begin_operation(struct communicator *in, const struct collective *c)
{
    struct operation *o = &place[begun++ % PLACES];
    uint32_t op = op_of(c->function);

    take_out(o); /* whose end was never told */
    *o = (struct operation){.handle = {.kind = HANDLE_OPERATION, .of = o, .serial = begun},
                            .in = in,
                            .channels = c->channels,
                            .listed = true};
    o->call = (struct flight_call){.group = in->name,
                                   .key = in->key,
                                   .size = in->size,
                                   .peer = -1,
                                   .op = op,
                                   .digest = ops_digest(op, "world", bytes_of(c) * 31 + (uint64_t)c->root),
                                   .seq = ++in->calls,
                                   .bytes = bytes_of(c)};
    *last = o;
    last = &o->next;
    if (oldest == o)
        enter_oldest();
    else
        flight_moved(page);
    return &o->handle;
}

static void *begin_channel(const struct handle *parent)
{
    struct handle *h;

    if (!parent || parent->kind != HANDLE_OPERATION || !(h = malloc(sizeof(*h))))
        return &other;
    *h = (struct handle){.kind = HANDLE_CHANNEL, .of = parent->of, .serial = parent->serial};
    flight_moved(page);
    return h;
}

static void end_channel(struct handle *h)
{
    struct operation *o = h->of;

    if (o->handle.serial == h->serial && ++o->ended >= o->channels)
        take_out(o);
    free(h);
    flight_moved(page);
}

/* --- calls ------------------------------------------------------------------------------------------- */

static int begin(void **context, int *mask, const char *name, uint64_t key, int ranks)
{
    struct communicator *c = calloc(1, sizeof(*c));

    *mask = 0;
    *context = c;
    if (!c)
        return SUCCESS;
    (void)snprintf(c->name, sizeof(c->name), "%s", name && *name ? name : "nccl");
    for (char *p = c->name; *p; p++)
        *p = *p > 0x20 && *p < 0x7F ? *p : '_';
    c->key = (key & INT64_MAX) ? key & INT64_MAX : 1;
    c->size = ranks;
    (void)pthread_mutex_lock(&lock);
    if (!page)
        page = open_page();
    if (page)
        *mask = EVENT_COLL | EVENT_KERNEL;
    (void)pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int start(void *context, void **handle, uint64_t type, void *parent, const struct collective *coll)
{
    *handle = &other; /* of groups and the like, without which NCCL tells nothing of what is in them */
    if (!context)
        return SUCCESS;
    (void)pthread_mutex_lock(&lock);
    if (page && type == EVENT_COLL)
        *handle = begin_operation(context, coll);
    else if (page && type == EVENT_KERNEL)
        *handle = begin_channel(parent);
    (void)pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* Of an operation it says only that this is enqueued. */
static int stop(void *handle)
{
    struct handle *h = handle;

    if (!h || h->kind != HANDLE_CHANNEL)
        return SUCCESS;
    (void)pthread_mutex_lock(&lock);
    end_channel(h);
    (void)pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int record(void *handle, int state, void *arguments)
{
    (void)handle;
    (void)state;
    (void)arguments;
    return SUCCESS;
}

/* Its communicator is gone, and with it what it had open. */
static int finalize(void *context)
{
    (void)pthread_mutex_lock(&lock);
    for (struct operation *o = oldest, *next; o; o = next) {
        next = o->next;
        if (o->in == context)
            take_out(o);
    }
    (void)pthread_mutex_unlock(&lock);
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
