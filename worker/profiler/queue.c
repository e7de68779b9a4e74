#include "worker/profiler/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ops.h"
#include "worker/flight/flight.h"

#define PLACES 4096 /* operations that are followed at a time; older ones are taken to be done */

struct operation {
    const struct queue_group *in;
    struct operation *next; /* younger */
    struct flight_call call;
    uint64_t number;
    unsigned parts; /* that are not done */
    bool listed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below */
static struct flight *page;                              /* NULL: this process has none */
static struct operation place[PLACES];                   /* that of a number: taken in turn, never freed */
static struct operation *oldest, **last = &oldest;
static uint64_t begun, told; /* operations in all time; of them, in the page */

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

bool queue_open(void)
{
    bool has;

    (void)pthread_mutex_lock(&lock);
    if (!page)
        page = open_page();
    has = page;
    (void)pthread_mutex_unlock(&lock);
    return has;
}

void queue_group_init(struct queue_group *g, const char *name, uint64_t key, int size)
{
    *g = (struct queue_group){.key = (key & INT64_MAX) ? key & INT64_MAX : 1, .size = size};
    (void)snprintf(g->name, sizeof(g->name), "%s", name);
    for (char *p = g->name; *p; p++)
        *p = *p > 0x20 && *p < 0x7F ? *p : '_';
}

uint64_t queue_begin(struct queue_group *g, const struct queue_call *call)
{
    struct operation *o;
    uint64_t number;

    (void)pthread_mutex_lock(&lock);
    number = page ? ++begun : 0;
    o = &place[number % PLACES];
    if (page) {
        take_out(o); /* whose end was never told */
        *o = (struct operation){.in = g, .number = number, .parts = call->parts, .listed = true};
        o->call = (struct flight_call){.group = g->name,
                                       .key = g->key,
                                       .size = g->size,
                                       .peer = call->peer,
                                       .op = call->op,
                                       .digest = ops_digest(call->op, "world", call->agree),
                                       .seq = call->peer < 0 ? ++g->calls : ++g->messages,
                                       .bytes = call->bytes};
        *last = o;
        last = &o->next;
        if (oldest == o)
            enter_oldest();
        else
            flight_moved(page);
    }
    (void)pthread_mutex_unlock(&lock);
    return number;
}

void queue_moved(void)
{
    (void)pthread_mutex_lock(&lock);
    if (page)
        flight_moved(page);
    (void)pthread_mutex_unlock(&lock);
}

void queue_part_done(uint64_t number)
{
    struct operation *o = &place[number % PLACES];

    (void)pthread_mutex_lock(&lock);
    if (page && o->listed && o->number == number && --o->parts == 0)
        take_out(o);
    if (page)
        flight_moved(page);
    (void)pthread_mutex_unlock(&lock);
}

void queue_forget(const struct queue_group *g)
{
    (void)pthread_mutex_lock(&lock);
    for (struct operation *o = oldest, *next; o; o = next) {
        next = o->next;
        if (o->in == g)
            take_out(o);
    }
    (void)pthread_mutex_unlock(&lock);
}
