/* How nodes did: rings of samples in a file each, whatever becomes of a write, of the clock and of the room. */
#include "server/store/node_series.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/folder.h"

#define NOW INT64_C(1800000000) /* the begin of five minutes */
#define ROOM (INT64_C(1) << 30)

struct seen {
    size_t n;
    int64_t first_s, last_s;
    struct node_series_sample last;
};

static void note(void *arg, const struct node_series_sample *x)
{
    struct seen *s = arg;

    assert_true(s->n == 0 || x->at_s > s->last_s);
    s->first_s = s->n == 0 ? x->at_s : s->first_s;
    s->last_s = x->at_s;
    s->last = *x;
    s->n++;
}

static struct seen read_from(const struct node_series *s, const char *node, int64_t from_s, int64_t to_s, int step_s)
{
    struct seen seen = {.n = 0};
    int r = node_series_read(s, node, from_s, to_s, step_s, note, &seen);

    assert_true(r == 0 || r == -ENOENT);
    return seen;
}

static struct node_series *open_at(const char *folder, int64_t limit)
{
    struct node_series *s;

    assert_int_equal(node_series_open(at(folder), limit, &s, NULL), 0);
    return s;
}

static struct node_series_sample sample(int64_t at_s, uint32_t cpu, size_t devices, uint32_t job)
{
    struct node_series_sample x = {.at_s = at_s, .n_devices = devices};

    for (int i = 0; i < NODE_SERIES_HOST; i++)
        x.host[i] = NODE_SERIES_NONE;
    x.host[NODE_SERIES_CPU] = cpu;
    for (size_t i = 0; i < devices; i++)
        x.device[i] = (struct node_series_device){.job = job,
                                                  .slot = (uint8_t)i,
                                                  .busy = job ? 100 : 0,
                                                  .use = (uint8_t)cpu,
                                                  .power_w = 300,
                                                  .memory = 50,
                                                  .temperature = NODE_SERIES_BYTE_NONE};
    return x;
}

static void put(struct node_series *s, const char *node, int64_t at_s, uint32_t cpu, size_t devices, uint32_t job)
{
    struct node_series_sample x = sample(at_s, cpu, devices, job);

    assert_int_equal(node_series_put(s, node, &x), 0);
}

static void a_day_is_kept_by_fifteen_seconds_and_a_month_by_five_minutes(void **state)
{
    struct node_series *s = open_at("ring", ROOM);
    int64_t end = NOW + 2 * 86400;
    struct seen seen;

    (void)state;
    for (int64_t t = NOW; t < end; t += 15)
        put(s, "n1", t, t % 300 == 0 ? 40 : 0, 2, t < end - 86400 ? 7 : 0);
    seen = read_from(s, "n1", 0, end - 15, 15);
    assert_int_equal(seen.n, NODE_SERIES_FINE);
    assert_int_equal(seen.first_s, end - 86400);
    assert_int_equal(seen.last_s, end - 15);
    assert_int_equal(seen.last.n_devices, 2);
    assert_int_equal(seen.last.device[1].slot, 1);
    seen = read_from(s, "n1", 0, end, 300);
    assert_int_equal(seen.n, 2 * 86400 / 300);            /* what the other ring has lost is there */
    assert_int_equal(seen.last.host[NODE_SERIES_CPU], 2); /* the mean of 20 */
    assert_int_equal(seen.last.host[NODE_SERIES_LOAD], NODE_SERIES_NONE);
    assert_int_equal(seen.last.device[0].use, 2);
    assert_int_equal(seen.last.device[0].temperature, NODE_SERIES_BYTE_NONE);
    assert_int_equal(seen.last.device[0].job, 0);
    seen = read_from(s, "n1", NOW + 3600, NOW + 7199, 300);
    assert_int_equal(seen.n, 12);
    assert_int_equal(seen.last.device[0].job, 7);
    assert_int_equal(seen.last.device[0].busy, 100);
    assert_int_equal(read_from(s, "n2", 0, end, 15).n, 0);
    node_series_close(s);
    s = open_at("ring", ROOM); /* and after a restart */
    assert_int_equal(read_from(s, "n1", end - 60, end, 15).n, 4);
    node_series_close(s);
}

static void a_write_that_was_cut_off_is_one_sample_less(void **state)
{
    struct node_series *s = open_at("torn", ROOM);
    struct stat st;
    struct seen seen;
    char path[PATH_MAX];
    int64_t tick = NOW / 15 + 3, found = 0;
    off_t row;
    int fd;

    (void)state;
    for (int i = 0; i < 8; i++)
        put(s, "n1", NOW + 15 * i, 10, 4, 1);
    (void)snprintf(path, sizeof(path), "%s/n1.series", at("torn"));
    fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    row = 16 + tick % NODE_SERIES_FINE * ((st.st_size - 16) / (NODE_SERIES_FINE + NODE_SERIES_COARSE));
    assert_int_equal(pread(fd, &found, sizeof(found), row + 8), sizeof(found));
    assert_int_equal(found, tick); /* of the fourth sample */
    assert_int_equal(pwrite(fd, "\xee", 1, row + 60), 1);
    seen = read_from(s, "n1", NOW, NOW + 300, 15);
    assert_int_equal(seen.n, 7);
    put(s, "n1", NOW + 45, 20, 4, 1); /* written again it is there */
    assert_int_equal(read_from(s, "n1", NOW, NOW + 300, 15).n, 8);
    assert_int_equal(ftruncate(fd, st.st_size / 3), 0); /* a file that ends early */
    (void)close(fd);
    (void)read_from(s, "n1", 0, NOW + 300, 15);
    put(s, "n1", NOW + 120, 20, 4, 1);
    assert_int_equal(read_from(s, "n1", NOW + 120, NOW + 300, 15).n, 1);
    assert_int_equal(truncate(path, 5), 0); /* without a header it begins anew */
    put(s, "n1", NOW + 135, 20, 4, 1);
    assert_int_equal(read_from(s, "n1", NOW, NOW + 300, 15).n, 1);
    node_series_close(s);
}

static void a_clock_that_goes_back_writes_over_what_it_wrote(void **state)
{
    struct node_series *s = open_at("back", ROOM);
    size_t taken = 1; /* a place of the ring that both times have */

    (void)state;
    for (int i = 0; i < 20; i++)
        put(s, "n1", NOW + 15 * i, 10, 1, 1);
    for (int i = 5; i < 8; i++)
        put(s, "n1", NOW + 15 * i, 90, 1, 2);
    assert_int_equal(read_from(s, "n1", NOW, NOW + 15 * 7, 15).n, 8);
    assert_int_equal(read_from(s, "n1", NOW, NOW + 15 * 7, 15).last.host[NODE_SERIES_CPU], 90);
    put(s, "n1", NOW - 90 * 86400, 55, 1, 3); /* by months: nobody who asks of today sees it */
    assert_int_equal(read_from(s, "n1", NOW - 3600, NOW + 3600, 15).n, 20 - taken);
    assert_int_equal(read_from(s, "n1", NOW - 90 * 86400, NOW - 90 * 86400, 15).n, 1);
    node_series_close(s);
}

static void a_node_that_gets_devices_keeps_what_it_had(void **state)
{
    struct node_series *s = open_at("grown", ROOM);
    struct seen seen;

    (void)state;
    for (int i = 0; i < 50; i++)
        put(s, "n1", NOW + 15 * i, 10, 2, 1);
    for (int i = 50; i < 60; i++)
        put(s, "n1", NOW + 15 * i, 10, 250, 1);
    put(s, "n1", NOW + 15 * 60, 10, 1, 1);
    seen = read_from(s, "n1", NOW, NOW + 3600, 15);
    assert_int_equal(seen.n, 61);
    assert_int_equal(seen.last.n_devices, 1);
    assert_int_equal(read_from(s, "n1", NOW, NOW + 15 * 49, 15).last.n_devices, 2);
    assert_int_equal(read_from(s, "n1", NOW, NOW + 3600, 300).n, 4);
    node_series_close(s);
}

static void all_files_together_have_a_limit(void **state)
{
    struct node_series *s = open_at("limit", ROOM);
    struct node_series_sample x = sample(NOW, 1, 4, 0);
    struct timespec old[2] = {{.tv_sec = NOW - 2 * 86400}, {.tv_sec = NOW - 2 * 86400}};
    struct timespec young[2] = {{.tv_sec = NOW}, {.tv_sec = NOW}};
    struct stat st;
    char path[PATH_MAX];

    (void)state;
    put(s, "n1", NOW, 1, 4, 0);
    node_series_close(s);
    (void)snprintf(path, sizeof(path), "%s/n1.series", at("limit"));
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size < 2 << 20 && st.st_blocks * 512 < st.st_size / 10); /* what is not written takes no room */
    assert_int_equal(utimensat(AT_FDCWD, path, young, 0), 0);
    s = open_at("limit", st.st_size * 3 / 2);
    assert_int_equal(node_series_put(s, "n2", &x), -ENOSPC); /* the other one is still written to */
    assert_int_equal(node_series_put(s, "n1", &x), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_int_equal(node_series_put(s, "n2", &x), -ENOSPC); /* the folder is looked through once a minute */
    x.at_s += 60;
    assert_int_equal(node_series_put(s, "n2", &x), 0); /* that one has been silent for days */
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(node_series_put(s, "../n3", &x), -EINVAL);
    assert_int_equal(node_series_put(s, ".n3", &x), -EINVAL);
    node_series_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_day_is_kept_by_fifteen_seconds_and_a_month_by_five_minutes),
        cmocka_unit_test(a_write_that_was_cut_off_is_one_sample_less),
        cmocka_unit_test(a_clock_that_goes_back_writes_over_what_it_wrote),
        cmocka_unit_test(a_node_that_gets_devices_keeps_what_it_had),
        cmocka_unit_test(all_files_together_have_a_limit),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
