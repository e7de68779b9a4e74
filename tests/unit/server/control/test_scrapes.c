/* test_scrapes - /metrics: one page for all who ask, and a limit for those that slow readers hold */
#include "tests/unit/server/control/scene.h"

#include "server/control/scrapes.h"
#include "server/http/http_page.h"

/* Ask; the answer's page, which the test holds from then on. */
static struct http_page *scrape(struct scene *s)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);
    struct http_page *p;

    atomic_fetch_add(&r->refs, 1);
    assert_int_equal(scene_call(s, scrapes_answer, r, NULL).status, 200);
    p = http_page_ref(r->page);
    http_req_unref(r);
    return p;
}

static void those_who_ask_at_once_share_a_page_and_later_ones_get_another(void **state)
{
    struct scene *s = *state;
    struct http_page *first = scrape(s), *second, *later;
    char text[4096];

    /* In the scene each call comes 10 ms after the last; a page of this length is as good for a few. */
    assert_true(http_page_bytes(first) / SCRAPES_BYTES_A_US < SECOND / 100);
    scene_wait(s, 1);
    second = scrape(s);
    assert_ptr_not_equal(first, second);
    s->clock.mono_us -= SECOND / 100; /* the next one comes in the same moment */
    later = scrape(s);
    assert_ptr_equal(second, later);
    assert_true(http_page_read(first, 0, text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "muster_jobs{state="));
    http_page_unref(first);
    http_page_unref(second);
    http_page_unref(later);
}

static void a_thousand_readers_that_never_end_hold_a_few_pages(void **state)
{
    struct scene *s = *state;
    struct http_page *held[1000];
    size_t readable = 0;
    char c;

    for (size_t i = 0; i < COUNT(held); i++) {
        scene_wait(s, 1);
        held[i] = scrape(s);
    }
    for (size_t i = 0; i < COUNT(held); i++)
        readable += http_page_read(held[i], 0, &c, 1) == 1;
    assert_in_range(readable, 2, SCRAPES_KEPT_MAX + 1);
    assert_int_equal(http_page_read(held[COUNT(held) - 1], 0, &c, 1), 1); /* the newest ones */
    assert_int_equal(http_page_read(held[0], 0, &c, 1), -1);
    for (size_t i = 0; i < COUNT(held); i++)
        http_page_unref(held[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_who_ask_at_once_share_a_page_and_later_ones_get_another, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(a_thousand_readers_that_never_end_hold_a_few_pages, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
