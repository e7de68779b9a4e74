/* Messages between pairs: any order of tags, early ones, large ones, both ways at once. */
#include "tests/unit/test.h"

#include <fcntl.h>

#include "tests/unit/worker/test_comm_team.inc"

#include "base/philox.h"
#include "worker/engine/comm/frame.h"
#include "worker/engine/comm/group.h"

static uint32_t chance(uint64_t seed, uint32_t i, uint32_t of)
{
    const uint32_t ctr[4] = {i, (uint32_t)seed, 0, 0}, key[2] = {17, 4711};
    uint32_t out[4];

    philox4x32(ctr, key, out);
    return out[0] % of;
}

struct letter {
    int from, to;
    uint32_t tag;
    size_t bytes;
};

/* The same letters on all ranks, from the seed. */
static void write_letters(uint64_t seed, int n, struct letter *l, int count)
{
    static const size_t size[] = {0, 1, 300, 352, 353, 5000, 262144, 262145, 1500000};

    for (int i = 0; i < count; i++) {
        l[i].from = (int)chance(seed, 4 * (uint32_t)i, (uint32_t)n);
        l[i].to = (l[i].from + 1 + (int)chance(seed, 4 * (uint32_t)i + 1, (uint32_t)n - 1)) % n;
        l[i].tag = chance(seed, 4 * (uint32_t)i + 2, 3);
        l[i].bytes = size[chance(seed, 4 * (uint32_t)i + 3, COUNT(size))];
    }
}

static void paint(unsigned char *p, size_t bytes, int letter)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(i * 7 + i / 251 + (size_t)letter * 31);
}

#define LETTERS 60

/* Post all receives and sends in an order of the rank's own (receives of one tag and sender stay in order), wait in
 * another. */
static int storm(struct team *t, struct comm_world *w)
{
    uint64_t seed = *(const uint64_t *)t->arg;
    struct comm_group *g = team_all(w, "pp");
    struct letter l[LETTERS];
    struct comm_request *req[LETTERS] = {NULL};
    unsigned char *buf[LETTERS] = {NULL}, *want = malloc(1500000);
    int me = comm_rank(w), late = (int)chance(seed, 9000 + (uint32_t)me, 2);

    write_letters(seed, t->n, l, LETTERS);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < LETTERS; i++) {
            bool sends = l[i].from == me, gets = l[i].to == me;

            if ((!sends && !gets) || gets != (pass == late))
                continue;
            buf[i] = malloc(l[i].bytes + 1);
            if (sends) {
                paint(buf[i], l[i].bytes, i);
                GOOD(comm_isend(g, l[i].to, l[i].tag, buf[i], l[i].bytes, &req[i], &err));
            } else {
                GOOD(comm_irecv(g, l[i].from, l[i].tag, buf[i], l[i].bytes, &req[i], &err));
            }
        }
    }
    for (uint32_t k = 0, i = chance(seed, 8000 + (uint32_t)me, LETTERS); k < LETTERS; k++, i = (i + 7) % LETTERS) {
        if (!req[i])
            continue;
        GOOD(comm_wait(req[i], &err));
        if (l[i].to == me) {
            paint(want, l[i].bytes, (int)i);
            NEED(memcmp(want, buf[i], l[i].bytes) == 0);
        }
        free(buf[i]);
    }
    GOOD(comm_barrier(g, &err));
    free(want);
    return 0;
}

static void letters_in_any_order_arrive_where_they_belong(void **state)
{
    uint64_t first = (uint64_t)clock_wall_us() % 100000;

    (void)state;
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)first);
    for (uint64_t seed = first; seed < first + 4; seed++) {
        team_run(2, TEAM_SHM, 0, storm, &seed);
        team_run(5, TEAM_SHM, 0, storm, &seed);
        team_run(3, TEAM_UCX, 0, storm, &seed);
        team_run(4, TEAM_MIXED, 0, storm, &seed);
    }
}

/* A sender goes on with two large messages before its receiver has come. arg: a pipe, by which it says so. */
static int eager(struct team *t, struct comm_world *w)
{
    const int *gone_on = t->arg;
    struct comm_group *g = team_all(w, "pp");
    size_t bytes = 6 << 20;
    unsigned char *a = malloc(bytes), *b = malloc(bytes);
    struct comm_request *req[2];

    paint(a, bytes, 1);
    if (comm_rank(w) == 0) {
        GOOD(comm_isend(g, 1, 1, a, bytes, &req[0], &err));
        GOOD(comm_isend(g, 1, 2, a, bytes, &req[1], &err));
        GOOD(comm_wait(req[0], &err));
        memset(a, 0, bytes / 2); /* ours again */
        GOOD(comm_wait(req[1], &err));
        NEED(write(gone_on[1], "", 1) == 1);
    } else {
        NEED(poll(&(struct pollfd){.fd = gone_on[0], .events = POLLIN}, 1, 10000) == 1);
        for (uint32_t tag = 2; tag >= 1; tag--) {
            GOOD(comm_irecv(g, 0, tag, b, bytes, &req[0], &err));
            GOOD(comm_wait(req[0], &err));
            NEED(tag == 2 || memcmp(a, b, bytes) == 0);
        }
    }
    GOOD(comm_barrier(g, &err));
    free(a);
    free(b);
    return 0;
}

static void a_sender_does_not_wait_for_its_receiver(void **state)
{
    (void)state;
    for (int way = TEAM_SHM; way <= TEAM_UCX; way++) {
        int gone_on[2];

        assert_int_equal(pipe2(gone_on, O_CLOEXEC), 0);
        team_run(2, (enum team_way)way, 0, eager, gone_on);
        close(gone_on[0]);
        close(gone_on[1]);
    }
}

/* Both send far more than any buffer holds before they receive. */
static int flood(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    size_t bytes = 5 << 20;
    int n = 30, other = 1 - comm_rank(w);
    unsigned char *a = malloc(bytes), *b = malloc(bytes), *want = malloc(bytes);
    struct comm_request *send[30], *get;

    (void)t;
    paint(a, bytes, comm_rank(w));
    paint(want, bytes, other);
    for (int i = 0; i < n; i++)
        GOOD(comm_isend(g, other, 0, a, bytes, &send[i], &err));
    for (int i = 0; i < n; i++) {
        GOOD(comm_irecv(g, other, 0, b, bytes, &get, &err));
        GOOD(comm_wait(get, &err));
        NEED(memcmp(b, want, bytes) == 0);
    }
    for (int i = 0; i < n; i++)
        GOOD(comm_wait(send[i], &err));
    GOOD(comm_wait(NULL, &err));
    NEED(comm_bytes_sent(g) == (uint64_t)n * bytes);
    free(a);
    free(b);
    free(want);
    return 0;
}

static void a_flood_both_ways_neither_deadlocks_nor_grows(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, flood, NULL);
    team_run(2, TEAM_UCX, 0, flood, NULL);
}

/* The last thing a rank does is to send; it may be gone when the message is read. */
static int last_words(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    size_t bytes = 3 << 20;
    unsigned char *a = malloc(bytes), *b = malloc(bytes);
    struct comm_request *req;

    (void)t;
    paint(a, bytes, 5);
    if (comm_rank(w) == 0) {
        GOOD(comm_isend(g, 1, 1, a, bytes, &req, &err));
        GOOD(comm_wait(req, &err));
    } else {
        (void)poll(NULL, 0, 200);
        GOOD(comm_irecv(g, 0, 1, b, bytes, &req, &err));
        GOOD(comm_wait(req, &err));
        NEED(memcmp(a, b, bytes) == 0);
    }
    free(a);
    free(b);
    return 0;
}

static void a_message_outlives_its_sender(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, last_words, NULL);
    team_run(2, TEAM_UCX, 0, last_words, NULL);
}

static int wrong_size(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    char c[8] = {0};
    struct comm_request *req;
    struct merr why = {""};
    int r;

    (void)t;
    if (comm_rank(w) == 0) {
        GOOD(comm_isend(g, 1, 1, c, 8, &req, &err));
        GOOD(comm_wait(req, &err));
        return 0;
    }
    r = comm_irecv(g, 0, 1, c, 4, &req, &why);
    if (r == 0)
        r = comm_wait(req, &why);
    NEED(r == -EPROTO && strstr(why.text, "8 bytes"));
    return 0;
}

static void a_message_of_another_size_is_refused(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, wrong_size, NULL);
}

/* A frame as no honest rank sends it: each is sound by itself. */
static bool forge(struct comm_group *g, uint64_t length, uint64_t offset, uint32_t part)
{
    static const char payload[4096];
    struct message_peer *p = &g->set->messages->peer[1];
    struct frame f = {.generation = g->set->messages->generation,
                      .group = g->channel.id,
                      .step = 1,
                      .length = length,
                      .offset = offset,
                      .part = part,
                      .number = p->frames_out++,
                      .kind = FRAME_MESSAGE};

    frame_seal(&f, NULL);
    return p->via->ops->send(p->via, 1, &f, payload, NULL) != TRANSPORT_NOT_NOW;
}

/* A message of 8 bytes begins, and goes on as one of 4096. arg: whether nobody has asked for it yet. */
static int longer(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    bool early = *(const bool *)t->arg;
    struct comm_request *req, *word;
    struct merr why = {""};
    char *c, mark = 0;

    if (comm_rank(w) == 0) {
        GOOD(comm_irecv(g, 1, 3, &mark, 1, &word, &err));
        GOOD(comm_wait(word, &err));
        NEED(forge(g, 8, 0, 4) && forge(g, 4096, 4, 4092));
        return 0;
    }
    c = malloc(8);
    GOOD(comm_irecv(g, 0, early ? 2 : 1, c, 8, &req, &err));
    GOOD(comm_isend(g, 0, 3, &mark, 1, &word, &err));
    (void)comm_wait(word, &why); /* the answer may be there already */
    NEED(comm_wait(req, &why) == -EPROTO && strstr(why.text, "another message"));
    free(c);
    return 0;
}

static void a_message_that_grows_on_its_way_is_refused(void **state)
{
    static const bool early[] = {false, true};

    (void)state;
    team_run(2, TEAM_SHM, 0, longer, &early[0]);
    team_run(2, TEAM_SHM, 0, longer, &early[1]);
}

static void a_damaged_frame_is_refused(void **state)
{
    struct frame f = {.generation = 3, .length = 100, .offset = 40, .part = 60, .kind = FRAME_MESSAGE};
    struct frame bad;

    (void)state;
    frame_seal(&f, NULL);
    assert_int_equal(frame_check(&f, 60, NULL), 0);
    assert_int_equal(frame_check(&f, 59, NULL), -EPROTO);
    for (size_t bit = 0; bit < 8 * sizeof(f); bit++) {
        bad = f;
        ((unsigned char *)&bad)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(frame_check(&bad, 60, NULL), -EPROTO);
    }
    f.offset = 41; /* sealed, but past its message's end */
    frame_seal(&f, NULL);
    assert_int_equal(frame_check(&f, 60, NULL), -EPROTO);
    f.offset = UINT64_MAX;
    frame_seal(&f, NULL);
    assert_int_equal(frame_check(&f, 60, NULL), -EPROTO);
}

static void a_payload_with_any_bit_flipped_is_noticed(void **state)
{
    unsigned char data[300];
    struct frame f = {.generation = 3, .length = sizeof(data), .part = sizeof(data), .kind = FRAME_MESSAGE};

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i);
    frame_seal(&f, data);
    assert_int_equal(frame_check(&f, sizeof(data), NULL), 0);
    assert_true(frame_holds(&f, data));
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(frame_holds(&f, data));
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    f.part = 0; /* nothing can break on its way that is not there */
    frame_seal(&f, NULL);
    assert_true(frame_holds(&f, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_in_any_order_arrive_where_they_belong),
        cmocka_unit_test(a_sender_does_not_wait_for_its_receiver),
        cmocka_unit_test(a_flood_both_ways_neither_deadlocks_nor_grows),
        cmocka_unit_test(a_message_outlives_its_sender),
        cmocka_unit_test(a_message_of_another_size_is_refused),
        cmocka_unit_test(a_message_that_grows_on_its_way_is_refused),
        cmocka_unit_test(a_damaged_frame_is_refused),
        cmocka_unit_test(a_payload_with_any_bit_flipped_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
