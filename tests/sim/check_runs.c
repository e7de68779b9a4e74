#include "tests/sim/check_runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/state.h"
#include "tests/sim/hostile.h"

#define SETTLE_US (60 * SECOND) /* for what went wrong before to be over: calls that were lost, say */
#define START_US (10 * SECOND)  /* for a rank to be started */

struct rank_seen {
    char node[JOB_NODE_MAX];
    bool heard; /* its agent has spoken of it */
};

struct run_seen { /* of a job, while it is live */
    uint32_t generation;
    uint64_t began_turn;
    int64_t began_us;
    enum job_intent intent;
    bool hung;               /* the server has said so */
    struct rank_seen *ranks; /* owned; NULL: none is live */
    size_t n;
};

struct node_seen {
    char name[JOB_NODE_MAX], incarnation[64];
    uint64_t sure_since; /* turn */
};

struct check_runs {
    struct world *w;
    const struct book *book;
    struct run_seen *jobs; /* by number */
    size_t n;
    struct node_seen *nodes;
    size_t n_nodes;
    uint64_t turn;
    int64_t calm_us; /* since when nothing goes wrong */
};

struct check_runs *check_runs_new(struct world *w, const struct book *book)
{
    struct check_runs *k = calloc(1, sizeof(*k));

    if (!k)
        abort();
    k->w = w;
    k->calm_us = INT64_MAX;
    k->book = book;
    return k;
}

void check_runs_free(struct check_runs *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->n; i++)
        free(k->jobs[i].ranks);
    free(k->jobs);
    free(k->nodes);
    free(k);
}

static struct node_seen *node_of(struct check_runs *k, const char *name)
{
    for (size_t i = 0; i < k->n_nodes; i++)
        if (strcmp(k->nodes[i].name, name) == 0)
            return &k->nodes[i];
    k->nodes = realloc(k->nodes, (k->n_nodes + 1) * sizeof(*k->nodes));
    if (!k->nodes)
        abort();
    k->nodes[k->n_nodes] = (struct node_seen){.sure_since = k->turn};
    memcpy(k->nodes[k->n_nodes].name, name, strlen(name) + 1);
    return &k->nodes[k->n_nodes++];
}

static void see_nodes(struct check_runs *k, const struct core *c)
{
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];
        struct node_seen *s = node_of(k, n->name);

        if (n->contact != NODE_READY || !n->registered || strcmp(n->incarnation, s->incarnation) != 0)
            s->sure_since = k->turn;
        memcpy(s->incarnation, n->incarnation, strlen(n->incarnation) + 1);
    }
}

/* Whether the rank's agent does not lie, and the server was never in doubt about its node while the run was live. */
static bool is_sure(struct check_runs *k, const struct core *c, const struct run_seen *s, size_t i)
{
    return strncmp(s->ranks[i].node, HOSTILE_NODE, strlen(HOSTILE_NODE)) != 0 &&
           cluster_node(&c->cluster, s->ranks[i].node) && node_of(k, s->ranks[i].node)->sure_since < s->began_turn;
}

static void check_over(struct check_runs *k, const struct core *c, uint64_t job, const struct run_seen *s,
                       const struct entry *e)
{
    bool by_ranks = e && s->intent == JOB_GO_ON && e->job.state == JOB_QUEUED;

    for (size_t i = 0; i < s->n; i++) {
        const struct book_rank *b = book_find(k->book, job, s->generation, (int)i);

        if (!is_sure(k, c, s, i))
            continue;
        if (b && b->alive && s->ranks[i].heard)
            world_broken(k->w, "the run of j%" PRIu64 "-g%u is over for the server, and its rank %zu on %s is alive",
                         job, s->generation, i, s->ranks[i].node);
        if (!b && by_ranks)
            world_broken(k->w, "the run of j%" PRIu64 "-g%u is over for the server, and its rank %zu never ran", job,
                         s->generation, i);
    }
}

/* A rank of which nothing is heard for long, though nothing goes wrong and nobody is on its device. */
static void check_start(struct check_runs *k, const struct core *c, const struct entry *e, const struct run_seen *s)
{
    int64_t now_us = world_now_us(k->w);

    if (k->calm_us == INT64_MAX || s->began_us < k->calm_us + SETTLE_US || now_us < s->began_us + START_US ||
        e->job.state != JOB_STARTING || e->job.intent != JOB_GO_ON)
        return;
    for (size_t i = 0; i < s->n; i++) {
        const struct slot *slot = cluster_slot(&c->cluster, &e->job.places[i]);

        if (!s->ranks[i].heard && is_sure(k, c, s, i) && slot && !slot->stale)
            world_broken(k->w, "rank %zu of j%" PRIu64 "-g%u was not started for %.0f s", i, e->job.id, s->generation,
                         (double)(now_us - s->began_us) / 1e6);
    }
}

/* The server says that a rank holds up the others. */
static void check_hang(struct check_runs *k, const struct entry *e, const struct run_seen *s)
{
    json_int_t rank = json_integer_value(json_object_get(e->job.outcome, "rank"));
    const struct book_rank *b = book_find(k->book, e->job.id, s->generation, (int)rank);

    for (size_t i = 0; i < s->n; i++) /* whose agents may say what they like */
        if (strncmp(s->ranks[i].node, HOSTILE_NODE, strlen(HOSTILE_NODE)) == 0)
            return;
    if (!b || b->hung_us == 0)
        world_broken(k->w, "rank %lld of j%" PRIu64 "-g%u is said to hold up the others, and never stood still",
                     (long long)rank, e->job.id, s->generation);
    world_note(k->w, "rank %lld of j%" PRIu64 "-g%u is found to stand still after %.2f s", (long long)rank, e->job.id,
               s->generation, b ? (double)(world_now_us(k->w) - b->hung_us) / 1e6 : 0);
}

void check_runs_calm(struct check_runs *k)
{
    if (k->calm_us == INT64_MAX)
        k->calm_us = world_now_us(k->w);
}

static void begin(struct check_runs *k, struct run_seen *s, const struct entry *e)
{
    *s = (struct run_seen){
        .generation = e->job.generation, .began_turn = k->turn, .began_us = world_now_us(k->w), .n = e->job.n_places};
    s->ranks = calloc(s->n + 1, sizeof(*s->ranks));
    if (!s->ranks)
        abort();
    for (size_t i = 0; i < s->n; i++)
        memcpy(s->ranks[i].node, e->job.places[i].node, sizeof(s->ranks[i].node));
}

/* Its agent has spoken of it: the end of one that was to stop before it was started is the server's own word. */
static bool is_told(const struct rank *r)
{
    return r->phase != RANK_NONE && !(r->phase == RANK_EXITED && r->exit.status < 0);
}

static void see_job(struct check_runs *k, const struct core *c, uint64_t job)
{
    const struct entry *e = table_find(&c->jobs, job);
    struct run_seen *s = &k->jobs[job];
    bool live = e && e->job.live;

    if (s->ranks && (!live || e->job.generation != s->generation)) {
        check_over(k, c, job, s, e);
        free(s->ranks);
        s->ranks = NULL;
    }
    if (!live)
        return;
    if (!s->ranks)
        begin(k, s, e);
    s->intent = e->job.intent;
    for (size_t i = 0; i < s->n; i++)
        s->ranks[i].heard = s->ranks[i].heard || is_told(&e->run.ranks[i]);
    check_start(k, c, e, s);
    if (e->run.hung && !s->hung)
        check_hang(k, e, s);
    s->hung = e->run.hung;
}

void check_runs_turn(struct check_runs *k, const struct core *c)
{
    if (c->jobs.next > k->n) {
        size_t n = c->jobs.next + 1024;

        k->jobs = realloc(k->jobs, n * sizeof(*k->jobs));
        if (!k->jobs)
            abort();
        memset(k->jobs + k->n, 0, (n - k->n) * sizeof(*k->jobs));
        k->n = n;
    }
    k->turn++;
    see_nodes(k, c);
    for (uint64_t job = 1; job < c->jobs.next; job++)
        see_job(k, c, job);
}
