#include "tests/unit/server/store/homes.h"

#include <errno.h>
#include <signal.h>

#define KEYS 5

static int countdown; /* to the command that cannot be queued; 0: all can */

int __real_redisAppendFormattedCommand(redisContext *c, const char *command, size_t len);
int __wrap_redisAppendFormattedCommand(redisContext *c, const char *command, size_t len);

int __wrap_redisAppendFormattedCommand(redisContext *c, const char *command, size_t len)
{
    if (countdown > 0 && --countdown == 0)
        return REDIS_ERR;
    return __real_redisAppendFormattedCommand(c, command, len);
}

/* A store with "job:1" to "job:5", each of its own number. */
static int fill(void **state)
{
    struct home *h;

    if (home_in_redis(state) < 0)
        return -1;
    h = *state;
    for (int i = 1; i <= KEYS; i++) {
        char key[16], value[16];

        (void)snprintf(key, sizeof(key), "job:%d", i);
        (void)snprintf(value, sizeof(value), "%d", i);
        store_add(h->store[0], "SET", key, value, NULL);
    }
    return home_commit(h->store[0]);
}

struct taking {
    size_t n, fails_at;
};

static int take(void *arg, size_t i, const redisReply *reply, struct merr *err)
{
    struct taking *t = arg;
    char want[16];

    (void)snprintf(want, sizeof(want), "%zu", KEYS - i);
    assert_int_equal(i, t->n++);
    assert_string_equal(reply->str, want);
    return i == t->fails_at ? merr_set(err, -EINVAL, "no more") : 0;
}

static int read_each(struct home *h, size_t fails_at, size_t *ret_n)
{
    static const uint64_t numbers[KEYS] = {5, 4, 3, 2, 1};
    struct taking t = {.fails_at = fails_at};
    int r = store_read_each(h->store[0], "GET job:%llu", numbers, KEYS, take, &t, NULL);

    *ret_n = t.n;
    return r;
}

static void assert_next_read_is_right(struct home *h)
{
    redisReply *reply = store_read(h->store[0], NULL, "GET job:%d", 3);

    assert_non_null(reply);
    assert_string_equal(reply->str, "3");
    freeReplyObject(reply);
}

static void replies_come_in_order_up_to_the_first_that_is_refused(void **state)
{
    struct home *h = *state;
    size_t n;

    assert_int_equal(read_each(h, KEYS, &n), 0);
    assert_int_equal(n, KEYS);
    assert_int_equal(read_each(h, 1, &n), -EINVAL);
    assert_int_equal(n, 2);
    assert_next_read_is_right(h);
    assert_int_equal(store_read_each(h->store[0], "GET job:%llu", NULL, 0, take, NULL, NULL), 0);
}

static void without_memory_for_a_command_no_reply_is_left_to_be_mistaken(void **state)
{
    struct home *h = *state;

    for (int k = 1; k <= KEYS; k++) {
        size_t n;

        countdown = k;
        assert_int_equal(read_each(h, KEYS, &n), -ENOMEM);
        assert_int_equal(n, 0);
        assert_next_read_is_right(h);
    }
    countdown = 0;
}

/* The server closes all connections that the store has. */
static void cut(void)
{
    freeReplyObject(redisCommand(homes.direct, "CLIENT KILL TYPE normal SKIPME yes"));
}

static void a_lost_connection_costs_no_read_and_no_write(void **state)
{
    struct home *h = *state;
    struct store *s = h->store[0];

    cut();
    assert_next_read_is_right(h);
    cut();
    store_add_device_us(s, "p", 1);
    assert_int_equal(home_commit(s), 0);
    cut();
    assert_int_equal(store_read_device_us(s, "p"), 1);
}

static void a_batch_without_memory_for_a_part_of_it_is_sent_again_whole(void **state)
{
    struct store *s = ((struct home *)*state)->store[0];

    for (int k = 1; k <= 2; k++) { /* a batch goes to hiredis in two parts */
        store_add_device_us(s, "p", 1);
        countdown = k;
        assert_int_equal(home_commit(s), 0);
        assert_int_equal(countdown, 0);
        assert_int_equal(store_read_device_us(s, "p"), k);
    }
}

static void a_write_that_is_refused_waits_until_the_server_stops(void **state)
{
    struct store *s = ((struct home *)*state)->store[0];
    _Atomic int stop = 1;

    freeReplyObject(redisCommand(homes.direct, "CONFIG SET maxmemory 1"));
    store_add(s, "HSET", "other", "a", "b", NULL);
    assert_int_equal(store_commit(s, &stop, NULL), -ECANCELED);
    assert_false(store_up(s));
    freeReplyObject(redisCommand(homes.direct, "CONFIG SET maxmemory 0"));
}

static void addresses_are_sockets_or_hosts(void **state)
{
    static const struct {
        const char *url, *where;
        int port; /* -1: refused */
    } edge[] = {
        {"unix:///run/redis.sock", "/run/redis.sock", 0},
        {"unix://run/redis.sock", "", -1},
        {"redis://h", "h", 6379},
        {"redis://h:1", "h", 1},
        {"redis://h:65535/", "h", 65535},
        {"redis://h:65536", "", -1},
        {"redis://h:", "", -1},
        {"redis://:1", "", -1},
        {"http://h", "", -1},
        {"redis://h:1x", "", -1},
        {"", "", -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(edge); i++) {
        char where[32] = "";
        int port = -1, r = redis_url_parse(edge[i].url, where, sizeof(where), &port, NULL);

        assert_int_equal(r, edge[i].port < 0 ? -EINVAL : 0);
        assert_string_equal(where, edge[i].where);
        assert_int_equal(port, edge[i].port);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replies_come_in_order_up_to_the_first_that_is_refused, fill, home_leave),
        cmocka_unit_test_setup_teardown(without_memory_for_a_command_no_reply_is_left_to_be_mistaken, fill, home_leave),
        cmocka_unit_test_setup_teardown(a_lost_connection_costs_no_read_and_no_write, fill, home_leave),
        cmocka_unit_test_setup_teardown(a_batch_without_memory_for_a_part_of_it_is_sent_again_whole, fill, home_leave),
        cmocka_unit_test_setup_teardown(a_write_that_is_refused_waits_until_the_server_stops, fill, home_leave),
        cmocka_unit_test(addresses_are_sockets_or_hosts),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as musterd does */
    return cmocka_run_group_tests(tests, homes_start, homes_stop);
}
