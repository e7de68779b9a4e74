/* Links between a run's nodes are measured once one of its ranks was asked to, and told once for each pair. */
#include "tests/unit/test.h"

#include <jansson.h>

#include "base/buf.h"
#include "tests/unit/worker/test_comm_team.inc"
#include "worker/engine/train/links.h"

struct play {
    int node_of[3];
    int asked;   /* the rank whose agent was asked for it; -1: nobody */
    int told[3]; /* how many links each rank tells of */
};

/* What a rank has told of: the number of links in its events, -1: what cannot be. */
static int links_told(const char *folder, int rank)
{
    BUF_CLEAR_AUTO struct buf text;
    char path[256];
    int n = 0;

    (void)snprintf(path, sizeof(path), "%s/events.jsonl", folder);
    buf_init(&text, 1 << 16);
    if (io_read_file(path, &text, NULL) < 0 || text.len == 0)
        return 0;
    for (char *rest = NULL, *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_auto_t *event = json_loads(line, 0, NULL);
        json_t *one;
        size_t i;

        if (strcmp(json_string_value(json_object_get(event, "type")), "links") != 0)
            return -1;
        json_array_foreach (json_object_get(event, "to"), i, one) {
            if (json_integer_value(json_object_get(one, "rank")) <= rank ||
                json_integer_value(json_object_get(one, "bytes_per_s")) <= 0)
                return -1;
            n++;
        }
    }
    return n;
}

static int part(struct team *t, struct comm_world *w)
{
    const struct play *p = t->arg;
    int me = comm_rank(w), node_of[3] = {p->node_of[0], p->node_of[1], p->node_of[2]};
    struct rank rank = {.world = w, .all = team_all(w, "all")};
    char own[128];

    (void)snprintf(own, sizeof(own), "%s/%d", t->folder, me);
    GOOD(io_mkdirs(own, 0700, &err));
    rank.run = (struct run){.world = t->n, .rank = me, .node_of = node_of, .measure_links = me == p->asked};
    rank.run.mesh.rank = me;
    rank.mesh = &rank.run.mesh;
    NEED(rank.all);
    GOOD(report_open(own, own, me, &rank.report, &err));
    GOOD(links_measure(&rank, &err));
    report_free(rank.report);
    NEED(links_told(own, me) == p->told[me]);
    return 0;
}

static void the_lowest_rank_of_each_node_tells_of_those_after_it(void **state)
{
    static const struct play table[] = {
        {{0, 1, 2}, 0, {2, 1, 0}},
        {{0, 1, 0}, 2, {1, 0, 0}}, /* asked of one that leads no node: all hear of it */
        {{0, 1, 2}, -1, {0}},
        {{0, 0, 0}, 1, {0}}, /* one node has no link */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        team_run(3, TEAM_UCX, 0, part, &table[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_lowest_rank_of_each_node_tells_of_those_after_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
