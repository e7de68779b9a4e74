/* A program of one's own under Muster, by its library: it logs, says that it lives, saves when it is asked to, stops
 * when it is told to, and goes on where it was.
 *
 *     cc -o program program.c -I "$PREFIX/include" "$PREFIX/lib/muster/libmuster.so.1" -Wl,-rpath,"$PREFIX/lib/muster"
 *     muster submit --devices 1 -- ./program 1000
 */
#include <muster.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static char path[4096];

/* The step that an earlier run has saved; 0: there is none. */
static long load(void)
{
    FILE *f = fopen(path, "r");
    long step = 0;

    if (f && fscanf(f, "%ld", &step) != 1)
        step = 0;
    if (f)
        fclose(f);
    return step;
}

static int save(muster *m, long step)
{
    char temp[4200], event[256];
    FILE *f;

    muster_section_begin(m, "save", 60); /* no step for up to a minute is no fault here */
    snprintf(temp, sizeof(temp), "%s.new", path);
    f = fopen(temp, "w");
    if (!f || fprintf(f, "%ld\n", step) < 0 || fclose(f) != 0 || rename(temp, path) < 0)
        return -1;
    muster_section_end(m);
    snprintf(event, sizeof(event), "{\"type\":\"checkpoint\",\"step\":%ld}", step);
    return muster_event(m, event, strlen(event));
}

static int end(muster *m, const char *outcome, long step, const char *message, int status)
{
    muster_finish(m, outcome, step, message);
    muster_close(m);
    return status;
}

int main(int argc, char **argv)
{
    long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100, step;
    const char *dir = getenv("MUSTER_CHECKPOINT_DIR");
    struct muster_order order = {.size = sizeof(order)};
    uint64_t seen = 0;
    muster *m;

    if (muster_open(NULL, &m) < 0) {
        fprintf(stderr, "%s\n", muster_last_error());
        return 70;
    }
    mkdir(dir ? dir : ".", 0750);
    snprintf(path, sizeof(path), "%s/at", dir ? dir : ".");
    signal(SIGTERM, SIG_IGN); /* the order says more */
    step = load();
    printf("begins at step %ld\n", step);
    fflush(stdout);
    while (step < steps) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* here it would train */
        step++;
        muster_step(m, step);
        muster_metrics(m, step, (const char *[]){"loss"}, (double[]){1.0 / (double)step}, 1);
        muster_order_get(m, &order);
        if (order.seq == seen)
            continue;
        seen = order.seq;
        if (order.order == MUSTER_ABORT)
            return end(m, "failed/system", step, "told to give up", 75);
        if (order.order != MUSTER_SAVE && order.order != MUSTER_STOP)
            continue;
        if (save(m, step) < 0)
            return end(m, "failed/node", step, "cannot save", 74);
        muster_ack(m, order.seq, step, order.order == MUSTER_SAVE ? "saved" : "stopping");
        if (order.order == MUSTER_STOP)
            return end(m, "stopped", step, NULL, 76);
    }
    return end(m, "done", steps, NULL, 0);
}
