#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/comm/direct.h"
#include "worker/engine/comm/world.h"

static void queue_init(struct comm_queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void queue_add(struct comm_queue *q, struct comm_request *r)
{
    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
}

static bool queue_remove(struct comm_queue *q, struct comm_request *r)
{
    for (struct comm_request **at = &q->first; *at; at = &(*at)->next) {
        if (*at != r)
            continue;
        *at = r->next;
        if (q->last == &r->next)
            q->last = at;
        return true;
    }
    return false;
}

void message_peer_init(struct comm_peer *p, int rank)
{
    *p = (struct comm_peer){.rank = rank};
    queue_init(&p->sending);
    queue_init(&p->posted);
    p->early_last = &p->early;
}

void message_free(struct comm_request *r)
{
    direct_free(r);
    free(r->staged);
    coded_part_free(r);
    free(r);
}

void message_peer_clear(struct comm_peer *p)
{
    struct comm_queue *q[] = {&p->sending, &p->posted};

    for (int i = 0; i < 2; i++) {
        for (struct comm_request *r = q[i]->first, *next; r; r = next) {
            next = r->next;
            message_free(r);
        }
    }
    for (struct comm_early *e = p->early, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    message_peer_init(p, p->rank);
}

static bool matches(const struct frame *a, const struct frame *b)
{
    return a->kind == b->kind && a->group == b->group && a->step == b->step &&
           (a->kind != FRAME_CALL || a->seq == b->seq);
}

/* The message in f is for the receive r. */
static int check_match(struct comm_world *w, const struct comm_request *r, const struct frame *f)
{
    if (f->length == r->bytes)
        return 0;
    if (f->kind != FRAME_CALL)
        return world_fail(w, -EPROTO, "rank %u sends %llu bytes in '%s' with tag %u, rank %d expects %zu", f->source,
                          (unsigned long long)f->length, r->group->name, f->step, w->rank, r->bytes);
    message_wrong(w, r->peer, r->group);
    return world_fail(w, -EPROTO, "rank %u sends %llu bytes in call %llu (%s) of '%s', rank %d expects %zu", f->source,
                      (unsigned long long)f->length, (unsigned long long)f->seq, comm_call_name(f->op), r->group->name,
                      w->rank, r->bytes);
}

static void early_unlink(struct comm_peer *p, struct comm_early *e)
{
    for (struct comm_early **at = &p->early; *at; at = &(*at)->next) {
        if (*at != e)
            continue;
        *at = e->next;
        if (p->early_last == &e->next)
            p->early_last = at;
        return;
    }
    assert(!"an early message is in its peer's list");
}

struct comm_request *message_recv(struct comm_group *g, int member, const struct frame *head, void *buf)
{
    struct comm_world *w = g->world;
    struct comm_peer *p = &w->peers[g->rank[member]];
    struct comm_request *r = calloc(1, sizeof(*r));
    struct comm_early *e;

    if (!r) {
        (void)world_fail(w, -ENOMEM, "no memory for a receive from rank %d", p->rank);
        return NULL;
    }
    r->group = g;
    r->peer = p;
    r->buf = buf;
    r->bytes = head->length;
    r->head = *head;
    for (e = p->early; e && !matches(&e->head, head); e = e->next)
        ;
    if (!e) {
        queue_add(&p->posted, r);
        return r;
    }
    if (check_match(w, r, &e->head) < 0) {
        message_free(r);
        return NULL;
    }
    if (e->got)
        memcpy(r->buf, e->data, e->got);
    r->moved = e->got;
    p->taken += e->cost;
    r->done = e->got == r->bytes && p->into_early != e;
    if (p->into_early == e) { /* the rest comes straight to its place */
        p->into_early = NULL;
        p->into = r;
    }
    early_unlink(p, e);
    free(e);
    return r;
}

struct comm_request *message_send(struct comm_group *g, int member, const struct frame *head, const void *buf)
{
    struct comm_world *w = g->world;
    struct comm_peer *p = &w->peers[g->rank[member]];
    struct comm_request *r = calloc(1, sizeof(*r));

    if (!r) {
        (void)world_fail(w, -ENOMEM, "no memory for a message to rank %d", p->rank);
        return NULL;
    }
    r->send = true;
    r->group = g;
    r->peer = p;
    r->bytes = head->length;
    r->head = *head;
    r->buf = (char *)(uintptr_t)buf; /* only read */
    if (head->kind == FRAME_MESSAGE && r->bytes && !p->via->copies && p->staged_bytes + r->bytes <= COMM_EAGER_BYTES &&
        (r->staged = malloc(r->bytes))) {
        memcpy(r->staged, buf, r->bytes);
        r->buf = r->staged;
        p->staged_bytes += r->bytes;
    }
    g->bytes_sent += r->bytes;
    queue_add(&p->sending, r);
    (void)message_pump(w, p);
    return r;
}

static void send_end(struct comm_world *w, struct comm_request *r)
{
    (void)w;
    r->done = true;
    if (r->staged) {
        r->peer->staged_bytes -= r->bytes;
        free(r->staged);
        r->staged = NULL;
    }
    if (r->detached)
        message_free(r);
}

static bool all_handed(const struct comm_request *r)
{
    return r->frames > 0 && r->moved == r->bytes;
}

void message_sent(struct comm_world *w, struct comm_request *r)
{
    assert(r->in_flight > 0);
    if (--r->in_flight == 0 && all_handed(r) && !w->failed)
        send_end(w, r);
}

/* Hand one frame outside the queue to the transport. */
static int send_frame(struct comm_world *w, struct comm_peer *p, struct frame *f)
{
    int r;

    f->number = p->frames_out;
    frame_seal(f, NULL);
    r = p->via->send(w, p, f, NULL, NULL);
    if (r > 0)
        p->frames_out++;
    return r;
}

static int send_word(struct comm_world *w, struct comm_peer *p, enum frame_kind kind, uint64_t value)
{
    struct frame f = {.generation = w->generation, .length = value, .source = (uint32_t)w->rank, .kind = (uint8_t)kind};

    return send_frame(w, p, &f);
}

/* Without room for it the peer finds out by itself, from the frames that fill the way to it. */
void message_wrong(struct comm_world *w, struct comm_peer *p, const struct comm_group *g)
{
    struct frame f = group_call(g, 0, 0);

    f.kind = FRAME_WRONG;
    if (p->via && !p->lost && !p->bye)
        (void)send_frame(w, p, &f);
}

int message_bye(struct comm_world *w, struct comm_peer *p)
{
    return send_word(w, p, FRAME_BYE, 0);
}

/* The first of the queue has been handed over whole. */
static void sending_pop(struct comm_world *w, struct comm_peer *p, struct comm_request *r)
{
    p->sending.first = r->next;
    if (!r->next)
        p->sending.last = &p->sending.first;
    r->next = NULL;
    if (r->in_flight == 0)
        send_end(w, r);
}

bool message_pump(struct comm_world *w, struct comm_peer *p)
{
    bool moved = false;

    if (p->bye || p->lost || w->failed)
        return false;
    if (p->taken - p->taken_told >= COMM_WINDOW_BYTES / 4 && send_word(w, p, FRAME_CREDIT, p->taken) > 0) {
        p->taken_told = p->taken;
        moved = true;
    }
    while (p->sending.first) {
        struct comm_request *r = p->sending.first;
        struct frame f = r->head;
        size_t left = r->bytes - r->moved;
        const char *payload;
        int got;

        f.part = (uint32_t)(left < p->via->part_bytes ? left : p->via->part_bytes);
        if (p->spent - p->freed + f.part + COMM_FRAME_COST > COMM_WINDOW_BYTES)
            break;
        f.offset = r->moved;
        f.number = p->frames_out;
        payload = f.part ? r->buf + r->moved : NULL;
        frame_seal(&f, p->via->far ? payload : NULL);
        got = p->via->send(w, p, &f, payload, r);
        if (got <= 0)
            break;
        p->frames_out++;
        p->spent += f.part + COMM_FRAME_COST;
        r->frames++;
        r->moved += f.part;
        moved = true;
        if (r->moved == r->bytes)
            sending_pop(w, p, r);
    }
    return moved;
}

/* The first frame of a message: find or make the place it goes to. */
static int arrive_begin(struct comm_world *w, struct comm_peer *p, const struct frame *f)
{
    struct comm_group *g = group_find(w, f->group);
    struct comm_request *r;
    struct comm_early *e;

    if (f->offset != 0)
        return world_fail(w, -EPROTO, "rank %d sends the middle of a message that it did not begin", p->rank);
    if (g && f->kind == FRAME_CALL && group_check(g, f) < 0)
        return w->failed;
    for (r = p->posted.first; r && !matches(&r->head, f); r = r->next)
        ;
    p->into_got = 0;
    if (r) {
        if (check_match(w, r, f) < 0)
            return w->failed;
        (void)queue_remove(&p->posted, r);
        p->into = r;
        return 0;
    }
    e = f->length < SIZE_MAX / 2 ? malloc(sizeof(*e) + f->length) : NULL;
    if (!e)
        return world_fail(w, -ENOMEM, "no memory for %llu bytes that rank %d sent early", (unsigned long long)f->length,
                          p->rank);
    *e = (struct comm_early){.head = *f};
    *p->early_last = e;
    p->early_last = &e->next;
    p->into_early = e;
    return 0;
}

/* A later frame of a message: frame_check() held it against its own length only, the place has that of the first. */
static int arrive_more(struct comm_world *w, const struct comm_peer *p, const struct frame *f)
{
    const struct frame *head = p->into ? &p->into->head : &p->into_early->head;
    size_t length = p->into ? p->into->bytes : p->into_early->head.length;

    if (f->offset != p->into_got)
        return world_fail(w, -EPROTO, "rank %d sends byte %llu of a message after byte %llu", p->rank,
                          (unsigned long long)f->offset, (unsigned long long)p->into_got);
    if (f->length != length || !matches(head, f))
        return world_fail(w, -EPROTO, "rank %d goes on with another message before the end of the one it began",
                          p->rank);
    return 0;
}

static int arrive_data(struct comm_world *w, struct comm_peer *p, const struct frame *f, const void *payload)
{
    uint64_t cost = f->part + COMM_FRAME_COST;
    char *to;

    if ((p->into || p->into_early ? arrive_more(w, p, f) : arrive_begin(w, p, f)) < 0)
        return w->failed;
    to = p->into ? p->into->buf : p->into_early->data;
    if (f->part)
        memcpy(to + f->offset, payload, f->part);
    p->into_got = f->offset + f->part;
    if (p->into) {
        p->taken += cost;
        p->into->moved = p->into_got;
    } else {
        p->into_early->cost += cost;
        p->into_early->got = p->into_got;
    }
    if (p->into_got == f->length) {
        if (p->into)
            p->into->done = true;
        p->into = NULL;
        p->into_early = NULL;
    }
    return 0;
}

int message_arrive(struct comm_world *w, struct comm_peer *p, const struct frame *f, const void *payload)
{
    if (w->failed)
        return w->failed;
    if (f->number != p->frames_in)
        return world_fail(w, -EPROTO, "frame %llu of rank %d arrived where %llu was due", (unsigned long long)f->number,
                          p->rank, (unsigned long long)p->frames_in);
    p->frames_in++;
    switch (f->kind) {
    case FRAME_CREDIT:
        if (f->length < p->freed || f->length > p->spent)
            return world_fail(w, -EPROTO, "rank %d says it took %llu bytes, of %llu sent", p->rank,
                              (unsigned long long)f->length, (unsigned long long)p->spent);
        p->freed = f->length;
        return 0;
    case FRAME_BYE:
        p->bye = true;
        return 0;
    case FRAME_WRONG: {
        struct comm_group *g = group_find(w, f->group);

        return g ? group_check(g, f) : world_fail(w, -EPROTO, "rank %d finds that calls differ", p->rank);
    }
    default:
        return arrive_data(w, p, f, payload);
    }
}

void message_detach(struct comm_world *w, struct comm_request *r)
{
    (void)w;
    if (r->done)
        message_free(r);
    else
        r->detached = true;
}

void message_drop(struct comm_world *w, struct comm_request *r)
{
    struct comm_peer *p = r->peer;

    if (!queue_remove(&p->sending, r))
        (void)queue_remove(&p->posted, r);
    if (p->into == r)
        p->into = NULL;
    if (r->in_flight) {
        r->next = w->grave;
        w->grave = r;
    } else {
        message_free(r);
    }
}
