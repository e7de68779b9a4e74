/* checkpoint_writer - writes checkpoints as fast as it can until it is killed, or checks what it left
 *
 *   checkpoint_writer write DIR GENERATION CODEC   goes on from the newest; prints each step once committed
 *   checkpoint_writer check DIR                    loads and verifies the newest; prints its step (0: none)
 *   checkpoint_writer kill DIR CODEC FROM EVERY    for n = FROM, FROM + EVERY, ..: a writer of one more step is killed
 *                                                  in place of its n-th system call, until n passes the last; prints n
 *   checkpoint_writer fail DIR CODEC FROM EVERY ERRNO   the same with a call that fails; the writer must go on after
 *   checkpoint_writer slow DIR                     a disk too slow: what does not fit is refused, the rest is committed
 *   checkpoint_writer stuck DIR                    a disk that takes nothing for a time: training goes on
 *   checkpoint_writer no-uring DIR                 a kernel that forbids io_uring
 *   checkpoint_writer ring DIR                     an io_uring that fails for a time: one checkpoint is lost, no more
 *   checkpoint_writer no-direct DIR                a file system without O_DIRECT
 *   checkpoint_writer fill DIR CODEC               fills the disk; what was saved stays, and later ones are saved
 *   checkpoint_writer crowd DIR CODEC              on a disk with space for six: the oldest go, down to two and what is
 *                                                  kept for good; later ones are saved until that does not suffice
 *   checkpoint_writer reads DIR                    loads all columns, then a quarter; prints for each how many large
 *                                                  reads went past the page cache and how many through it
 *   checkpoint_writer requests DIR LIMIT           saves two steps with so many KiB to pin ("": all it may); prints how
 *                                                  many writes from registered memory, others and syncs io_uring got
 *
 * CODEC archive: none, and older checkpoints are archived: by a thread beside write, after the step of kill and fail.
 * Two ranks, each with its own writer; the value of each element follows from the step (checkpoint_model.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/write/collect.h"
#include "checkpoint/write/mio.h"
#include "tests/fault/checkpoint_faults.h"
#include "tests/fault/checkpoint_model.h"

#define ROWS 1200
#define COLUMNS 240
#define STUCK_US 500000
#define PINNED 4 /* steps that crowd keeps for good */
#define CUT 100  /* the first row of rank 1, whose tensors have two chunks each */

static int write_on(const char *dir, uint64_t generation, const char *codec, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    uint64_t step;
    int r = model_check(dir, &step, err);

    if (!r)
        r = model_open(dir, generation, codec, w, err);
    while (!r) {
        r = model_write(w, ++step, err);
        if (!r && (printf("%" PRIu64 "\n", step) < 0 || fflush(stdout)))
            r = -1;
    }
    return r;
}

/* Write one step in a process of its own that has a fault. Exit status: 0 no fault was met, 2 met and survived. */
static int write_once(const char *dir, uint64_t step, const char *codec, int n, int error, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    int r;

    (void)alarm(60);
    faults_arm(n, error);
    r = model_open(dir, 1, codec, w, err);
    if (!r) {
        r = model_write(w, step, err);
        for (int k = MODEL_RANKS; k-- > 0;) /* all of rank 1's answers before rank 0 waits no more */
            (void)mck_drain(w[k], clock_mono_us() + 30000000, NULL);
        if (r && faults_hit() && err->text[0])
            r = model_write(w, step + 1, err); /* training goes on and saves again */
        for (int k = 0; k < MODEL_RANKS; k++)
            mck_writer_free(w[k]);
        if (!r && model_archives(codec)) {
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

    json_array_foreach (list, i, one) {
        struct mck *c = NULL;

        r = r ? r : mck_open_path(json_string_value(json_object_get(one, "path")), &c, err);
        if (!r && mck_verify(c, NULL, err) == 0)
            n++;
        archived |= c && is_archived(c);
        mck_free(c);
    }
    json_decref(list);
    if (!r && model_archives(codec) && !archived)
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
        r = model_check(dir, &step, err);
    for (; r >= 0; n += every) {
        int ended = in_child(dir, step + 1, codec, n, error, err);

        r = ended < 0 ? ended : model_check(dir, &found, err);
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
    struct mck_writer *w[MODEL_RANKS];
    int refused = 0, saved = 0, r = model_open(dir, 1, "none", w, err);
    struct mck_done done;
    uint64_t step;

    if (r)
        return r;
    faults_hold(true);
    model_fill(1);
    for (step = 1; step <= 6 && !r; step++) {
        for (int k = 0; k < MODEL_RANKS && !r; k++) {
            r = model_begin(w[k], step, err);
            if (r == -EBUSY)
                refused++, r = 0;
        }
    }
    faults_hold(false);
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        r = mck_gate(w[k], -1, err);
    for (int k = MODEL_RANKS; k-- > 0 && !r;)
        r = mck_drain(w[k], clock_mono_us() + 30000000, err);
    while (mck_next_done(w[0], &done))
        saved += done.code == 0;
    for (int k = 0; k < MODEL_RANKS; k++)
        mck_writer_free(w[k]);
    if (!r && (refused != 2 * (6 - 2) || saved != 2))
        r = merr_set(err, -1, "%d refused, %d saved", refused, saved);
    return r;
}

static int begin_sync(struct mck_writer *w, uint64_t step, struct merr *err)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
    int r = mck_begin_sync(w, step, kv, err);

    json_decref(kv);
    return r;
}

/* All gates open, though neither checkpoint gets on; a later one is saved. */
static int stuck(const char *dir, uint64_t *ret_step, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    struct mck_done done;
    int r;

    (void)alarm(60);
    model_stuck(STUCK_US);
    r = model_open(dir, 1, "none", w, err);
    faults_hold(true);
    for (int k = 0; k < MODEL_RANKS && !r; k++) {
        r = model_begin(w[k], 1, err);
        r = r ? r : begin_sync(w[k], 2, err);
    }
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        r = mck_gate(w[k], -1, err);
    faults_hold(false);
    for (int k = MODEL_RANKS; k-- > 0 && !r;)
        r = mck_drain(w[k], clock_mono_us() + 30000000, err);
    for (int i = 0; i < 2 && !r; i++)
        if (mck_next_done(w[0], &done) != 1 || done.code != -ETIMEDOUT || !strstr(done.err.text, "nothing could be"))
            r = merr_set(err, -1, "step %d ended with '%s'", i + 1, done.err.text);
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        mck_writer_free(w[k]);
    model_stuck(0);
    if (!r)
        r = model_open(dir, 2, "none", w, err);
    if (!r)
        r = model_write(w, 3, err);
    return r ? r : model_check(dir, ret_step, err);
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
    struct mck_writer *w[MODEL_RANKS];
    struct mio *m = NULL;
    int r = forbid_uring(err);

    if (!r && (mio_open("uring", NULL, 0, &m, &refused) == 0 || !strstr(refused.text, "MUSTER_IO=threads")))
        return merr_set(err, -1, "a forced io_uring: '%s'", refused.text);
    if (!r)
        r = mio_open(NULL, NULL, 0, &m, err);
    mio_close(m);
    if (!r)
        r = model_open(dir, 1, "none", w, err);
    for (uint64_t step = 1; step <= 3 && !r; step++)
        r = model_write(w, step, err);
    return r ? r : check_two(dir, "none", err);
}

static int broken_ring(const char *dir, uint64_t *ret_step, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    struct merr why = {.text = ""};
    int r = model_open(dir, 1, "none", w, err);

    faults_ring(2, EBADF);
    if (!r && (model_write(w, 1, &why) != -EBADF && !strstr(why.text, "Bad file")))
        return merr_set(err, -1, "a broken io_uring: '%s'", why.text);
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        r = mck_drain(w[k], clock_mono_us() + 10000000, err);
    faults_ring(0, 0);
    for (uint64_t step = 2; step <= 3 && !r; step++)
        r = model_write(w, step, err);
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        mck_writer_free(w[k]);
    return r ? r : model_check(dir, ret_step, err);
}

static int no_direct(const char *dir, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    int r = model_open(dir, 1, "none", w, err);

    faults_no_direct();
    for (uint64_t step = 1; step <= 2 && !r; step++)
        r = model_write(w, step, err);
    return r ? r : check_two(dir, "none", err);
}

/* Pin at most kib, without a privilege to pin more. */
static int limit_pinning(const char *kib, struct merr *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    struct rlimit most;

    if (!*kib)
        return 0;
    most.rlim_cur = most.rlim_max = strtoull(kib, NULL, 10) << 10;
    if (setrlimit(RLIMIT_MEMLOCK, &most) || syscall(SYS_capset, &head, none))
        return merr_errno(err, -errno, "cannot limit what may be pinned");
    return 0;
}

static int requests(const char *dir, const char *kib, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    int r = limit_pinning(kib, err), fixed, plain, syncs;

    if (!r)
        r = model_open(dir, 1, "none", w, err);
    for (uint64_t step = 1; step <= 2 && !r; step++)
        r = model_write(w, step, err);
    faults_requests(&fixed, &plain, &syncs);
    (void)printf("%d %d %d\n", fixed, plain, syncs);
    return r ? r : check_two(dir, "none", err);
}

static int reads(const char *dir, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    int r = model_open(dir, 1, "none", w, err), direct, cached;

    if (!r)
        r = model_write(w, 1, err);
    for (int part = 1; part <= 4 && !r; part *= 4) {
        faults_reads(&direct, &cached);
        r = model_load_columns(dir, COLUMNS / part, err);
        faults_reads(&direct, &cached);
        (void)printf("%d %d ", direct, cached);
    }
    return r;
}

/* Take all space that is left in dir. */
static int take_space(const char *path, struct merr *err)
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
    struct mck_writer *w[MODEL_RANKS];
    struct merr full = {.text = ""};
    char ballast[4096];
    uint64_t step, found = 0;
    int r = model_open(dir, 1, codec, w, err);

    (void)snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
    for (step = 1; step <= 2 && !r; step++)
        r = model_write(w, step, err);
    if (!r)
        r = take_space(ballast, err);
    if (!r && (model_write(w, step, &full) >= 0 || !strstr(full.text, "space")))
        return merr_set(err, -1, "a full disk: '%s'", full.text);
    if (!r)
        r = model_check(dir, &found, err);
    if (!r && found != 2)
        return merr_set(err, -1, "step %" PRIu64 " is the newest after step 3 failed", found);
    (void)unlink(ballast);
    return r ? r : model_write(w, step + 1, err);
}

/* Are in dir whole checkpoints of the two newest steps and of all that are kept for good, and no others unless they may
 * be there? */
static int expect_least(const char *dir, uint64_t newest, bool more, struct merr *err)
{
    size_t i, least = 0, others = 0, want = (size_t)(newest / PINNED);
    json_t *list = NULL;
    const json_t *one;
    int r = mck_list(dir, &list, err);

    want += (newest % PINNED != 0) + ((newest - 1) % PINNED != 0);
    json_array_foreach (list, i, one) {
        uint64_t step = (uint64_t)json_integer_value(json_object_get(one, "step"));

        least += step % PINNED == 0 || step + 1 >= newest;
        others += step % PINNED != 0 && step + 1 < newest;
    }
    json_decref(list);
    if (!r && (least != want || (others && !more)))
        r = merr_set(err, -1, "%zu of %zu steps are there, and %zu others", least, want, others);
    return r;
}

static int crowd_disk(const char *dir, const char *codec, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    struct merr full = {.text = ""};
    char ballast[4096];
    uint64_t step;
    bool fits = true;
    int r;

    model_keep(100, PINNED);
    r = model_open(dir, 1, codec, w, err);
    for (step = 1; step <= 9 && !r; step++) /* there is space for six */
        r = model_write(w, step, err);
    if (!r && model_removed() != 3)
        return merr_set(err, -1, "%u of nine went", model_removed());
    if (!r)
        r = expect_least(dir, step - 1, true, err);
    (void)snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
    if (!r)
        r = take_space(ballast, err);
    for (; step < 100 && !r && fits; step += fits)
        fits = model_write(w, step, &full) == 0;
    if (!r && !strstr(full.text, "o space"))
        return merr_set(err, -1, "a full disk: '%s'", full.text);
    if (!r)
        r = expect_least(dir, step - 1, false, err);
    (void)unlink(ballast);
    if (!r)
        r = collect_folder(dir, 2, 0, err); /* what the words ask for */
    return r ? r : model_write(w, step + 1, err);
}

static int run(int argc, char **argv, uint64_t *ret_step, struct merr *err)
{
    const char *what = argc > 2 ? argv[1] : "";

    if (argc == 5 && !strcmp(what, "write"))
        return write_on(argv[2], strtoull(argv[3], NULL, 10), argv[4], err);
    if (argc == 3 && !strcmp(what, "check"))
        return model_check(argv[2], ret_step, err);
    if ((argc == 6 && !strcmp(what, "kill")) || (argc == 7 && !strcmp(what, "fail")))
        return sweep(argv[2], argv[3], (int)strtol(argv[4], NULL, 10), (int)strtol(argv[5], NULL, 10),
                     argc == 7 ? (int)strtol(argv[6], NULL, 10) : 0, err);
    if (argc == 3 && !strcmp(what, "slow"))
        return slow(argv[2], err);
    if (argc == 3 && !strcmp(what, "stuck"))
        return stuck(argv[2], ret_step, err);
    if (argc == 3 && !strcmp(what, "no-uring"))
        return no_uring(argv[2], err);
    if (argc == 3 && !strcmp(what, "ring"))
        return broken_ring(argv[2], ret_step, err);
    if (argc == 3 && !strcmp(what, "no-direct"))
        return no_direct(argv[2], err);
    if (argc == 3 && !strcmp(what, "reads"))
        return reads(argv[2], err);
    if (argc == 4 && !strcmp(what, "requests"))
        return requests(argv[2], argv[3], err);
    if (argc == 4 && !strcmp(what, "fill"))
        return fill_disk(argv[2], argv[3], err);
    if (argc == 4 && !strcmp(what, "crowd"))
        return crowd_disk(argv[2], argv[3], err);
    return merr_set(err, -EINVAL, "bad arguments: see the head of tests/fault/checkpoint_writer.c");
}

int main(int argc, char **argv)
{
    struct merr err = {.text = ""};
    uint64_t step = 0;
    int r;

    model_make(ROWS, COLUMNS, CUT, argc < 2 || strcmp(argv[1], "reads") != 0);
    r = run(argc, argv, &step, &err);
    if (r)
        (void)fprintf(stderr, "checkpoint_writer: %s\n", err.text);
    else if (argc == 3)
        (void)printf("%" PRIu64 "\n", step);
    return r ? 1 : 0;
}
