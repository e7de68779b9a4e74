/* test_scrapes - /metrics: one page for all who ask, and a limit for those that slow readers hold */
#include "tests/unit/server/control/scene.h"

#include "server/control/device_uses.h"
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

/* A node registers, whose GPUs it tells all of. */
static void add_gpus(struct scene *s, const char *name)
{
    json_t *gpus = json_array(), *slots = json_array();

    for (int i = 0; i < 8; i++) {
        (void)json_array_append_new(slots, json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", i, "kind", "gpu", "class",
                                                     "h100", "threads", 1, "memory_mib", 80000));
        (void)json_array_append_new(gpus, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "slot", i, "utilization", 90,
                                                    "memory_used_mib", 70000, "power_w", 600, "temperature_c", 60,
                                                    "ecc_uncorrected", 0));
    }
    assert_int_equal(scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                                json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:[]}", "node", name, "address", "10.0.0.1",
                                          "boot_id", "b1", "incarnation", name, "slots", slots, "gpus", gpus, "runs"))
                         .status,
                     200);
}

static size_t count_lines(const char *text, const char *begin)
{
    size_t n = 0;

    for (const char *at = text; (at = strstr(at, begin)); at++)
        n++;
    return n;
}

/* The whole of a page; the caller frees it. */
static char *page_text(struct http_page *p)
{
    size_t len = http_page_bytes(p), at = 0;
    char *text = calloc(1, len + 1);

    assert_non_null(text);
    while (at < len)
        at += (size_t)http_page_read(p, at, text + at, len - at);
    http_page_unref(p);
    return text;
}

/* A request for the page that is not answered at once. */
static struct http_req *scrape_long(struct scene *s)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);

    atomic_fetch_add(&r->refs, 1);
    assert_int_equal(scene_call(s, scrapes_answer, r, NULL).status, 0);
    assert_true(turn_due_us(s->core) <= s->clock.mono_us); /* the next piece is due */
    return r;
}

static struct http_page *take_page(struct http_req *r)
{
    struct http_page *p = http_page_ref(r->page);

    assert_int_equal(r->status, 200);
    http_req_unref(r);
    return p;
}

static void a_long_page_is_printed_in_pieces_while_nodes_come_and_go(void **state)
{
    struct scene *s = *state;
    struct http_req *first, *second;
    struct http_page *page, *other;
    struct node *gone;
    size_t turns = 1, len;
    char name[16], *text;

    for (int i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof(name), "n%03d", 2 * i);
        add_gpus(s, name);
    }
    scene_wait(s, 1);
    first = scrape_long(s);
    second = scrape_long(s); /* this one shares the page */
    turns++;
    for (; first->status == 0; turns++) {
        assert_int_equal(second->status, 0);
        if (turns % 2 == 1) { /* in front of those that were told, and behind them */
            (void)snprintf(name, sizeof(name), "n%03zu", 4 * turns + 1);
            gone = cluster_node(&s->core->cluster, turns % 4 == 3 ? "n100" : "n500");
            assert_non_null(gone);
            cluster_drop(&s->core->cluster, gone);
            (void)cluster_add(&s->core->cluster, turns % 4 == 3 ? "n500" : "n100", 1);
            assert_non_null(cluster_add(&s->core->cluster, name, 1));
        }
        assert_true(turn_take(s->core, NULL));
        assert_in_range(turns, 0, 100);
    }
    page = take_page(first);
    other = take_page(second);
    assert_ptr_equal(page, other);
    http_page_unref(other);
    len = http_page_bytes(page);
    assert_true(len > 4 * (SCRAPES_PIECE_BYTES + 4096));
    assert_in_range(len, 0, turns * (SCRAPES_PIECE_BYTES + 4096)); /* no turn printed more than a piece */
    text = page_text(page);
    assert_int_equal(count_lines(text, "\nmuster_gpu_power_watts{node=\"n006\",slot=\"3\"}"), 1);
    assert_int_equal(count_lines(text, "\nmuster_gpu_ecc_uncorrected{node=\"n006\",slot=\"3\"}"), 1);
    assert_int_equal(count_lines(text, "\n# TYPE muster_gpu_power_watts gauge"), 1);
    assert_int_equal(count_lines(text, "\nmuster_node_up{node=\"n006\"}"), 1);
    assert_in_range(count_lines(text, "\nmuster_node_up{node=\"n100\"}"), 0, 1);
    assert_in_range(count_lines(text, "\nmuster_node_up{node=\"n500\"}"), 0, 1);
    assert_int_equal(count_lines(text, "\nmuster_calls_total "), 1);
    free(text);
}

static void devices_are_told_by_class_state_and_project_and_steps_by_job(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    char name[16], *text;
    uint64_t job;

    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(scene_register(s, name, "a", 2), 200);
    }
    job = scene_submit(s, "project: nlp\ndevices: {min: 3, max: 3}\ncommand: {argv: [x]}\n");
    scene_report_all(s, job, "running", 0);
    scene_entry(s, job)->job.step_ms = 250;
    cluster_node(&s->core->cluster, "n2")->drain = true;
    scene_wait(s, 1);
    r = scene_request(NULL, NULL, NULL);
    atomic_fetch_add(&r->refs, 1);
    (void)scene_call(s, scrapes_answer, r, NULL);
    text = page_text(take_page(r));
    assert_int_equal(count_lines(text, "\nmuster_devices{class=\"a\",state=\"busy\",project=\"nlp\"} 3\n"), 1);
    assert_int_equal(count_lines(text, "\nmuster_devices{class=\"a\",state=\"free\",project=\"\"} 1\n"), 1);
    assert_int_equal(count_lines(text, "\nmuster_devices{class=\"a\",state=\"unusable\",project=\"\"} 2\n"), 1);
    assert_int_equal(count_lines(text, "\nmuster_slots{state=\"busy\"} 3\n"), 1);
    (void)snprintf(name, sizeof(name), "j%llu", (unsigned long long)job);
    assert_int_equal(count_lines(text, "\nmuster_job_step_seconds{job=\""), 1);
    assert_non_null(strstr(text, "project=\"nlp\"} 0.25\n"));
    free(text);
}

static void more_kinds_of_use_than_there_are_rows_are_counted_together(void **state)
{
    struct device_uses *u = calloc(1, sizeof(*u));
    struct classes *k = calloc(1, sizeof(*k));
    struct slot slot = {.job = 1};
    struct node n = {.slots = &slot, .n_slots = 1, .contact = NODE_READY};
    struct table none = {0};
    struct buf out;

    (void)state;
    assert_true(u && k);
    assert_int_equal(table_init(&none), 0);
    for (size_t i = 0; i < DEVICE_USES_MAX; i++) /* as if by so many projects */
        (void)snprintf(u->row[u->n++].class_, SPEC_NAME_MAX, "c%zu", i);
    (void)snprintf(k->name[0], SPEC_NAME_MAX, "new");
    device_uses_add(u, k, &none, &n);
    device_uses_add(u, k, &none, &n);
    assert_int_equal(u->n, DEVICE_USES_MAX);
    assert_int_equal(device_uses_sum(u, DEVICE_BUSY), 2);
    buf_init(&out, 1 << 20);
    device_uses_print(u, &out);
    assert_non_null(strstr(buf_text(&out), "muster_devices{class=\"\",state=\"busy\",project=\"\"} 2\n"));
    buf_clear(&out);
    table_clear(&none);
    free(u);
    free(k);
}

static void readers_of_a_page_that_is_not_whole_are_refused_at_the_end(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    char name[16];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "n%03d", i);
        add_gpus(s, name);
    }
    scene_wait(s, 1);
    r = scrape_long(s);
    scene_restart(s);
    assert_int_equal(r->status, 503);
    http_req_unref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_who_ask_at_once_share_a_page_and_later_ones_get_another, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(a_thousand_readers_that_never_end_hold_a_few_pages, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_long_page_is_printed_in_pieces_while_nodes_come_and_go, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(devices_are_told_by_class_state_and_project_and_steps_by_job, scene_start,
                                        scene_stop),
        cmocka_unit_test(more_kinds_of_use_than_there_are_rows_are_counted_together),
        cmocka_unit_test_setup_teardown(readers_of_a_page_that_is_not_whole_are_refused_at_the_end, scene_start,
                                        scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
