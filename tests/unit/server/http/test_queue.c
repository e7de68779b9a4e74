#include "server/http/call.h"
#include "tests/unit/test.h"

#include <pthread.h>

#include "base/clock.h"
#include "server/http/queue.h"

static void calls_come_out_in_order_and_no_more_than_asked_for(void **state)
{
    struct queue q;
    struct call call[5] = {{.job = 0}}, *list;

    (void)state;
    queue_init(&q, 4);
    for (size_t i = 0; i < 5; i++) {
        call[i].job = i + 1;
        assert_int_equal(queue_put(&q, &call[i]), i < 4); /* the fifth is over the limit */
    }
    list = queue_take(&q, 3, 0);
    assert_int_equal(list->job, 1);
    assert_int_equal(list->next->job, 2);
    assert_int_equal(list->next->next->job, 3);
    assert_null(list->next->next->next);
    assert_true(queue_put(&q, &call[4]));
    list = queue_take(&q, 9, 0);
    assert_int_equal(list->job, 4);
    assert_int_equal(list->next->job, 5);
    assert_null(queue_take(&q, 9, clock_mono_us() + 1000));
    queue_close(&q);
    assert_false(queue_put(&q, &call[0]));
    assert_null(queue_take(&q, 9, clock_mono_us() + 3600 * 1000000LL)); /* closed: does not wait */
    queue_destroy(&q);
}

#define EACH 2000

static void *put_many(void *arg)
{
    struct queue *q = ((void **)arg)[0];
    struct call *calls = ((void **)arg)[1];

    for (int i = 0; i < EACH; i++)
        while (!queue_put(q, &calls[i]))
            continue;
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    static struct call calls[2][EACH];
    struct queue q;
    pthread_t t[2];
    void *arg[2][2];
    size_t n = 0;

    (void)state;
    queue_init(&q, 100);
    for (int i = 0; i < 2; i++) {
        arg[i][0] = &q;
        arg[i][1] = calls[i];
        assert_int_equal(pthread_create(&t[i], NULL, put_many, arg[i]), 0);
    }
    while (n < 2 * EACH) {
        struct call *list = queue_take(&q, 64, clock_mono_us() + 30 * 1000000LL);

        assert_non_null(list);
        for (; list; list = list->next)
            n++;
    }
    for (int i = 0; i < 2; i++)
        (void)pthread_join(t[i], NULL);
    assert_int_equal(queue_length(&q), 0);
    queue_destroy(&q);
}

static void the_first_answer_stands(void **state)
{
    struct call *call = call_new(NULL, NULL);

    (void)state;
    call_problem(call, 404, "unknown-job", "no job '%s'", "j9");
    call_answer_new(call, 200, json_object());
    assert_int_equal(call->status, 404);
    assert_string_equal(json_string_value(json_object_get(call->reply, "detail")), "no job 'j9'");
    call_deliver(call); /* nobody waits for it: it is only freed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_come_out_in_order_and_no_more_than_asked_for),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(the_first_answer_stands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
