/* Messages between two ends in one process, over a transport that does as the tests say. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/comm/message.h"

#define SENT_MAX 256

struct sent { /* a frame on its way */
    struct frame frame;
    char *payload;
};

struct fake { /* what end has sent, until the other takes it */
    struct transport base;
    int refuse; /* so many sends */
    bool holds;
    void *held[SENT_MAX];
    int held_n, n;
    struct sent sent[SENT_MAX];
};

struct end {
    struct flight *flight;
    struct wait wait;
    struct messages m;
    struct transport_host host;
    struct transports ways;
    struct transport *via[2];
    struct fake out;
    struct message_channel channel;
    int checks, wrong; /* calls looked at; wrong: so many of them fail */
};

static enum transport_took fake_send(struct transport *t, int rank, const struct frame *f, const void *payload,
                                     void *token)
{
    struct fake *o = (struct fake *)t;
    struct sent *s = &o->sent[o->n];

    assert_int_equal(rank, 1 - t->host->meet.rank);
    if (o->refuse > 0) {
        o->refuse--;
        return TRANSPORT_NOT_NOW;
    }
    assert_true(o->n < SENT_MAX);
    *s = (struct sent){.frame = *f, .payload = malloc(f->part + 1)};
    if (f->part)
        memcpy(s->payload, payload, f->part);
    o->n++;
    if (o->holds && token)
        o->held[o->held_n++] = token;
    return o->holds && token ? TRANSPORT_HOLDS : TRANSPORT_TOOK;
}

static const struct transport_ops holding = {.name = "fake", .send = fake_send};
static const struct transport_ops copying = {.name = "fake", .copies = true, .send = fake_send};

static int check(void *self, const struct frame *f)
{
    struct end *e = self;

    assert_true(f->kind == FRAME_CALL || f->kind == FRAME_WRONG);
    e->checks++;
    return e->wrong > 0 ? e->wrong--, failure_keep(&e->wait.failure, -EPROTO, "another call") : 0;
}

static const struct message_above above = {.check = check};

static void begin(struct end e[2], size_t part_bytes, const struct transport_ops *ops)
{
    for (int i = 0; i < 2; i++) {
        memset(&e[i], 0, sizeof(e[i]));
        assert_int_equal(flight_private(&e[i].flight, NULL), 0);
        assert_int_equal(wait_init(&e[i].wait, i, 2, e[i].flight, 1000000, NULL), 0);
        assert_int_equal(messages_init(&e[i].m, &e[i].wait, 1, &above, &e[i], NULL), 0);
        e[i].host = (struct transport_host){.wait = &e[i].wait, .meet = {.rank = i, .size = 2, .generation = 1}};
        messages_host(&e[i].m, &e[i].host);
        e[i].out.base = (struct transport){.ops = ops, .host = &e[i].host, .part_bytes = part_bytes};
        e[i].via[1 - i] = &e[i].out.base;
        e[i].ways.via = e[i].via;
        messages_start(&e[i].m, &e[i].ways);
        e[i].channel = (struct message_channel){.messages = &e[i].m, .name = "pp", .id = 5};
    }
}

static void end(struct end e[2])
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < e[i].out.n; k++)
            free(e[i].out.sent[k].payload);
        messages_clear(&e[i].m);
        wait_clear(&e[i].wait);
        flight_close(e[i].flight);
    }
}

/* Give e what the other has sent but for the frame numbered skip (-1: none), and let both go on. */
static void deliver(struct end e[2], int to, int skip)
{
    struct fake *o = &e[1 - to].out;

    for (int i = 0; i < o->n; i++) {
        if (i != skip)
            (void)e[to].host.arrive(e[to].host.above, 1 - to, &o->sent[i].frame, o->sent[i].payload);
        free(o->sent[i].payload);
    }
    o->n = 0;
    (void)wait_progress(&e[to].wait);
    (void)wait_progress(&e[1 - to].wait);
}

static struct frame head_of(enum frame_kind kind, uint32_t tag, size_t bytes)
{
    return (struct frame){.generation = 1, .group = 5, .step = tag, .length = bytes, .kind = (uint8_t)kind};
}

static struct comm_request *send_tagged(struct end *e, uint32_t tag, const void *buf, size_t bytes)
{
    struct frame head = head_of(FRAME_MESSAGE, tag, bytes);

    return message_send(&e->channel, 1 - e->wait.rank, &head, buf);
}

static struct comm_request *recv_tagged(struct end *e, uint32_t tag, void *buf, size_t bytes)
{
    struct frame head = head_of(FRAME_MESSAGE, tag, bytes);

    return message_recv(&e->channel, 1 - e->wait.rank, &head, buf);
}

static void paint(char *p, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)(i * 31 + (size_t)seed);
}

static void a_message_goes_in_parts_to_who_asked_before_or_asks_after(void **state)
{
    static const struct {
        size_t bytes;
        size_t frames;
    } cases[] = {{0, 1}, {1, 1}, {100, 1}, {101, 2}, {1000, 10}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (int early = 0; early < 3; early++) { /* asked for before, in the midst of it, after */
            struct end e[2];
            char out[1000], in[1000] = {0};
            struct comm_request *s, *r = NULL;

            begin(e, 100, &copying);
            paint(out, sizeof(out), (int)i);
            if (early == 0)
                r = recv_tagged(&e[1], 7, in, cases[i].bytes);
            s = send_tagged(&e[0], 7, out, cases[i].bytes);
            assert_true(s->done);
            assert_int_equal(e[0].out.n, cases[i].frames);
            if (early == 1) {
                struct sent *first = &e[0].out.sent[0];

                (void)e[1].host.arrive(e[1].host.above, 0, &first->frame, first->payload);
                r = recv_tagged(&e[1], 7, in, cases[i].bytes);
                assert_int_equal(r->done, cases[i].frames == 1);
                deliver(e, 1, 0);
            } else {
                deliver(e, 1, -1);
            }
            if (early == 2)
                r = recv_tagged(&e[1], 7, in, cases[i].bytes);
            assert_true(r->done && memcmp(in, out, cases[i].bytes) == 0);
            assert_int_equal(e[0].channel.bytes_sent, cases[i].bytes);
            message_detach(r);
            message_detach(s);
            end(e);
        }
    }
}

static void what_a_transport_refuses_goes_out_later_and_in_order(void **state)
{
    struct end e[2];
    char a[300], b[300], in[300];
    struct comm_request *s[2], *r;

    (void)state;
    begin(e, 100, &copying);
    paint(a, sizeof(a), 1);
    paint(b, sizeof(b), 2);
    e[0].out.refuse = 4;
    s[0] = send_tagged(&e[0], 1, a, sizeof(a));
    s[1] = send_tagged(&e[0], 1, b, sizeof(b));
    assert_true(e[0].out.n == 0 && !s[0]->done);
    while (e[0].out.n < 6)
        (void)wait_progress(&e[0].wait);
    deliver(e, 1, -1);
    for (int i = 0; i < 2; i++) {
        r = recv_tagged(&e[1], 1, in, sizeof(in));
        assert_true(r->done && memcmp(in, i ? b : a, sizeof(in)) == 0 && s[i]->done);
        message_detach(r);
        message_detach(s[i]);
    }
    end(e);
}

static void a_send_is_done_when_the_transport_holds_nothing_of_it(void **state)
{
    struct end e[2];
    struct frame head = head_of(FRAME_CALL, 1, 250);
    char out[250] = {0};
    struct comm_request *s;

    (void)state;
    begin(e, 100, &holding);
    e[0].out.holds = true;
    s = message_send(&e[0].channel, 1, &head, out);
    assert_int_equal(e[0].out.held_n, 3);
    for (int i = 0; i < 3; i++) {
        assert_false(s->done);
        e[0].host.sent(e[0].host.above, e[0].out.held[i]);
    }
    assert_true(s->done);
    message_detach(s);
    end(e);
}

/* The caller's buffer is free at once where the bytes lie here: they are a copy. */
static void a_message_that_is_held_is_staged(void **state)
{
    struct end e[2];
    char out[100] = "words", in[100] = {0};
    struct comm_request *s, *r;

    (void)state;
    begin(e, 100, &holding);
    e[0].out.refuse = 1;
    s = send_tagged(&e[0], 1, out, sizeof(out));
    assert_true(s->staged && !s->done);
    message_detach(s);
    memset(out, 0, sizeof(out));
    (void)wait_progress(&e[0].wait);
    deliver(e, 1, -1);
    r = recv_tagged(&e[1], 1, in, sizeof(in));
    assert_true(r->done);
    assert_string_equal(in, "words");
    message_detach(r);
    end(e);
}

static void a_lost_frame_fails_the_world(void **state)
{
    struct end e[2];
    char out[300] = {0}, in[300];
    struct comm_request *s, *r;

    (void)state;
    begin(e, 100, &copying);
    r = recv_tagged(&e[1], 1, in, sizeof(in));
    s = send_tagged(&e[0], 1, out, sizeof(out));
    deliver(e, 1, 1);
    assert_true(e[1].wait.failure.code == -EPROTO && !r->done);
    assert_string_equal(e[1].wait.failure.why.text, "frame 2 of rank 0 arrived where 1 was due");
    message_drop(r);
    message_detach(s);
    end(e);
}

static void nobody_sends_more_than_the_window_before_it_is_taken(void **state)
{
    size_t part = 1 << 20, bytes = 80 * part;
    char *out = malloc(bytes), *in = malloc(bytes);
    struct comm_request *s, *r;
    struct end e[2];
    size_t frames;

    (void)state;
    begin(e, part, &copying);
    paint(out, bytes, 9);
    s = send_tagged(&e[0], 1, out, bytes);
    frames = (size_t)e[0].out.n;
    assert_true(frames == MESSAGE_WINDOW_BYTES / part - 1 && !s->done); /* each costs a little more than its bytes */
    deliver(e, 1, -1);
    deliver(e, 0, -1);
    assert_int_equal(e[0].out.n, 0); /* nobody asked for it yet */
    r = recv_tagged(&e[1], 1, in, bytes);
    (void)wait_progress(&e[1].wait);
    assert_int_equal(e[1].out.n, 1); /* so much is free again */
    deliver(e, 0, -1);
    assert_int_equal((size_t)e[0].out.n, 80 - frames);
    deliver(e, 1, -1);
    assert_true(s->done && r->done && memcmp(in, out, bytes) == 0);
    message_detach(s);
    message_detach(r);
    end(e);
    free(out);
    free(in);
}

static void those_above_are_asked_once_about_each_call_that_comes(void **state)
{
    struct frame head = head_of(FRAME_CALL, 1, 250);
    char out[250] = {0}, in[250];
    struct comm_request *s[2], *r;
    struct end e[2];

    (void)state;
    begin(e, 100, &copying);
    head.seq = 4;
    s[0] = message_send(&e[0].channel, 1, &head, out);
    deliver(e, 1, -1);
    assert_int_equal(e[1].checks, 1);
    assert_int_equal(message_check_early(&e[1].m, 0, 5, 3), 0); /* not come to that call yet */
    assert_int_equal(e[1].checks, 1);
    assert_int_equal(message_check_early(&e[1].m, 0, 5, 4), 0);
    assert_int_equal(e[1].checks, 2);
    r = message_recv(&e[1].channel, 0, &head, in);
    assert_true(r->done);
    message_detach(r);
    e[1].wrong = 1;
    head.seq = 5;
    s[1] = message_send(&e[0].channel, 1, &head, out);
    deliver(e, 1, -1);
    assert_true(e[1].checks == 3 && e[1].wait.failure.code == -EPROTO);
    message_detach(s[0]);
    message_detach(s[1]);
    end(e);
}

static char lands[8]; /* what the hooks did */

static void note(char c)
{
    size_t n = strlen(lands);

    assert_true(n + 1 < sizeof(lands));
    lands[n] = c;
    lands[n + 1] = 0;
}

struct hook {
    struct message_hook base;
    char name;
    int result;
};

static int land(struct comm_request *req, struct message_hook *h)
{
    const struct hook *x = (const struct hook *)h;

    (void)req;
    note(x->name);
    return x->result;
}

static void unhook(struct comm_request *req, struct message_hook *h)
{
    (void)req;
    note(((const struct hook *)h)->name == 'a' ? 'A' : 'B');
}

static void hooks_land_in_order_until_one_fails_and_all_are_freed(void **state)
{
    struct hook a = {.base = {.land = land, .free = unhook}, .name = 'a'};
    struct hook b = {.base = {.land = land, .free = unhook}, .name = 'b', .result = -EIO};
    struct hook none = {.base = {.free = unhook}, .name = 'b'};
    struct comm_request *s;
    struct end e[2];

    (void)state;
    lands[0] = 0;
    begin(e, 100, &copying);
    s = send_tagged(&e[0], 1, "", 0);
    message_hang(s, &none.base);
    message_hang(s, &a.base);
    message_hang(s, &b.base);
    assert_int_equal(message_land(s), -EIO);
    message_detach(s);
    assert_string_equal(lands, "abBAB");
    end(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_goes_in_parts_to_who_asked_before_or_asks_after),
        cmocka_unit_test(what_a_transport_refuses_goes_out_later_and_in_order),
        cmocka_unit_test(a_send_is_done_when_the_transport_holds_nothing_of_it),
        cmocka_unit_test(a_message_that_is_held_is_staged),
        cmocka_unit_test(a_lost_frame_fails_the_world),
        cmocka_unit_test(nobody_sends_more_than_the_window_before_it_is_taken),
        cmocka_unit_test(those_above_are_asked_once_about_each_call_that_comes),
        cmocka_unit_test(hooks_land_in_order_until_one_fails_and_all_are_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
