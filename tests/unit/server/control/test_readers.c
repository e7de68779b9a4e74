/* "One user against all": user tokens have a share of the readers, and a read ends with its client. */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/readers.h"
#include "server/http/call.h"
#include "server/http/http_priv.h"

#define MOST 200

struct scene {
    struct readers *readers;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    bool open;           /* reads come to their end */
    int begun, ended;    /* reads */
    char order[MOST][8]; /* whose, as they began */
    struct http_req *reqs[MOST];
    int n;
};

static int begin(void **state, unsigned threads)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    return readers_start(threads, s, &s->readers, NULL);
}

static int with_one(void **state)
{
    return begin(state, 1);
}

static int with_two(void **state)
{
    return begin(state, 2);
}

static void let_go(struct scene *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->open = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static int end(void **state)
{
    struct scene *s = *state;

    let_go(s);
    readers_stop(s->readers);
    readers_free(s->readers);
    for (int i = 0; i < s->n; i++)
        http_req_unref(s->reqs[i]);
    free(s);
    return 0;
}

static void read_it(void *owner, struct call *call)
{
    struct scene *s = owner;

    (void)pthread_mutex_lock(&s->lock);
    (void)snprintf(s->order[s->begun++], sizeof(s->order[0]), "%s", http_identity(call->req)->user);
    (void)pthread_cond_broadcast(&s->changed);
    while (!s->open)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    s->ended++;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    call_answer_new(call, 200, json_object());
    call_deliver(call);
}

/* The request; its client has left before it is run. */
static struct http_req *ask(struct scene *s, const char *user, bool gone)
{
    struct http_req *r = calloc(1, sizeof(*r));
    struct call *call = call_new(r, read_it);

    assert_true(call && s->n < MOST);
    assert_int_equal(pthread_mutex_init(&r->lock, NULL), 0);
    atomic_store(&r->refs, 2);
    r->state = HTTP_HELD;
    r->gone = gone;
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    s->reqs[s->n++] = r;
    readers_post(s->readers, call);
    return r;
}

/* Wait until so many reads have begun, and so many ended. */
static void reach(struct scene *s, int begun, int ended)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->begun < begun || s->ended < ended)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

static void a_user_of_many_reads_holds_up_another_for_one(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < 20; i++)
        (void)ask(s, "mallory", false);
    reach(s, 1, 0);
    (void)ask(s, "ann", false);
    (void)ask(s, "bob", false);
    let_go(s);
    reach(s, 22, 22);
    assert_string_equal(s->order[0], "mallory");
    /* mallory's second may have been before ann's first: it came first, and the turn was hers */
    assert_true(strcmp(s->order[1], "ann") == 0 || strcmp(s->order[2], "ann") == 0);
    assert_true(strcmp(s->order[2], "bob") == 0 || strcmp(s->order[3], "bob") == 0);
}

static void a_user_reads_on_one_thread_and_leaves_the_others_free(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < 8; i++)
        (void)ask(s, "mallory", false);
    (void)ask(s, "ann", false);
    reach(s, 2, 0); /* both threads are in a read */
    assert_int_not_equal(strcmp(s->order[0], s->order[1]), 0);
    let_go(s);
    reach(s, 9, 9);
}

static void one_read_too_many_is_refused_and_no_other_users(void **state)
{
    struct scene *s = *state;

    (void)ask(s, "mallory", false);
    reach(s, 1, 0);
    for (int i = 0; i < READERS_WAITING_MAX; i++)
        assert_int_equal(ask(s, "mallory", false)->status, 0);
    for (int i = 0; i < 3; i++) {
        struct http_req *r = ask(s, "mallory", false);

        assert_int_equal(r->status, 429);
        assert_string_equal(r->out_headers[0].name, "Retry-After");
    }
    assert_int_equal(ask(s, "ann", false)->status, 0);
    let_go(s);
    reach(s, READERS_WAITING_MAX + 2, READERS_WAITING_MAX + 2);
}

static void a_read_whose_client_has_left_is_not_begun(void **state)
{
    struct scene *s = *state;

    let_go(s);
    for (int i = 0; i < 10; i++)
        (void)ask(s, "mallory", true);
    (void)ask(s, "mallory", false);
    reach(s, 1, 1);
    assert_int_equal(s->begun, 1);
}

static void what_waits_is_refused_when_the_server_stops(void **state)
{
    struct scene *s = *state;
    struct http_req *first = ask(s, "ann", false), *second;

    reach(s, 1, 0);
    second = ask(s, "ann", false);
    let_go(s);
    readers_stop(s->readers);
    assert_int_equal(first->status, 200);
    assert_true(second->status == 503 || second->status == 200);
    assert_int_equal(ask(s, "ann", false)->status, 503);
}

static void without_threads_a_read_is_over_when_it_is_posted(void **state)
{
    struct scene *s;

    assert_int_equal(begin(state, 0), 0);
    s = *state;
    let_go(s);
    assert_int_equal(ask(s, "ann", false)->status, 200);
    (void)end(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_user_of_many_reads_holds_up_another_for_one, with_one, end),
        cmocka_unit_test_setup_teardown(a_user_reads_on_one_thread_and_leaves_the_others_free, with_two, end),
        cmocka_unit_test_setup_teardown(one_read_too_many_is_refused_and_no_other_users, with_one, end),
        cmocka_unit_test_setup_teardown(a_read_whose_client_has_left_is_not_begun, with_two, end),
        cmocka_unit_test_setup_teardown(what_waits_is_refused_when_the_server_stops, with_one, end),
        cmocka_unit_test(without_threads_a_read_is_over_when_it_is_posted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
