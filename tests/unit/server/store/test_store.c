#include "server/store/store_impl.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

#define JOBS 5

struct scene {
    char folder[32];
    struct redis *redis;
    struct store *store;
};

static int countdown; /* to the command that cannot be queued; 0: all can */

int __wrap_redisAppendCommand(redisContext *c, const char *fmt, ...);

int __wrap_redisAppendCommand(redisContext *c, const char *fmt, ...)
{
    va_list ap;
    int r;

    if (countdown > 0 && --countdown == 0)
        return REDIS_ERR;
    va_start(ap, fmt);
    r = redisvAppendCommand(c, fmt, ap);
    va_end(ap);
    return r;
}

/* A store with "job:1" to "job:5", each of its own number. */
static int open_store(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    _Atomic int stop = 0;
    struct merr err = {""};

    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/muster-store-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    *state = s;
    if (redis_start(s->folder, NULL, &s->redis, &err) < 0 ||
        store_open(s->redis, true, STORE_LEASE_S, &s->store, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    for (int i = 1; i <= JOBS; i++) {
        char key[16], value[16];

        (void)snprintf(key, sizeof(key), "job:%d", i);
        (void)snprintf(value, sizeof(value), "%d", i);
        store_add(s->store, "SET", key, value, NULL);
    }
    return store_commit(s->store, &stop, &err);
}

static int close_store(void **state)
{
    struct scene *s = *state;

    countdown = 0;
    store_close(s->store);
    redis_stop(s->redis);
    (void)io_remove_tree(s->folder, NULL);
    free(s);
    return 0;
}

struct taking {
    size_t n, fails_at;
};

static int take(void *arg, size_t i, const redisReply *reply, struct merr *err)
{
    struct taking *t = arg;
    char want[16];

    (void)snprintf(want, sizeof(want), "%zu", JOBS - i);
    assert_int_equal(i, t->n++);
    assert_string_equal(reply->str, want);
    return i == t->fails_at ? merr_set(err, -EINVAL, "no more") : 0;
}

static int read_each(struct scene *s, size_t fails_at, size_t *ret_n)
{
    static const uint64_t numbers[JOBS] = {5, 4, 3, 2, 1};
    struct taking t = {.fails_at = fails_at};
    int r = store_read_each(s->store, "GET job:%llu", numbers, JOBS, take, &t, NULL);

    *ret_n = t.n;
    return r;
}

static void assert_next_read_is_right(struct scene *s)
{
    redisReply *reply = store_read(s->store, NULL, "GET job:%d", 3);

    assert_non_null(reply);
    assert_string_equal(reply->str, "3");
    freeReplyObject(reply);
}

static void replies_come_in_order_up_to_the_first_that_is_refused(void **state)
{
    size_t n;

    assert_int_equal(read_each(*state, JOBS, &n), 0);
    assert_int_equal(n, JOBS);
    assert_int_equal(read_each(*state, 1, &n), -EINVAL);
    assert_int_equal(n, 2);
    assert_next_read_is_right(*state);
    assert_int_equal(store_read_each(((struct scene *)*state)->store, "GET job:%llu", NULL, 0, take, NULL, NULL), 0);
}

static void without_memory_for_a_command_no_reply_is_left_to_be_mistaken(void **state)
{
    for (int k = 1; k <= JOBS; k++) {
        size_t n;

        countdown = k;
        assert_int_equal(read_each(*state, JOBS, &n), -ENOMEM);
        assert_int_equal(n, 0);
        assert_next_read_is_right(*state);
    }
    countdown = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_come_in_order_up_to_the_first_that_is_refused),
        cmocka_unit_test(without_memory_for_a_command_no_reply_is_left_to_be_mistaken),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}
