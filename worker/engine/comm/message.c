#include "worker/engine/comm/message.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

static void queue_init(struct message_queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void queue_add(struct message_queue *q, struct comm_request *r)
{
    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
}

static bool queue_remove(struct message_queue *q, struct comm_request *r)
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

static void peer_init(struct message_peer *p, int rank)
{
    *p = (struct message_peer){.rank = rank};
    queue_init(&p->sending);
    queue_init(&p->posted);
    p->early_last = &p->early;
}

void message_free(struct comm_request *r)
{
    while (r->hooks) {
        struct message_hook *h = r->hooks;

        r->hooks = h->next;
        h->free(r, h);
    }
    free(r->staged);
    free(r);
}

static void peer_clear(struct message_peer *p)
{
    struct message_queue *q[] = {&p->sending, &p->posted};

    for (int i = 0; i < 2; i++) {
        for (struct comm_request *r = q[i]->first, *next; r; r = next) {
            next = r->next;
            message_free(r);
        }
    }
    for (struct message_early *e = p->early, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    peer_init(p, p->rank);
}

void message_hang(struct comm_request *r, struct message_hook *h)
{
    struct message_hook **at = &r->hooks;

    while (*at)
        at = &(*at)->next;
    h->next = NULL;
    *at = h;
}

int message_land(struct comm_request *r)
{
    for (struct message_hook *h = r->hooks; h; h = h->next) {
        if (h->land)
            TRY(h->land(r, h));
    }
    return 0;
}

int message_wait(struct comm_request *r)
{
    return wait_until(r->channel->messages->wait, &r->done, r->peer->rank, r->channel->name);
}

static struct failure *failure_of(const struct messages *m)
{
    return &m->wait->failure;
}

static bool matches(const struct frame *a, const struct frame *b)
{
    return a->kind == b->kind && a->group == b->group && a->step == b->step &&
           (a->kind != FRAME_CALL || a->seq == b->seq);
}

/* The message in f is for the receive r. */
static int check_match(struct messages *m, const struct comm_request *r, const struct frame *f)
{
    if (f->length == r->bytes)
        return 0;
    if (f->kind != FRAME_CALL)
        return failure_keep(failure_of(m), -EPROTO, "rank %u sends %llu bytes in '%s' with tag %u, rank %d expects %zu",
                            f->source, (unsigned long long)f->length, r->channel->name, f->step, m->wait->rank,
                            r->bytes);
    message_wrong(m, r->peer->rank, &r->head);
    return failure_keep(failure_of(m), -EPROTO,
                        "rank %u sends %llu bytes in call %llu (%s) of '%s', rank %d expects %zu", f->source,
                        (unsigned long long)f->length, (unsigned long long)f->seq, frame_call_name(f->op),
                        r->channel->name, m->wait->rank, r->bytes);
}

static void early_unlink(struct message_peer *p, struct message_early *e)
{
    for (struct message_early **at = &p->early; *at; at = &(*at)->next) {
        if (*at != e)
            continue;
        *at = e->next;
        if (p->early_last == &e->next)
            p->early_last = at;
        return;
    }
    assert(!"an early message is in its peer's list");
}

static void send_end(struct comm_request *r)
{
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

/* The transport let go of one frame. */
static void sent(void *self, void *token)
{
    struct messages *m = self;
    struct comm_request *r = token;

    assert(r->in_flight > 0);
    if (--r->in_flight == 0 && all_handed(r) && !failure_of(m)->code)
        send_end(r);
}

/* Hand one frame outside the queue to the transport. false: not now. */
static bool send_frame(struct message_peer *p, struct frame *f)
{
    f->number = p->frames_out;
    frame_seal(f, NULL);
    if (p->via->ops->send(p->via, p->rank, f, NULL, NULL) == TRANSPORT_NOT_NOW)
        return false;
    p->frames_out++;
    return true;
}

static bool send_word(struct messages *m, struct message_peer *p, enum frame_kind kind, uint64_t value)
{
    struct frame f = {
        .generation = m->generation, .length = value, .source = (uint32_t)m->wait->rank, .kind = (uint8_t)kind};

    return send_frame(p, &f);
}

/* Without room for it the peer finds out by itself, from the frames that fill the way to it. */
void message_wrong(struct messages *m, int rank, const struct frame *call)
{
    struct message_peer *p = &m->peer[rank];
    struct frame f = *call;

    f.source = (uint32_t)m->wait->rank;
    f.step = 0;
    f.length = 0;
    f.kind = FRAME_WRONG;
    if (p->via && !m->wait->peer[rank].lost && !m->wait->peer[rank].left)
        (void)send_frame(p, &f);
}

/* The first of the queue has been handed over whole. */
static void sending_pop(struct message_peer *p, struct comm_request *r)
{
    p->sending.first = r->next;
    if (!r->next)
        p->sending.last = &p->sending.first;
    r->next = NULL;
    if (r->in_flight == 0)
        send_end(r);
}

/* The peer may soon want to know how much of its window is free again. */
static bool credit_due(const struct message_peer *p)
{
    return p->taken - p->taken_told >= MESSAGE_WINDOW_BYTES / 4;
}

/* Send what can be sent; true: something was. */
static bool pump(struct messages *m, struct message_peer *p)
{
    const struct wait_peer *is = &m->wait->peer[p->rank];
    bool moved = false;

    if (is->left || is->lost || failure_of(m)->code)
        return false;
    if (credit_due(p) && send_word(m, p, FRAME_CREDIT, p->taken)) {
        p->taken_told = p->taken;
        moved = true;
    }
    while (p->sending.first) {
        struct comm_request *r = p->sending.first;
        struct frame f = r->head;
        size_t left = r->bytes - r->moved;
        const char *payload;
        enum transport_took took;

        f.part = (uint32_t)(left < p->via->part_bytes ? left : p->via->part_bytes);
        if (p->spent - p->freed + f.part + MESSAGE_FRAME_COST > MESSAGE_WINDOW_BYTES)
            break;
        f.offset = r->moved;
        f.number = p->frames_out;
        payload = f.part ? r->buf + r->moved : NULL;
        frame_seal(&f, p->via->ops->far ? payload : NULL);
        took = p->via->ops->send(p->via, p->rank, &f, payload, r);
        if (took == TRANSPORT_NOT_NOW)
            break;
        r->in_flight += took == TRANSPORT_HOLDS;
        p->frames_out++;
        p->spent += f.part + MESSAGE_FRAME_COST;
        r->frames++;
        r->moved += f.part;
        moved = true;
        if (r->moved == r->bytes)
            sending_pop(p, r);
    }
    return moved;
}

struct comm_request *message_new(struct message_channel *c, int rank, const struct frame *head, const void *buf)
{
    struct comm_request *r = calloc(1, sizeof(*r));

    if (!r) {
        (void)failure_keep(failure_of(c->messages), -ENOMEM, "no memory for a message of %llu bytes",
                           (unsigned long long)head->length);
        return NULL;
    }
    r->channel = c;
    r->peer = &c->messages->peer[rank];
    r->bytes = head->length;
    r->head = *head;
    r->buf = (char *)(uintptr_t)buf; /* of a send it is only read */
    return r;
}

struct comm_request *message_recv(struct message_channel *c, int rank, const struct frame *head, void *buf)
{
    struct messages *m = c->messages;
    struct message_peer *p = &m->peer[rank];
    struct comm_request *r = message_new(c, rank, head, buf);
    struct message_early *e;

    if (!r)
        return NULL;
    for (e = p->early; e && !matches(&e->head, head); e = e->next)
        ;
    if (!e) {
        queue_add(&p->posted, r);
        return r;
    }
    if (check_match(m, r, &e->head) < 0) {
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

struct comm_request *message_send(struct message_channel *c, int rank, const struct frame *head, const void *buf)
{
    struct messages *m = c->messages;
    struct message_peer *p = &m->peer[rank];
    struct comm_request *r = message_new(c, rank, head, buf);

    if (!r)
        return NULL;
    r->send = true;
    if (head->kind == FRAME_MESSAGE && r->bytes && !p->via->ops->copies &&
        p->staged_bytes + r->bytes <= MESSAGE_EAGER_BYTES && (r->staged = malloc(r->bytes))) {
        memcpy(r->staged, buf, r->bytes);
        r->buf = r->staged;
        p->staged_bytes += r->bytes;
    }
    c->bytes_sent += r->bytes;
    queue_add(&p->sending, r);
    (void)pump(m, p);
    return r;
}

/* The first frame of a message: find or make the place it goes to. */
static int arrive_begin(struct messages *m, struct message_peer *p, const struct frame *f)
{
    struct comm_request *r;
    struct message_early *e;

    if (f->offset != 0)
        return failure_keep(failure_of(m), -EPROTO, "rank %d sends the middle of a message that it did not begin",
                            p->rank);
    if (f->kind == FRAME_CALL && m->above->check(m->above_self, f) < 0)
        return failure_of(m)->code;
    for (r = p->posted.first; r && !matches(&r->head, f); r = r->next)
        ;
    p->into_got = 0;
    if (r) {
        if (check_match(m, r, f) < 0)
            return failure_of(m)->code;
        (void)queue_remove(&p->posted, r);
        p->into = r;
        return 0;
    }
    e = f->length < SIZE_MAX / 2 ? malloc(sizeof(*e) + f->length) : NULL;
    if (!e)
        return failure_keep(failure_of(m), -ENOMEM, "no memory for %llu bytes that rank %d sent early",
                            (unsigned long long)f->length, p->rank);
    *e = (struct message_early){.head = *f};
    *p->early_last = e;
    p->early_last = &e->next;
    p->into_early = e;
    return 0;
}

/* A later frame of a message: frame_check() held it against its own length only, the place has that of the first. */
static int arrive_more(const struct messages *m, const struct message_peer *p, const struct frame *f)
{
    const struct frame *head = p->into ? &p->into->head : &p->into_early->head;
    size_t length = p->into ? p->into->bytes : p->into_early->head.length;

    if (f->offset != p->into_got)
        return failure_keep(failure_of(m), -EPROTO, "rank %d sends byte %llu of a message after byte %llu", p->rank,
                            (unsigned long long)f->offset, (unsigned long long)p->into_got);
    if (f->length != length || !matches(head, f))
        return failure_keep(failure_of(m), -EPROTO,
                            "rank %d goes on with another message before the end of the one it began", p->rank);
    return 0;
}

static int arrive_data(struct messages *m, struct message_peer *p, const struct frame *f, const void *payload)
{
    uint64_t cost = f->part + MESSAGE_FRAME_COST;
    char *to;

    if ((p->into || p->into_early ? arrive_more(m, p, f) : arrive_begin(m, p, f)) < 0)
        return failure_of(m)->code;
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

static int arrive(void *self, int rank, const struct frame *f, const void *payload)
{
    struct messages *m = self;
    struct message_peer *p = &m->peer[rank];

    if (failure_of(m)->code)
        return failure_of(m)->code;
    if (f->number != p->frames_in)
        return failure_keep(failure_of(m), -EPROTO, "frame %llu of rank %d arrived where %llu was due",
                            (unsigned long long)f->number, p->rank, (unsigned long long)p->frames_in);
    p->frames_in++;
    switch (f->kind) {
    case FRAME_CREDIT:
        if (f->length < p->freed || f->length > p->spent)
            return failure_keep(failure_of(m), -EPROTO, "rank %d says it took %llu bytes, of %llu sent", p->rank,
                                (unsigned long long)f->length, (unsigned long long)p->spent);
        p->freed = f->length;
        return 0;
    case FRAME_BYE:
        m->wait->peer[rank].left = true;
        return 0;
    case FRAME_WRONG:
        return m->above->check(m->above_self, f);
    default:
        return arrive_data(m, p, f, payload);
    }
}

void message_detach(struct comm_request *r)
{
    if (r->done)
        message_free(r);
    else
        r->detached = true;
}

void message_drop(struct comm_request *r)
{
    struct messages *m = r->channel->messages;
    struct message_peer *p = r->peer;

    if (!queue_remove(&p->sending, r))
        (void)queue_remove(&p->posted, r);
    if (p->into == r)
        p->into = NULL;
    if (r->in_flight) {
        r->next = m->grave;
        m->grave = r;
    } else {
        message_free(r);
    }
}

int message_check_early(struct messages *m, int rank, uint64_t id, uint64_t seq)
{
    for (struct message_early *e = m->peer[rank].early; e; e = e->next) {
        if (e->head.kind == FRAME_CALL && e->head.group == id && e->head.seq <= seq)
            TRY(m->above->check(m->above_self, &e->head));
    }
    return 0;
}

/* --- all of a world's ------------------------------------------------------------------------ */

static bool messages_progress(void *self)
{
    struct messages *m = self;
    bool moved = false;

    for (struct message_peer *p = m->peer, *end = p + m->peers; p < end; p++) {
        if (p->sending.first || credit_due(p))
            moved |= pump(m, p);
    }
    return moved;
}

static const struct wait_source source = {.progress = messages_progress};

int messages_init(struct messages *m, struct wait *wait, uint64_t generation, const struct message_above *above,
                  void *above_self, struct merr *err)
{
    *m = (struct messages){.wait = wait, .generation = generation, .above = above, .above_self = above_self};
    m->peer = calloc((size_t)wait->size, sizeof(*m->peer));
    m->peers = wait->size;
    if (!m->peer)
        return merr_set(err, -ENOMEM, "no memory for messages among %d ranks", wait->size);
    for (int i = 0; i < wait->size; i++)
        peer_init(&m->peer[i], i);
    return 0;
}

static void damaged(void *self, const struct frame *f)
{
    const struct messages *m = self;

    m->above->damaged(m->above_self, f);
}

void messages_host(struct messages *m, struct transport_host *ret)
{
    ret->above = m;
    ret->arrive = arrive;
    ret->damaged = damaged;
    ret->sent = sent;
}

void messages_start(struct messages *m, const struct transports *ways)
{
    for (int i = 0; i < m->wait->size; i++)
        m->peer[i].via = ways->via[i];
    wait_add(m->wait, &source, m);
}

void messages_clear(struct messages *m)
{
    if (!m->peer)
        return;
    for (int i = 0; i < m->wait->size; i++)
        peer_clear(&m->peer[i]);
    while (m->grave) {
        struct comm_request *r = m->grave;

        m->grave = r->next;
        message_free(r);
    }
    wait_remove(m->wait, m);
    free(m->peer);
    m->peer = NULL;
}

bool messages_left(struct messages *m, bool *told)
{
    bool all = true;

    for (int i = 0; i < m->wait->size; i++) {
        struct message_peer *p = &m->peer[i];
        const struct wait_peer *is = &m->wait->peer[i];
        bool farewell = p->via && p->via->ops->farewell;

        if (!p->via || is->lost || (!farewell && is->left))
            continue;
        if (farewell && !told[i] && !p->sending.first)
            told[i] = send_word(m, p, FRAME_BYE, 0);
        if (p->sending.first || (farewell && (!told[i] || !is->left)))
            all = false;
    }
    return all;
}
