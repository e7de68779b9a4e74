/* Maintenance and reservations: names, records, which devices, and when. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/bookings.h"

#define HOUR INT64_C(3600000000)

static void a_booking_is_called_by_its_kind_and_number(void **state)
{
    static const struct {
        const char *name;
        bool reserved;
        uint64_t id;
    } table[] = {
        {"m1", false, 1},
        {"r12", true, 12},
        {"m1", true, 0},
        {"r1", false, 0},
        {"", false, 0},
        {"m", false, 0},
        {"m0", false, 0},
        {"m01", false, 0},
        {"m-1", false, 0},
        {"m1x", false, 0},
        {"m 1", false, 0},
        {"m12345678901234567", false, UINT64_C(12345678901234567)},
        {"m123456789012345678", false, 0}, /* longer than any */
    };
    char name[24];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        if (bookings_parse(table[i].name, table[i].reserved) != table[i].id)
            fail_msg("row %zu", i);
    bookings_name(&(struct booking){.id = 3}, name);
    assert_string_equal(name, "m3");
    bookings_name(&(struct booking){.id = UINT64_MAX, .reserved = true}, name);
    assert_string_equal(name, "r18446744073709551615");
}

static struct booking of(const char *node, int slot, int64_t from_us, int64_t to_us)
{
    struct booking b = {
        .span = {.from_us = from_us, .to_us = to_us}, .parts = calloc(1, sizeof(*b.parts)), .n_parts = 1};

    assert_non_null(b.parts);
    (void)snprintf(b.parts[0].node, sizeof(b.parts[0].node), "%s", node);
    b.parts[0].slot = slot;
    return b;
}

static void numbers_are_never_given_twice_and_there_are_so_many(void **state)
{
    struct bookings all = {.n = 0};
    struct booking b;
    uint64_t id;

    (void)state;
    for (size_t i = 0; i < BOOKINGS_MAX; i++) {
        b = of("n1", BOOKINGS_ALL, 0, HOUR);
        assert_int_equal(bookings_take(&all, &b, &id), 0);
        assert_int_equal(id, i + 1);
    }
    b = of("n1", 0, 0, HOUR);
    assert_int_equal(bookings_take(&all, &b, &id), -ENOSPC);
    bookings_drop(&all, bookings_find(&all, BOOKINGS_MAX));
    assert_null(bookings_find(&all, BOOKINGS_MAX));
    b.reserved = true;
    assert_int_equal(bookings_take(&all, &b, &id), 0); /* the last name was used, although it is gone */
    assert_int_equal(id, BOOKINGS_MAX + 1);
    assert_int_equal(bookings_find(&all, id)->span.holder, id);
    bookings_clear(&all);
    assert_null(bookings_find(&all, 1));
}

static void what_cannot_be_a_booking_is_refused(void **state)
{
    static const struct {
        const char *text;
        int r;
    } table[] = {
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"parts\": [[\"n1\", 0]]}", 0},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"every_us\": 1, \"parts\": [[\"n1\", -1]]}", 0},
        {"{\"id\": 1, \"from_us\": 0, \"to_us\": 2, \"every_us\": 1, \"parts\": [[\"n1\", 0]]}", -EINVAL},
        {"{\"id\": 0, \"from_us\": 1, \"to_us\": 2, \"parts\": [[\"n1\", 0]]}", -EINVAL},
        {"{\"id\": -1, \"from_us\": 1, \"to_us\": 2, \"parts\": [[\"n1\", 0]]}", -EINVAL},
        {"{\"id\": 1, \"from_us\": -1, \"to_us\": 2, \"parts\": [[\"n1\", 0]]}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 2, \"to_us\": 2, \"parts\": [[\"n1\", 0]]}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"every_us\": -1, \"parts\": [[\"n1\", 0]]}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"parts\": []}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"parts\": [[0, \"n1\"]]}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"parts\": [[\"n1\"]]}", -EINVAL},
        {"{\"id\": 1, \"from_us\": 1, \"to_us\": 2, \"parts\": [7]}", -EINVAL},
        {"[]", -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].text, 0, NULL), *again = NULL;
        struct booking b = {.id = 99}, c;
        int r = bookings_read(o, &b);

        if (r != table[i].r)
            fail_msg("row %zu: %d", i, r);
        if (r < 0) {
            assert_int_equal(b.id, 99);
            continue;
        }
        again = bookings_record(&b);
        assert_int_equal(bookings_read(again, &c), 0); /* and what is kept is read back */
        assert_true(c.id == b.id && c.span.to_us == b.span.to_us && c.parts[0].slot == b.parts[0].slot);
        free(b.parts);
        free(c.parts);
    }
}

static struct slot slots[2][2];
static struct node nodes[2] = {{.name = "n1"}, {.name = "n2"}};
static struct node *by_name[2] = {&nodes[0], &nodes[1]};
static struct cluster cl = {.nodes = by_name, .n_nodes = 2};

static void make(void)
{
    for (size_t i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++)
            slots[i][k] = (struct slot){.slot = k};
        nodes[i].slots = slots[i];
        nodes[i].n_slots = 2;
        nodes[i].drain = false;
        nodes[i].contact = NODE_READY;
    }
}

static void a_device_is_shut_while_its_maintenance_lasts(void **state)
{
    struct bookings all = {.n = 0};
    struct booking b = of("n1", 1, 10 * HOUR, 11 * HOUR), gone = of("gone", 0, 0, 100 * HOUR);
    static const struct {
        int64_t now_us;
        bool changed, shut;
    } table[] = {{9 * HOUR, true, false}, /* it is to close */
                 {9 * HOUR, false, false}, {10 * HOUR, true, true},  {11 * HOUR - 1, false, true},
                 {11 * HOUR, true, false}, {12 * HOUR, false, false}};
    uint64_t id;

    (void)state;
    make();
    assert_int_equal(bookings_take(&all, &b, &id), 0);
    assert_int_equal(bookings_take(&all, &gone, &id), 0); /* of a node that left */
    for (size_t i = 0; i < COUNT(table); i++) {
        if (bookings_mark(&all, &cl, table[i].now_us) != table[i].changed || slots[0][1].calendar.shut != table[i].shut)
            fail_msg("row %zu", i);
        assert_false(slots[0][0].calendar.shut);
        assert_false(slots[1][1].calendar.shut);
    }
    assert_int_equal(bookings_edge_us(&all, 0), 10 * HOUR - CALENDAR_LEAD_US);
    assert_int_equal(bookings_edge_us(&all, 10 * HOUR), 11 * HOUR);
    assert_int_equal(bookings_edge_us(&all, 11 * HOUR), 100 * HOUR);
    assert_true(bookings_edge_us(&all, 100 * HOUR) == INT64_MAX);
    bookings_clear(&all);
}

static void a_reservation_takes_idle_devices_side_by_side(void **state)
{
    struct bookings all = {.n = 0};
    struct booking b = {.span = {.from_us = HOUR, .to_us = 2 * HOUR}, .reserved = true}, other;
    uint64_t id;
    int n_free;

    (void)state;
    make();
    slots[0][0].job = 5; /* has work; it is taken after the idle one */
    assert_true(bookings_choose(&all, &cl, CLASSES_ANY, 3, &b, &n_free));
    assert_int_equal(n_free, 4);
    assert_true(b.n_parts == 3 && strcmp(b.parts[0].node, "n1") == 0 && b.parts[0].slot == 1 && b.parts[1].slot == 0 &&
                strcmp(b.parts[2].node, "n2") == 0);
    assert_int_equal(bookings_take(&all, &b, &id), 0);
    other = (struct booking){.span = {.from_us = 2 * HOUR - 1, .to_us = 3 * HOUR}};
    assert_false(bookings_choose(&all, &cl, CLASSES_ANY, 2, &other, &n_free)); /* the three are not free then */
    assert_int_equal(n_free, 1);
    free(other.parts);
    other.span.from_us = 2 * HOUR;
    assert_true(bookings_choose(&all, &cl, CLASSES_ANY, 4, &other, &n_free));
    free(other.parts);
    assert_false(bookings_choose(&all, &cl, 2, 1, &other, &n_free)); /* none is of that class */
    free(other.parts);
    nodes[1].drain = true;
    assert_false(bookings_choose(&all, &cl, CLASSES_ANY, 4, &other, &n_free));
    assert_int_equal(n_free, 2);
    free(other.parts);
    bookings_clear(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_booking_is_called_by_its_kind_and_number),
        cmocka_unit_test(numbers_are_never_given_twice_and_there_are_so_many),
        cmocka_unit_test(what_cannot_be_a_booking_is_refused),
        cmocka_unit_test(a_device_is_shut_while_its_maintenance_lasts),
        cmocka_unit_test(a_reservation_takes_idle_devices_side_by_side),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
