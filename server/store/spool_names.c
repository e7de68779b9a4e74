#include "server/store/spool_names.h"

#include <stdio.h>

void spool_log_name(int rank, int generation, char ret[SPOOL_NAME_MAX])
{
    (void)snprintf(ret, SPOOL_NAME_MAX, "rank-%05d.g%d.log", rank, generation);
}

void spool_metrics_name(int generation, char ret[SPOOL_NAME_MAX])
{
    (void)snprintf(ret, SPOOL_NAME_MAX, "metrics.g%d.jsonl", generation);
}

bool spool_is_log(const char *name, int *ret_rank, int *ret_generation)
{
    int rank, generation, end = 0;

    if (sscanf(name, "rank-%5d.g%9d.log%n", &rank, &generation, &end) != 2 || end == 0 || name[end])
        return false;
    *ret_rank = rank;
    *ret_generation = generation;
    return true;
}

bool spool_is_metrics(const char *name, int *ret_generation)
{
    int generation, end = 0;

    if (sscanf(name, "metrics.g%9d.jsonl%n", &generation, &end) != 1 || end == 0 || name[end])
        return false;
    *ret_generation = generation;
    return true;
}
