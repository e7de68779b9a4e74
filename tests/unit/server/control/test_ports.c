/* A port for each run, of as many as there are. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "server/control/ports.h"
#include "server/control/state.h"

static struct job next_run(struct core *c, uint64_t id)
{
    struct job j = {.id = id, .generation = 1};

    j.master_port = ports_choose(c, &j);
    assert_in_range(j.master_port, 29500, 29500 + STATE_PORTS - 1);
    ports_take(c, &j);
    return j;
}

static void runs_have_ports_of_their_own_while_there_are_some(void **state)
{
    struct core *c = calloc(1, sizeof(*c));
    int shared = 0;

    (void)state;
    for (uint64_t id = 1; id <= STATE_PORTS / 2; id++)
        (void)next_run(c, id);
    for (size_t i = 0; i < STATE_PORTS; i++)
        shared += c->dispatch.ports[i] > 1;
    assert_int_equal(shared, 0);
    for (uint64_t id = 1; id <= 3 * STATE_PORTS; id++) /* and then those that fewest have */
        (void)next_run(c, id);
    for (size_t i = 0; i < STATE_PORTS; i++)
        assert_true(c->dispatch.ports[i] <= 8);
    free(c);
}

static void a_port_that_a_run_leaves_is_free_again(void **state)
{
    struct core *c = calloc(1, sizeof(*c));
    struct job j = next_run(c, 7), other;

    (void)state;
    other = next_run(c, 7);
    assert_int_not_equal(other.master_port, j.master_port);
    ports_leave(c, &j);
    assert_int_equal(ports_choose(c, &j), j.master_port);
    ports_leave(c, &j); /* twice does no harm */
    ports_take(c, &j);
    assert_int_not_equal(ports_choose(c, &j), j.master_port);
    free(c);
}

/* As a job says that came from the store of another version. */
static void a_port_that_is_none_of_ours_is_left_alone(void **state)
{
    static const int ports[] = {0, -1, 29499, 29500 + STATE_PORTS, INT32_MAX};
    struct core *c = calloc(1, sizeof(*c));

    (void)state;
    for (size_t i = 0; i < COUNT(ports); i++) {
        ports_take(c, &(struct job){.master_port = ports[i]});
        ports_leave(c, &(struct job){.master_port = ports[i]});
    }
    for (size_t i = 0; i < STATE_PORTS; i++)
        assert_int_equal(c->dispatch.ports[i], 0);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_have_ports_of_their_own_while_there_are_some),
        cmocka_unit_test(a_port_that_a_run_leaves_is_free_again),
        cmocka_unit_test(a_port_that_is_none_of_ours_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
