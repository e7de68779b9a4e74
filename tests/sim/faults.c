#include "tests/sim/faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/world.h"

static const struct {
    const char *name;
    int weight;                /* how often, beside the others */
    bool of_node;              /* or of the server, or of all */
    int64_t least_us, most_us; /* measure */
} kinds[FAULT_KINDS] = {
    [FAULT_SERVER_KILL] = {"server-kill", 6, false, SECOND / 10, 8 * SECOND},
    [FAULT_COMMIT_LOST] = {"commit-lost", 6, false, SECOND / 10, 5 * SECOND},
    [FAULT_ACK_LOST] = {"ack-lost", 6, false, SECOND / 10, 5 * SECOND},
    [FAULT_SERVER_HOLD] = {"server-hold", 4, false, SECOND / 10, 30 * SECOND},
    [FAULT_STORE_AWAY] = {"store-away", 4, false, SECOND / 10, 20 * SECOND},
    [FAULT_STORE_FULL] = {"store-full", 2, false, SECOND / 10, 10 * SECOND},
    [FAULT_STORE_BREAK] = {"store-break", 4, false, 0, 0},
    [FAULT_SERVER_CLOCK] = {"server-clock", 1, false, -3600 * SECOND, 3600 * SECOND},
    [FAULT_AGENT_KILL] = {"agent-kill", 14, true, SECOND / 10, 20 * SECOND},
    [FAULT_AGENT_CRASH] = {"agent-crash", 10, true, SECOND / 10, 20 * SECOND},
    [FAULT_AGENT_HOLD] = {"agent-hold", 8, true, SECOND, 60 * SECOND},
    [FAULT_REBOOT] = {"reboot", 6, true, SECOND, 60 * SECOND},
    [FAULT_WIPE] = {"wipe", 2, true, SECOND, 60 * SECOND},
    [FAULT_OFF] = {"off", 4, true, SECOND, 120 * SECOND},
    [FAULT_CUT] = {"cut", 10, true, SECOND, 90 * SECOND},
    [FAULT_NETWORK] = {"network", 4, false, SECOND, 30 * SECOND},
    [FAULT_DISK_FULL] = {"disk-full", 4, true, SECOND, 30 * SECOND},
    [FAULT_NODE_CLOCK] = {"node-clock", 2, true, -3600 * SECOND, 3600 * SECOND},
    [FAULT_RANK_KILL] = {"rank-kill", 12, true, 9 * SECOND, 11 * SECOND},
    [FAULT_SHIM_KILL] = {"shim-kill", 6, true, 0, 0},
    [FAULT_RANK_HANG] = {"rank-hang", 3, true, 0, 0},
    [FAULT_DRAIN] = {"drain", 6, true, SECOND, 90 * SECOND},
};

const char *fault_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

static int kind_by_name(const char *name, size_t len)
{
    for (int k = 0; k < FAULT_KINDS; k++)
        if (strlen(kinds[k].name) == len && memcmp(kinds[k].name, name, len) == 0)
            return k;
    return -1;
}

int faults_mask(const char *text, uint32_t *ret, const char **ret_bad)
{
    uint32_t mask = 0;

    if (strcmp(text, "all") == 0) {
        *ret = (UINT32_C(1) << FAULT_KINDS) - 1;
        return 0;
    }
    for (const char *p = strcmp(text, "none") == 0 ? "" : text; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        int k = kind_by_name(p, len);

        if (k < 0) {
            *ret_bad = p;
            return -EINVAL;
        }
        mask |= UINT32_C(1) << k;
        p += len;
    }
    *ret = mask;
    return 0;
}

static enum fault_kind draw_kind(struct world *w, uint32_t mask, int weights)
{
    int at = (int)world_draw(w, (uint64_t)weights);

    for (int k = 0; k < FAULT_KINDS; k++)
        if (mask >> k & 1 && (at -= kinds[k].weight) < 0)
            return (enum fault_kind)k;
    abort();
}

static int by_time(const void *a, const void *b)
{
    const struct fault *x = a, *y = b;

    return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

void faults_draw(uint64_t seed, uint32_t mask, size_t n, int64_t over_us, int nodes, struct faults_list *ret)
{
    struct world *w = world_new(seed ^ UINT64_C(0xFA17)); /* chance of its own: the rest does not hang on the faults */
    int weights = 0;

    for (int k = 0; k < FAULT_KINDS; k++)
        weights += mask >> k & 1 ? kinds[k].weight : 0;
    *ret = (struct faults_list){.v = calloc(n ? n : 1, sizeof(*ret->v)), .n = weights ? n : 0};
    if (!ret->v)
        abort();
    for (size_t i = 0; i < ret->n; i++) {
        enum fault_kind k = draw_kind(w, mask, weights);

        ret->v[i] = (struct fault){.at_us = world_between(w, SECOND, over_us),
                                   .kind = k,
                                   .node = kinds[k].of_node ? (int)world_draw(w, (uint64_t)nodes) : -1,
                                   .measure_us = world_between(w, kinds[k].least_us, kinds[k].most_us)};
    }
    qsort(ret->v, ret->n, sizeof(*ret->v), by_time);
    world_free(w);
}

int faults_read(const char *path, struct faults_list *ret, size_t *ret_line)
{
    FILE *f = fopen(path, "re");
    char line[256], name[32];
    struct faults_list list = {NULL, 0};
    int code = f ? 0 : -errno;

    for (*ret_line = 1; code == 0 && fgets(line, sizeof(line), f); ++*ret_line) {
        double at, measure;
        int node, k;

        if (line[0] == '#' || line[0] == '\n')
            continue;
        k = sscanf(line, "%lf %31s %d %lf", &at, name, &node, &measure) == 4 ? kind_by_name(name, strlen(name)) : -1;
        list.v = k < 0 ? list.v : realloc(list.v, (list.n + 1) * sizeof(*list.v));
        if (k < 0)
            code = -EINVAL;
        else if (!list.v)
            abort();
        else
            list.v[list.n++] = (struct fault){(int64_t)(at * 1e6 + 0.5), (enum fault_kind)k, node,
                                              (int64_t)(measure * 1e6 + (measure < 0 ? -0.5 : 0.5))};
    }
    if (f)
        (void)fclose(f);
    if (code < 0)
        faults_list_clear(&list);
    else
        *ret = list;
    return code;
}

void faults_print(const struct faults_list *f, int fd)
{
    for (size_t i = 0; i < f->n; i++)
        dprintf(fd, "%.6f %s %d %.6f\n", (double)f->v[i].at_us / 1e6, kinds[f->v[i].kind].name, f->v[i].node,
                (double)f->v[i].measure_us / 1e6);
}

void faults_list_clear(struct faults_list *f)
{
    free(f->v);
    *f = (struct faults_list){NULL, 0};
}
