/* bench comm - all-reduce between two ranks, by shared memory and by UCX, beside memcpy
 *
 * usage: comm [--quick]. One JSON object a line (docs: README, benchmarks). GB/s is the size of the vector over the
 * median time of a call; memcpy copies as many bytes in the same process just before.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/engine/comm/comm.h"

#define CALLS_MAX 400

static const struct way {
    const char *name, *transport;
    bool arena;
} ways[] = {{"shm arena", NULL, true}, {"shm staged", NULL, false}, {"ucx", "ucx", false}};

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static double median_s(int64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof(*ns), by_value);
    return (double)(ns[n / 2] > 0 ? ns[n / 2] : 1) * 1e-9;
}

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int measure(struct comm_group *g, const struct way *way, size_t bytes, int calls, float *x, char *y, bool prints,
                   struct merr *err)
{
    int64_t reduce_ns[CALLS_MAX] = {0}, copy_ns[CALLS_MAX] = {0};
    double reduce, copy;

    for (int k = 0; k < calls; k++) {
        int64_t t = now_ns();
        int r;

        memcpy(y, x, bytes);
        copy_ns[k] = now_ns() - t;
        r = comm_barrier(g, err);
        t = now_ns();
        if (r == 0)
            r = comm_all_reduce(g, x, bytes / sizeof(*x), COMM_F32, COMM_MAX, err);
        if (r < 0)
            return r;
        reduce_ns[k] = now_ns() - t;
    }
    reduce = (double)bytes / median_s(reduce_ns, calls) * 1e-9;
    copy = (double)bytes / median_s(copy_ns, calls) * 1e-9;
    if (prints)
        (void)printf("{\"bench\": \"comm\", \"metric\": \"all_reduce %s %zu KiB 2 ranks\", \"value\": %.3f, "
                     "\"unit\": \"GB/s\", \"reference\": \"memcpy %.3f GB/s\", \"ratio\": %.3f}\n",
                     way->name, bytes >> 10, reduce, copy, reduce / copy);
    if (prints)
        (void)printf("{\"bench\": \"comm\", \"metric\": \"fastest all_reduce %s %zu KiB 2 ranks\", \"value\": %.1f, "
                     "\"unit\": \"us\", \"reference\": \"memcpy %.1f us\", \"ratio\": %.3f}\n",
                     way->name, bytes >> 10, (double)reduce_ns[0] * 1e-3, (double)copy_ns[0] * 1e-3,
                     (double)copy_ns[0] / (double)reduce_ns[0]);
    (void)fflush(stdout);
    return 0;
}

static int rank_run(int rank, const struct way *way, const char *folder, bool quick, struct merr *err)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, 64 << 20};
    size_t most = quick ? sizes[1] : sizes[3];
    int node[2] = {0, 0}, both[2] = {0, 1}, r;
    struct comm_cfg cfg = {.rank = rank,
                           .size = 2,
                           .generation = 1,
                           .rendezvous = folder,
                           .node_of = node,
                           .shared_bytes = way->arena ? most : 0,
                           .timeout_us = 30000000,
                           .threads = 1,
                           .transport = way->transport};
    struct comm_world *w = NULL;
    struct comm_group *g;
    char *y = malloc(most);
    float *x = NULL;

    r = flight_private(&cfg.flight, err);
    if (r == 0)
        r = comm_world_open(&cfg, &w, err);
    if (r == 0) {
        x = way->arena ? comm_shared_alloc(w, most) : malloc(most);
        r = x && y ? comm_group_new(w, "dp", both, 2, &g, err) : merr_set(err, -ENOMEM, "no memory");
    }
    if (r == 0) {
        memset(x, 0, most);
        memset(y, 0, most);
    }
    for (size_t i = 0; r == 0 && i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= most; i++)
        r = measure(g, way, sizes[i], quick ? 3 : sizes[i] > 4 << 20 ? 9 : CALLS_MAX, x, y, rank == 0, err);
    comm_world_close(w);
    flight_close(cfg.flight);
    if (!way->arena)
        free(x);
    free(y);
    return r;
}

static int run_way(const struct way *way, bool quick)
{
    char folder[] = "/tmp/muster-bench-comm.XXXXXX";
    pid_t pid[2];
    int bad = 0;

    if (!mkdtemp(folder)) {
        perror("mkdtemp");
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            struct merr err = {""};

            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (rank_run(i, way, folder, quick, &err) == 0)
                exit(0);
            (void)fprintf(stderr, "bench comm: rank %d, %s: %s\n", i, way->name, err.text);
            exit(1);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status = 1;

        bad |= pid[i] < 0 || waitpid(pid[i], &status, 0) < 0 || status != 0;
    }
    (void)io_remove_tree(folder, NULL);
    return bad;
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    int bad = 0;

    if (argc > 1 && !quick) {
        (void)fprintf(stderr, "usage: comm [--quick]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        bad |= run_way(&ways[i], quick);
    return bad;
}
