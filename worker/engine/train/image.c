#include "worker/engine/train/image.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parcel.h"
#include "worker/engine/kernels/kernels.h"

#define SIDE 256
#define THREADS_MAX 1024

extern char **environ;

/* The first product makes what the others reuse. */
static int multiply(const struct kern_ops *k, struct kern_stream *s, enum kern_type type, struct merr *err)
{
    struct kern_gemm g = {.type = type, .m = SIDE, .n = SIDE, .k = SIDE, .lda = SIDE, .ldb = SIDE, .ldc = SIDE};
    size_t n = (size_t)SIDE * SIDE;
    float *memory;
    int r = k->mem_alloc(s, 3 * n * sizeof(float), (void **)&memory, err);

    if (r < 0)
        return r;
    g.a = memory;
    g.b = memory + n;
    g.c = memory + 2 * n;
    r = k->gemm(s, &g, err);
    if (r == 0)
        r = k->stream_sync(s, err);
    k->mem_free(s, memory);
    return r;
}

/* What fails here fails for the rank, too, which says so. */
static void get_ready(void)
{
    const char *kernels = getenv("MUSTER_KERNELS"), *threads = getenv("OMP_NUM_THREADS");
    struct kern_cfg cfg = {.threads = threads ? (int)strtol(threads, NULL, 10) : 1};
    const struct kern_ops *k;
    struct kern_stream *s;
    struct merr err;

    if (cfg.threads < 1 || cfg.threads > THREADS_MAX)
        cfg.threads = 1;
    if (kern_find(kernels ? kernels : "auto", &k, &err) < 0 || k->stream_new(&cfg, &s, &err) < 0)
        return;
    (void)(multiply(k, s, KERN_F32, &err) == 0 && multiply(k, s, KERN_BF16, &err) == 0);
    k->stream_free(s);
}

void image_wait(int *ret_argc, char ***ret_argv)
{
    struct parcel given;
    int null;

    get_ready();
    if (parcel_receive(STDIN_FILENO, &given) < 0 || given.n_args < 2)
        _exit(0); /* nobody needs it any more */
    null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(given.fds[0], STDOUT_FILENO) < 0 ||
        dup2(given.fds[0], STDERR_FILENO) < 0)
        _exit(EXIT_FAILURE);
    (void)close(null);
    (void)close(given.fds[0]);
    if (chdir(given.args[0]) < 0) {
        log_error("cannot enter the folder '%s'", given.args[0]);
        _exit(126);
    }
    environ = given.env;
    *ret_argc = given.n_args - 1;
    *ret_argv = given.args + 1;
}
