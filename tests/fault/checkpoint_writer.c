/* checkpoint_writer - writes checkpoints as fast as it can until it is killed, or checks what it left
 *
 *   checkpoint_writer write DIR GENERATION CODEC   goes on from the newest; prints each step once committed
 *   checkpoint_writer check DIR                    loads and verifies the newest; prints its step (0: none)
 *   checkpoint_writer kill DIR CODEC FROM EVERY    for n = FROM, FROM + EVERY, ..: a writer of one more step is killed
 *                                                  in place of its n-th system call, until n passes the last; prints n
 *   checkpoint_writer fail DIR CODEC FROM EVERY ERRNO   the same with a call that fails; the writer must go on after
 *   checkpoint_writer slow DIR                     a disk too slow: what does not fit is refused, the rest is committed
 *   checkpoint_writer no-uring DIR                 a kernel that forbids io_uring
 *   checkpoint_writer fill DIR CODEC               fills the disk; what was saved stays, and later ones are saved
 *
 * CODEC archive: none, and older checkpoints are archived: by a thread beside write, after the step of kill and fail.
 * Two ranks, each with its own writer; the value of each element follows from the step.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mio.h"
#include "tests/fault/checkpoint_faults.h"

#define RANKS 2
#define TENSORS 3
#define ROWS 1200
#define COLUMNS 240
#define CUT 100 /* the first row of rank 1, whose tensors have two chunks each */
#define POOL_BYTES (4u << 20)

static float memory[TENSORS][ROWS * COLUMNS];
static struct mck_buffer buffer[RANKS][TENSORS];

static void make_buffers(void)
{
    static const char *const names[TENSORS] = {"a.weight", "b.weight", "c.weight"};

    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < TENSORS; i++) {
            uint64_t from = r ? CUT : 0, to = r ? ROWS : CUT;

            buffer[r][i] = (struct mck_buffer){.name = names[i], .role = (enum mck_role)(i ? i + 1 : 0), .ndim = 2,
                                               .shape = {ROWS, COLUMNS}, .off = {from, 0}, .len = {to - from, COLUMNS},
                                               .data = &memory[i][from * COLUMNS], .bucket = i};
        }
}

static float value(uint64_t step, int tensor, int i)
{
    return (float)((step * 131 + (uint64_t)tensor * 31 + (uint64_t)i * 7) % 100003) * 0.001f;
}

static void fill(uint64_t step)
{
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < ROWS * COLUMNS; i++)
            memory[t][i] = value(step, t, i);
}

static int check(const char *dir, uint64_t *ret_step, struct merr *err)
{
    struct mck *c = NULL;
    int r = mck_latest(dir, ret_step, NULL, err);

    if (r <= 0) {
        *ret_step = 0;
        return r;
    }
    r = mck_open(dir, *ret_step, &c, err);
    if (!r)
        r = mck_verify(c, NULL, err);
    for (int k = 0; k < RANKS && !r; k++)
        r = mck_load(c, buffer[k], TENSORS, err);
    mck_free(c);
    for (int t = 0; t < TENSORS && !r; t++)
        for (int i = 0; i < ROWS * COLUMNS && !r; i++)
            if (memory[t][i] != value(*ret_step, t, i))
                r = merr_set(err, -1, "step %" PRIu64 ": element %d of tensor %d is of another step", *ret_step, i, t);
    return r;
}

static int write_step(struct mck_writer *const w[RANKS], uint64_t step, struct merr *err)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
    struct mck_done done;
    int r = 0;

    fill(step);
    for (int k = 0; k < RANKS && !r; k++)
        r = mck_begin(w[k], step, kv, err);
    for (int k = RANKS; k-- > 0 && !r;)
        r = mck_drain(w[k], clock_mono_us() + 30000000, err);
    while (!r && mck_next_done(w[0], &done)) {
        r = done.code;
        *err = done.err;
    }
    while (mck_next_done(w[1], &done))
        ;
    json_decref(kv);
    return r;
}

static bool archives(const char *codec)
{
    return strcmp(codec, "archive") == 0;
}

static int open_writers(const char *dir, uint64_t generation, const char *codec, struct mck_writer *ret[RANKS],
                        struct merr *err)
{
    for (int k = 0; k < RANKS; k++) {
        struct mck_cfg cfg = {.dir = dir, .rank = k, .size = RANKS, .generation = generation,
                              .codec = archives(codec) ? "none" : codec, .keep = 2, .timeout_us = 10000000,
                              .pool_bytes = POOL_BYTES,
                              .archive = archives(codec) && generation > 1 ? "plane" : NULL};
        int r = mck_writer_new(&cfg, buffer[k], TENSORS, &ret[k], err);

        if (r) {
            while (k-- > 0)
                mck_writer_free(ret[k]);
            return r;
        }
    }
    return 0;
}

static int write_on(const char *dir, uint64_t generation, const char *codec, struct merr *err)
{
    struct mck_writer *w[RANKS];
    uint64_t step;
    int r = check(dir, &step, err);

    if (!r)
        r = open_writers(dir, generation, codec, w, err);
    while (!r) {
        r = write_step(w, ++step, err);
        if (!r && (printf("%" PRIu64 "\n", step) < 0 || fflush(stdout)))
            r = -1;
    }
    return r;
}

/* Write one step in a process of its own that has a fault. Exit status: 0 no fault was met, 2 met and survived. */
static int write_once(const char *dir, uint64_t step, const char *codec, int n, int error, struct merr *err)
{
    struct mck_writer *w[RANKS];
    int r;

    (void)alarm(60);
    faults_arm(n, error);
    r = open_writers(dir, 1, codec, w, err);
    if (!r) {
        r = write_step(w, step, err);
        for (int k = RANKS; k-- > 0;) /* all of rank 1's answers before rank 0 waits no more */
            (void)mck_drain(w[k], clock_mono_us() + 30000000, NULL);
        if (r && faults_hit() && err->text[0])
            r = write_step(w, step + 1, err); /* training goes on and saves again */
        for (int k = 0; k < RANKS; k++)
            mck_writer_free(w[k]);
        if (!r && archives(codec)) {
            int steps;

            r = mck_archive(dir, "plane", NULL, &steps, err);
            r = r && faults_hit() ? 0 : r;
        }
    } else if (faults_hit() && err->text[0]) {
        r = 0;
    }
    return r ? r : faults_hit() ? 2 : 0;
}

static bool is_archived(const struct mck *c)
{
    json_t *doc = mck_inspect(c);
    bool yes = json_is_true(json_object_get(json_array_get(json_object_get(doc, "files"), 0), "archived"));

    json_decref(doc);
    return yes;
}

/* At least two whole checkpoints, with codec archive one of them archived unless the last writer was stopped? */
static int check_two(const char *dir, const char *codec, struct merr *err)
{
    bool archived = false;
    json_t *list = NULL;
    size_t n = 0, i;
    const json_t *one;
    int r = mck_list(dir, &list, err);

    json_array_foreach(list, i, one) {
        struct mck *c = NULL;

        r = r ? r : mck_open_path(json_string_value(json_object_get(one, "path")), &c, err);
        if (!r && mck_verify(c, NULL, err) == 0)
            n++;
        archived |= c && is_archived(c);
        mck_free(c);
    }
    json_decref(list);
    if (!r && archives(codec) && !archived)
        return merr_set(err, -1, "none is archived");
    return r || n >= 2 ? r : merr_set(err, -1, "only %zu whole checkpoints are left", n);
}

static int in_child(const char *dir, uint64_t step, const char *codec, int n, int error, struct merr *err)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        struct merr why = {.text = ""};
        int r = write_once(dir, step, codec, n, error, &why);

        if (r < 0)
            (void)fprintf(stderr, "point %d: %s\n", n, why.text);
        _exit(r < 0 ? 1 : r);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return merr_errno(err, -errno, "cannot run a writer");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !error)
        return 2;
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 1)
        return merr_set(err, -1, "the writer with a fault at point %d ended with status %d", n, status);
    return WEXITSTATUS(status);
}

static int sweep(const char *dir, const char *codec, int from, int every, int error, struct merr *err)
{
    uint64_t step = 0, found;
    int n = from, r = 0;

    for (int i = 1; i <= 2 && !r; i++)
        r = in_child(dir, (uint64_t)i, codec, 0, 0, err);
    if (!r)
        r = check(dir, &step, err);
    for (; r >= 0; n += every) {
        int ended = in_child(dir, step + 1, codec, n, error, err);

        r = ended < 0 ? ended : check(dir, &found, err);
        if (r >= 0 && (found < step || found > step + (error ? 2 : 1)))
            r = merr_set(err, -1, "point %d: step %" PRIu64 " is the newest after %" PRIu64, n, found, step);
        if (r >= 0)
            r = check_two(dir, ended == 0 ? codec : "none", err);
        if (r < 0)
            return merr_prefix(err, r, "point %d", n);
        step = found;
        if (ended == 0)
            break;
    }
    if (r >= 0)
        (void)printf("%d\n", n);
    return r;
}

/* Requests come faster than the disk takes them. */
static int slow(const char *dir, struct merr *err)
{
    struct mck_writer *w[RANKS];
    int refused = 0, saved = 0, r = open_writers(dir, 1, "none", w, err);
    struct mck_done done;
    uint64_t step;

    if (r)
        return r;
    faults_slow(100);
    fill(1);
    for (step = 1; step <= 6 && !r; step++) {
        json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);

        for (int k = 0; k < RANKS && !r; k++) {
            r = mck_begin(w[k], step, kv, err);
            if (r == -EBUSY)
                refused++, r = 0;
        }
        for (int k = 0; k < RANKS && !r; k++)
            r = mck_gate(w[k], -1, err);
        json_decref(kv);
    }
    for (int k = RANKS; k-- > 0 && !r;)
        r = mck_drain(w[k], clock_mono_us() + 30000000, err);
    while (mck_next_done(w[0], &done))
        saved += done.code == 0;
    for (int k = 0; k < RANKS; k++)
        mck_writer_free(w[k]);
    if (!r && (refused != 2 * (6 - 2) || saved != 2))
        r = merr_set(err, -1, "%d refused, %d saved", refused, saved);
    return r;
}

static int forbid_uring(struct merr *err)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return merr_errno(err, -errno, "cannot forbid io_uring");
    return 0;
}

static int no_uring(const char *dir, struct merr *err)
{
    struct merr refused = {.text = ""};
    struct mck_writer *w[RANKS];
    struct mio *m = NULL;
    int r = forbid_uring(err);

    if (!r && (mio_open("uring", NULL, 0, &m, &refused) == 0 || !strstr(refused.text, "MUSTER_IO=threads")))
        return merr_set(err, -1, "a forced io_uring: '%s'", refused.text);
    if (!r)
        r = mio_open(NULL, NULL, 0, &m, err);
    if (!r && strcmp(mio_way(m), "threads") != 0)
        r = merr_set(err, -1, "the way is '%s'", mio_way(m));
    mio_close(m);
    if (!r)
        r = open_writers(dir, 1, "none", w, err);
    for (uint64_t step = 1; step <= 3 && !r; step++)
        r = write_step(w, step, err);
    return r ? r : check_two(dir, "none", err);
}

/* Take all room that is left in dir. */
static int take_room(const char *path, struct merr *err)
{
    static char block[1 << 16];
    FILE *f = fopen(path, "we");
    bool full = false;

    if (!f)
        return merr_errno(err, -errno, "cannot make '%s'", path);
    setbuf(f, NULL);
    for (int i = 0; i < 1 << 12 && !full; i++) /* at most 256 MiB: it is a small file system or none of ours */
        full = fwrite(block, 1, sizeof(block), f) != sizeof(block);
    (void)fclose(f);
    return full ? 0 : merr_set(err, -EFBIG, "the file system of '%s' is too large to fill", path);
}

static int fill_disk(const char *dir, const char *codec, struct merr *err)
{
    struct mck_writer *w[RANKS];
    struct merr full = {.text = ""};
    char ballast[4096];
    uint64_t step, found = 0;
    int r = open_writers(dir, 1, codec, w, err);

    (void)snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
    for (step = 1; step <= 2 && !r; step++)
        r = write_step(w, step, err);
    if (!r)
        r = take_room(ballast, err);
    if (!r && (write_step(w, step, &full) >= 0 || !strstr(full.text, "space")))
        return merr_set(err, -1, "a full disk: '%s'", full.text);
    if (!r)
        r = check(dir, &found, err);
    if (!r && found != 2)
        return merr_set(err, -1, "step %" PRIu64 " is the newest after step 3 failed", found);
    (void)unlink(ballast);
    return r ? r : write_step(w, step + 1, err);
}

static int run(int argc, char **argv, uint64_t *ret_step, struct merr *err)
{
    const char *what = argc > 2 ? argv[1] : "";

    if (argc == 5 && !strcmp(what, "write"))
        return write_on(argv[2], strtoull(argv[3], NULL, 10), argv[4], err);
    if (argc == 3 && !strcmp(what, "check"))
        return check(argv[2], ret_step, err);
    if ((argc == 6 && !strcmp(what, "kill")) || (argc == 7 && !strcmp(what, "fail")))
        return sweep(argv[2], argv[3], (int)strtol(argv[4], NULL, 10), (int)strtol(argv[5], NULL, 10),
                     argc == 7 ? (int)strtol(argv[6], NULL, 10) : 0, err);
    if (argc == 3 && !strcmp(what, "slow"))
        return slow(argv[2], err);
    if (argc == 3 && !strcmp(what, "no-uring"))
        return no_uring(argv[2], err);
    if (argc == 4 && !strcmp(what, "fill"))
        return fill_disk(argv[2], argv[3], err);
    return merr_set(err, -EINVAL, "bad arguments: see the head of tests/fault/checkpoint_writer.c");
}

int main(int argc, char **argv)
{
    struct merr err = {.text = ""};
    uint64_t step = 0;
    int r;

    make_buffers();
    r = run(argc, argv, &step, &err);
    if (r)
        (void)fprintf(stderr, "checkpoint_writer: %s\n", err.text);
    else if (argc == 3)
        (void)printf("%" PRIu64 "\n", step);
    return r ? 1 : 0;
}
