#include "server/control/provider.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/client/tool.h"
#include "base/thread.h"
#include "server/http/call.h"
#include "server/http/queue.h"

const char *const provider_verbs[] = {"request", "release", "list", NULL};

struct item {
    struct item *next;
    json_t *ask; /* owned */
    struct provider_answer answer;
};

struct items {
    struct item *first, **end;
};

struct provider {
    struct provider_way way;
    struct queue *queue; /* borrowed: of the core */
    void (*wake)(void *core, struct call *call);
    struct items noted; /* of the core */
    bool threaded;
    pthread_t thread;
    _Atomic int stop;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t more;
    struct items asked, done;
};

static void add(struct items *list, struct item *item)
{
    item->next = NULL;
    *list->end = item;
    list->end = &item->next;
}

static struct item *take(struct items *list)
{
    struct item *item = list->first;

    list->first = item ? item->next : NULL;
    if (!list->first)
        list->end = &list->first;
    return item;
}

static void clear(struct items *list)
{
    for (struct item *item; (item = take(list));) {
        json_decref(item->ask);
        json_decref(item->answer.doc);
        free(item);
    }
}

static void make_call(struct provider *p, struct item *item)
{
    struct provider_answer *a = &item->answer;
    struct merr err = {""};

    a->status = p->way.call(p->way.self, a->verb, item->ask, &p->stop, &a->doc, &err);
    (void)snprintf(a->why, sizeof(a->why), "%s", err.text);
}

/* --- the thread ---------------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    struct provider *p = arg;

    thread_begin("provider", 0);
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct item *item = take(&p->asked);
        struct call *call;

        if (!item) {
            pthread_cond_wait(&p->more, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        make_call(p, item);
        call = call_new(NULL, p->wake);
        pthread_mutex_lock(&p->lock);
        add(&p->done, item);
        if (call && !queue_give(p->queue, call))
            call_free(call);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* --- the core's side ----------------------------------------------------------------------------------- */

int provider_start(const struct provider_way *way, struct queue *queue, void (*wake)(void *core, struct call *call),
                   bool thread, struct provider **ret, struct merr *err)
{
    struct provider *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return merr_set(err, -ENOMEM, "out of memory");
    *p = (struct provider){.way = *way, .queue = queue, .wake = wake, .threaded = thread};
    p->noted.end = &p->noted.first;
    p->asked.end = &p->asked.first;
    p->done.end = &p->done.first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    r = thread ? pthread_create(&p->thread, NULL, serve, p) : 0;
    if (r != 0) {
        p->threaded = false;
        provider_free(p);
        return merr_errno(err, -r, "cannot start a thread");
    }
    *ret = p;
    return 0;
}

void provider_free(struct provider *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
    if (p->threaded)
        (void)pthread_join(p->thread, NULL);
    clear(&p->noted);
    clear(&p->asked);
    clear(&p->done);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

bool provider_ask_new(struct provider *p, enum provider_verb verb, uint64_t id, json_t *ask)
{
    struct item *item = ask ? calloc(1, sizeof(*item)) : NULL;

    if (!item) {
        json_decref(ask);
        return false;
    }
    item->ask = ask;
    item->answer = (struct provider_answer){.verb = verb, .id = id};
    add(&p->noted, item);
    return true;
}

void provider_send(struct provider *p)
{
    if (!p || !p->noted.first)
        return;
    pthread_mutex_lock(&p->lock);
    for (struct item *item; (item = take(&p->noted));) {
        if (!p->threaded)
            make_call(p, item);
        add(p->threaded ? &p->asked : &p->done, item);
    }
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}

bool provider_take(struct provider *p, struct provider_answer *ret)
{
    struct item *item;

    pthread_mutex_lock(&p->lock);
    item = take(&p->done);
    pthread_mutex_unlock(&p->lock);
    if (!item)
        return false;
    *ret = item->answer;
    json_decref(item->ask);
    free(item);
    return true;
}

/* --- a program ----------------------------------------------------------------------------------------- */

int provider_command(void *self, enum provider_verb verb, const json_t *ask, const _Atomic int *stop, json_t **ret,
                     struct merr *err)
{
    const struct provider_program *program = self;
    const char *argv[sizeof(program->argv) / sizeof(program->argv[0]) + 1];
    char *in = json_dumps(ask, JSON_COMPACT), *out = NULL;
    json_error_t why;
    size_t n = 0;
    int r;

    for (; program->argv[n]; n++)
        argv[n] = program->argv[n];
    argv[n++] = provider_verbs[verb];
    argv[n] = NULL;
    r = in ? tool_run(argv, in, PROVIDER_WAIT_MS, stop, &out, err) : merr_set(err, -ENOMEM, "out of memory");
    if (in)
        explicit_bzero(in, strlen(in)); /* join codes */
    free(in);
    if (r < 0)
        return r;
    *ret = json_loads(out, 0, &why);
    free(out);
    if (!json_is_object(*ret)) {
        json_decref(*ret);
        *ret = NULL;
        return merr_set(err, -EPROTO, "'%s %s' printed no JSON object: %.80s", argv[0], provider_verbs[verb], why.text);
    }
    return 0;
}
