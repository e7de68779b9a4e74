/* Links between nodes: who meets whom, and what comes out on both sides. */
#include "tests/unit/test.h"

#include "tests/unit/worker/test_comm_team.inc"

#include "worker/engine/comm/pairs.h"

#define MOST 40

static void each_meets_each_once_and_one_at_a_time(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        int met[MOST][MOST] = {{0}};

        for (int k = 0; k < pairs_rounds(n); k++)
            for (int i = 0; i < n; i++) {
                int other = pairs_partner(n, i, k);

                if (other < -1 || other >= n || other == i || (other >= 0 && pairs_partner(n, other, k) != i))
                    fail_msg("%d members, round %d: %d meets %d", n, k, i, other);
                if (other >= 0)
                    met[i][other]++;
            }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                if (met[i][j] != (i != j))
                    fail_msg("%d members: %d meets %d %d times", n, i, j, met[i][j]);
    }
}

/* Everyone's numbers, side by side: those of two members for each other are the same. */
static int measure(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "nodes");
    double mine[TEAM_MAX], all[TEAM_MAX * TEAM_MAX];
    int n = comm_size(w);
    int64_t began = clock_mono_us();

    (void)t;
    NEED(g);
    GOOD(pairs_measure(g, mine, &err));
    NEED(clock_mono_us() - began < 10 * PAIRS_ALL_US);
    NEED(comm_bytes_sent(g) < (uint64_t)(n - 1) * PAIRS_BYTES);
    GOOD(comm_all_gather(g, mine, (size_t)n * sizeof(*mine), all, &err));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            NEED(all[i * n + j] == all[j * n + i] && (all[i * n + j] > 0) == (i != j));
    return 0;
}

static void both_sides_of_a_link_tell_the_same(void **state)
{
    (void)state;
    team_run(2, TEAM_MIXED, 0, measure, NULL);
    team_run(3, TEAM_UCX, 0, measure, NULL);
    team_run(4, TEAM_UCX, 0, measure, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_meets_each_once_and_one_at_a_time),
        cmocka_unit_test(both_sides_of_a_link_tell_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
