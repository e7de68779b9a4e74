#include "tests/sim/shrink.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool shrink_try(const struct cluster_wish *wish, const struct faults_list *f, char *ret_why, size_t size)
{
    struct cluster_found found;
    ssize_t n, got = 0;
    int ends[2], status;
    pid_t child;

    if (pipe(ends) < 0)
        abort();
    child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        cluster_run(wish, f, &found);
        (void)!write(ends[1], found.broken, strlen(found.broken));
        _exit(found.broken[0] ? 1 : 0);
    }
    (void)close(ends[1]);
    while ((n = read(ends[0], ret_why + got, size - 1 - (size_t)got)) > 0)
        got += n;
    ret_why[got] = '\0';
    (void)close(ends[0]);
    if (waitpid(child, &status, 0) < 0)
        abort();
    if (WIFSIGNALED(status))
        (void)snprintf(ret_why, size, "the run ends by signal %d", WTERMSIG(status));
    return status != 0;
}

/* Without the faults from lo to before hi, does it still fail? Then they are gone for good. */
static bool leave_out(const struct cluster_wish *wish, struct faults_list *f, size_t lo, size_t hi)
{
    struct faults_list less = {.v = malloc((f->n + 1) * sizeof(*less.v)), .n = f->n - (hi - lo)};
    char why[1024];
    bool fails;

    if (!less.v)
        abort();
    memcpy(less.v, f->v, lo * sizeof(*less.v));
    memcpy(less.v + lo, f->v + hi, (f->n - hi) * sizeof(*less.v));
    fails = shrink_try(wish, &less, why, sizeof(why));
    if (fails) {
        faults_list_clear(f);
        *f = less;
    } else {
        faults_list_clear(&less);
    }
    return fails;
}

void shrink(const struct cluster_wish *wish, struct faults_list *f, int tries)
{
    for (size_t chunk = (f->n + 1) / 2; chunk > 0 && f->n > 0 && tries > 0;) {
        bool smaller = false;

        for (size_t lo = 0; lo < f->n && tries > 0;) {
            size_t hi = lo + chunk < f->n ? lo + chunk : f->n;

            tries--;
            if (leave_out(wish, f, lo, hi))
                smaller = true;
            else
                lo = hi;
        }
        if (chunk == 1 && !smaller)
            break;
        chunk = chunk > 1 ? chunk / 2 : 1;
    }
}
