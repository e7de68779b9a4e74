/* Files to the server by offset, against a model of the server that loses answers and starts anew. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/philox.h"
#include "worker/agent/ranks.h"
#include "worker/agent/ship.h"
#include "worker/agent/shim.h"

static char dir[64], root[128];
static struct machine *machine;
static struct ranks *ranks;
static struct ship *ship;

/* A run whose only rank has ended at once: its spec is no spec. Its folder is made for the files. */
static void add_run(const char *job, int slot)
{
    json_auto_t *o = json_pack("{s:s,s:i,s:s,s:i,s:[{s:i,s:s,s:i}],s:{}}", "job", job, "generation", 1, "dir", dir,
                               "world", 1, "ranks", "rank", 0, "node", "n1", "slot", slot, "spec");

    assert_int_equal(ranks_start(ranks, o, NULL), 0);
    assert_int_equal(io_mkdirs(ranks_find(ranks, job, 1)->folder, 0700, NULL), 0);
}

static int set_up(void **state)
{
    struct machine_cfg cfg = {.root = root, .self = "/bin/false", .train = "/bin/false"};

    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/muster-ship-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(root, sizeof(root), "%s/runs", dir);
    assert_int_equal(io_mkdirs(root, 0700, NULL), 0);
    assert_int_equal(machine_new(&cfg, &machine, NULL), 0);
    assert_int_equal(ranks_new(&(struct ranks_cfg){.machine = machine, .node = "n1", .slots = 8}, &ranks, NULL), 0);
    ship = ship_new(machine);
    add_run("j1", 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ship_free(ship);
    ranks_free(ranks);
    machine_free(machine);
    return io_remove_tree(dir, NULL);
}

static void append(const char *job, const char *name, const char *text, size_t n)
{
    char path[PATH_MAX];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s-g1/%s", root, job, name);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, text, n), 0);
    io_close(&fd);
}

static json_t *collect(size_t max, bool *ret_more)
{
    json_t *report = json_object();
    bool more;

    ship_sync(ship, ranks);
    assert_int_equal(ship_collect(ship, max, report, ret_more ? ret_more : &more), 0);
    return report;
}

static void take_acks(const json_t *doc)
{
    struct report_acks acks;

    if (report_acks_read(doc, &acks, NULL) < 0)
        return;
    ship_ack(ship, &acks);
    report_acks_clear(&acks);
}

static const char *piece_text(const json_t *report, const char *kind)
{
    const char *text = json_string_value(json_object_get(json_array_get(json_object_get(report, kind), 0), "text"));

    return text ? text : "";
}

static void ack(const char *kind, json_int_t offset)
{
    json_auto_t *o =
        json_pack("{s:[{s:s,s:i,s:i,s:I}]}", kind, "job", "j1", "generation", 1, "rank", 0, "offset", offset);

    take_acks(o);
}

static void only_whole_lines_of_metrics_and_events_go(void **state)
{
    json_auto_t *first = NULL, *second = NULL;

    (void)state;
    append("j1", "metrics.jsonl", "{\"step\":0}\n{\"st", 15);
    append("j1", "events.jsonl", "{\"ty", 4);
    append("j1", "rank-00000.log", "half", 4);
    first = collect(SHIP_REPORT_MAX, NULL);
    assert_string_equal(piece_text(first, "metrics"), "{\"step\":0}\n");
    assert_string_equal(piece_text(first, "events"), "");
    assert_string_equal(piece_text(first, "logs"), "half");
    ack("metrics", 11);
    append("j1", "metrics.jsonl", "ep\":1}\n", 7);
    second = collect(SHIP_REPORT_MAX, NULL);
    assert_string_equal(piece_text(second, "metrics"), "{\"step\":1}\n");
}

static void without_an_ack_the_same_goes_again(void **state)
{
    (void)state;
    append("j1", "rank-00000.log", "text\n", 5);
    for (int i = 0; i < 3; i++) {
        json_auto_t *report = collect(SHIP_REPORT_MAX, NULL);

        assert_string_equal(piece_text(report, "logs"), "text\n");
        assert_false(ship_done(ship, "j1", 1));
    }
    ack("logs", 5);
    assert_true(ship_done(ship, "j1", 1));
}

static void an_ack_may_go_back_and_beyond(void **state)
{
    json_auto_t *back = NULL, *beyond = NULL;

    (void)state;
    append("j1", "rank-00000.log", "0123456789", 10);
    ship_sync(ship, ranks);
    ack("logs", 10);
    ack("logs", 4);
    back = collect(SHIP_REPORT_MAX, NULL);
    assert_string_equal(piece_text(back, "logs"), "456789");
    ack("logs", 99);
    beyond = collect(SHIP_REPORT_MAX, NULL);
    assert_int_equal(json_array_size(json_object_get(beyond, "logs")), 0);
}

static void senseless_acks_are_ignored(void **state)
{
    static const char *const table[] = {
        "null",
        "[]",
        "{\"logs\":{}}",
        "{\"logs\":[7,null,{}]}",
        "{\"logs\":[{\"job\":\"j1\"}]}",
        "{\"logs\":[{\"job\":\"j1\",\"generation\":1,\"rank\":0,\"offset\":-1}]}",
        "{\"logs\":[{\"job\":\"j1\",\"generation\":1,\"rank\":0,\"offset\":\"5\"}]}",
        "{\"logs\":[{\"job\":\"j9\",\"generation\":1,\"rank\":0,\"offset\":5}]}",
    };

    (void)state;
    append("j1", "rank-00000.log", "text\n", 5);
    ship_sync(ship, ranks);
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i], JSON_DECODE_ANY, NULL), *report = NULL;

        take_acks(o);
        report = collect(SHIP_REPORT_MAX, NULL);
        assert_string_equal(piece_text(report, "logs"), "text\n");
    }
}

static void a_line_whose_end_never_came_does_not_hold_a_run(void **state)
{
    (void)state;
    append("j1", "events.jsonl", "{\"type\":", 8);
    ship_sync(ship, ranks);
    assert_true(ship_done(ship, "j1", 1));
    append("j1", "events.jsonl", "1}\n", 3);
    assert_false(ship_done(ship, "j1", 1));
}

static void what_is_no_plain_file_is_not_read_and_told(void **state)
{
    static const char *const names[] = {"metrics.jsonl", "events.jsonl", "rank-00000.log"};
    char path[PATH_MAX], text[200], want[200];

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        for (int kind = 0; kind < 3; kind++) {
            json_auto_t *report = NULL;

            (void)snprintf(path, sizeof(path), "%s/j1-g1/%s", root, names[i]);
            assert_int_equal(kind == 0   ? mkfifo(path, 0600)
                             : kind == 1 ? mkdir(path, 0700)
                                         : symlink("/etc/passwd", path),
                             0);
            report = collect(SHIP_REPORT_MAX, NULL);
            for (int k = 0; k < REPORT_KINDS; k++)
                assert_string_equal(piece_text(report, report_kind_names[k]), "");
            assert_true(ship_trouble(ship, "j1", 1, text, sizeof(text)));
            (void)snprintf(want, sizeof(want), "'%s' in the folder of the run is no plain file, so it is not read",
                           names[i]);
            assert_string_equal(text, want);
            assert_true(ship_done(ship, "j1", 1));
            assert_int_equal(remove(path), 0);
        }
    json_decref(collect(SHIP_REPORT_MAX, NULL));
    assert_false(ship_trouble(ship, "j1", 1, text, sizeof(text)));
}

/* Terabytes of nothing: neither is the end looked for, nor is all of it sent. */
static void a_file_without_an_end_holds_nobody(void **state)
{
    json_auto_t *report = NULL;
    char path[PATH_MAX], text[200];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/j1-g1/metrics.jsonl", root);
    append("j1", "metrics.jsonl", "", 0);
    assert_int_equal(truncate(path, (off_t)1 << 42), 0);
    json_decref(collect(SHIP_REPORT_MAX, NULL));
    assert_false(ship_done(ship, "j1", 1));
    ack("metrics", SHIP_METRICS_MAX);
    report = collect(SHIP_REPORT_MAX, NULL);
    assert_string_equal(piece_text(report, "metrics"), "");
    assert_true(ship_trouble(ship, "j1", 1, text, sizeof(text)));
    assert_string_equal(text, "'metrics.jsonl' in the folder of the run is larger than 4096 MiB; the rest is not read");
    assert_true(ship_done(ship, "j1", 1));
}

/* What the server has need not lie on the node, but for the end; offsets stay. */
static void what_is_acknowledged_of_a_log_is_given_back_to_the_disk(void **state)
{
    static char mib[1 << 20];
    json_auto_t *report = NULL;
    char path[PATH_MAX], last[8];
    struct stat st;
    int fd;

    (void)state;
    memset(mib, 'x', sizeof(mib));
    for (int i = 0; i < 20; i++)
        append("j1", "rank-00000.log", mib, sizeof(mib));
    append("j1", "rank-00000.log", "the end\n", 8);
    json_decref(collect(SHIP_REPORT_MIN, NULL));
    (void)snprintf(path, sizeof(path), "%s/j1-g1/rank-00000.log", root);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0)
        skip(); /* files of this disk have no holes */
    ack("logs", (json_int_t)16 << 20);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true((int64_t)st.st_blocks * 512 > 19 << 20); /* it would not be worth it */
    ack("logs", (json_int_t)18 << 20);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, (20 << 20) + 8);
    assert_true((int64_t)st.st_blocks * 512 < 4 << 20);
    assert_int_equal(pread(fd, last, 8, 20 << 20), 8);
    assert_memory_equal(last, "the end\n", 8);
    report = collect(SHIP_REPORT_MAX, NULL);
    assert_int_equal(strspn(piece_text(report, "logs"), "x"), strlen(piece_text(report, "logs")));
    io_close(&fd);
}

static void a_report_keeps_its_limit_and_says_that_more_waits(void **state)
{
    size_t size = 600000;
    char *text = malloc(size);
    bool more;

    (void)state;
    memset(text, '"', size); /* twice as long in JSON */
    append("j1", "rank-00000.log", text, size);
    free(text);
    for (size_t max = 1000; max < 4000000; max *= 3) {
        json_auto_t *report = collect(max, &more);
        char *dump = json_dumps(report, JSON_COMPACT);

        assert_true(more);
        assert_true(strlen(dump) <= max + 256);
        free(dump);
    }
}

static void a_talkative_rank_keeps_no_other_waiting(void **state)
{
    char *text = calloc(1, 2 << 20);
    bool heard = false;

    (void)state;
    memset(text, 'x', 2 << 20);
    append("j1", "rank-00000.log", text, 2 << 20);
    free(text);
    add_run("j2", 1);
    append("j2", "rank-00000.log", "here\n", 5);
    for (int i = 0; i < 6 && !heard; i++) {
        json_auto_t *report = collect(64 << 10, NULL);
        json_t *piece;
        size_t k;

        json_array_foreach (json_object_get(report, "logs"), k, piece) {
            heard |= strcmp(json_string_value(json_object_get(piece, "job")), "j2") == 0;
        }
    }
    assert_true(heard);
}

/* The server of the model: takes a piece that begins where it is, ignores any other, and may lose its
 * answer. The agent may start anew, the file grows meanwhile. In the end the server has the file. */
static void whatever_is_lost_or_restarted_the_server_ends_with_the_file(void **state)
{
    static const uint32_t key[2] = {20261121, 99};
    struct buf file, server;

    (void)state;
    print_message("seed %u\n", key[0]);
    buf_init(&file, 8 << 20);
    buf_init(&server, 8 << 20);
    for (uint32_t i = 0; i < 600 || server.len < file.len; i++) {
        json_auto_t *report = NULL;
        json_t *piece;
        uint32_t w[4];

        assert_true(i < 3000);
        philox4x32((uint32_t[4]){i, 0, 0, 0}, key, w);
        if (i < 600) {
            char text[64];
            int n = snprintf(text, sizeof(text), "line %u \xC3\xA4\xE2\x82\xAC\n", i);

            append("j1", "rank-00000.log", text, (size_t)n);
            assert_int_equal(buf_add(&file, text, (size_t)n), 0);
        }
        if (w[0] % 17 == 0) { /* the agent is started anew */
            ship_free(ship);
            ship = ship_new(machine);
        }
        report = collect(200 + w[1] % 500, NULL);
        piece = json_array_get(json_object_get(report, "logs"), 0);
        if (w[2] % 5 == 0 || !piece)
            continue; /* the report never arrives */
        if ((size_t)json_integer_value(json_object_get(piece, "offset")) == server.len)
            assert_int_equal(buf_addstr(&server, json_string_value(json_object_get(piece, "text"))), 0);
        if (w[3] % 5 == 0)
            continue; /* its answer never arrives */
        ack("logs", (json_int_t)server.len);
    }
    assert_int_equal(server.len, file.len);
    assert_memory_equal(server.data, file.data, file.len);
    buf_clear(&file);
    buf_clear(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_whole_lines_of_metrics_and_events_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_an_ack_the_same_goes_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ack_may_go_back_and_beyond, set_up, tear_down),
        cmocka_unit_test_setup_teardown(senseless_acks_are_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_whose_end_never_came_does_not_hold_a_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_plain_file_is_not_read_and_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_acknowledged_of_a_log_is_given_back_to_the_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_without_an_end_holds_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_report_keeps_its_limit_and_says_that_more_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_talkative_rank_keeps_no_other_waiting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whatever_is_lost_or_restarted_the_server_ends_with_the_file, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
