#include "worker/agent/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/protocol/exit.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/options.h"
#include "base/try.h"
#include "worker/agent/checkout.h"
#include "worker/agent/container.h"
#include "worker/agent/order.h"
#include "worker/agent/share.h"
#include "worker/agent/shim.h"
#include "worker/agent/unpack.h"

#define PREPARE_S 900 /* for all files of a job */

struct prepare {
    const char *folder, *job_dir, *bundle, *name, *git, *commit, *workdir, *image;
    int rank, ranks;
    char *const *argv;
};

#define AT(member) .at = OPTION_AT(struct prepare, member)

static const struct option_row rows[] = {
    {"run", 0, "FOLDER", "of the run", OPTION_TEXT, .needed = true, AT(folder)},
    {"rank", 0, "N", "which one this is", OPTION_INT, 0, INT_MAX, .needed = true, AT(rank)},
    {"job-dir", 0, "FOLDER", "of the job", OPTION_TEXT, .needed = true, AT(job_dir)},
    {"bundle", 0, "FILE", "upload that the job runs in, with --name", OPTION_TEXT, AT(bundle)},
    {"name", 0, "SHA256", "its name", OPTION_TEXT, AT(name)},
    {"git", 0, "URL", "repository that the job runs in, with --commit", OPTION_TEXT, AT(git)},
    {"commit", 0, "ID", "that is checked out", OPTION_TEXT, AT(commit)},
    {"workdir", 0, "DIR", "folder of those files", OPTION_TEXT, AT(workdir)},
    {"image", 0, "IMAGE", "that the program runs in", OPTION_TEXT, AT(image)},
    {"ranks", 0, "N", "processes of the program, each a rank", OPTION_INT, 1, SPEC_RANKS_MAX, "1", AT(ranks)},
    {"help", 'h', NULL, "say this", .kind = OPTION_HELP},
    {0},
};

static const struct options options = {
    .name = "muster-agent prepare",
    .args = "--run FOLDER --rank N --job-dir FOLDER -- PROGRAM ARGUMENT...",
    .passes = true,
    .about = "Lay out the files of a job and become its program. Called by the agent.",
    .rows = rows,
};

/* The end of this rank, in its words: which one of a node's or of its owner's doing. */
static int fail(const struct prepare *p, const char *class_, const char *words)
{
    bool user = strcmp(class_, "user") == 0;
    json_t *doc = json_pack("{s:s, s:s, s:s}", "outcome", "failed", "class", class_, "message", words);
    char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    char path[PATH_MAX];

    (void)fprintf(stderr, "muster: %s\n", words);
    if (text)
        (void)io_write_file(shim_path(path, sizeof(path), p->folder, p->rank, "result"), text, strlen(text), 0640,
                            NULL);
    free(text);
    json_decref(doc);
    return user ? 65 : 74;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int fill(const struct prepare *p, const char *folder, int64_t deadline_us, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;

    TRY(io_remove_tree(folder, err)); /* what a killed one has left */
    if (mkdir(folder, 0755) < 0 || (fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return merr_errno(err, -errno, "cannot make '%s'", folder);
    TRY(p->bundle ? unpack_file(p->bundle, p->name ? p->name : "", fd, err)
                  : checkout_commit(p->git, p->commit ? p->commit : "", folder, deadline_us, err));
    return syncfs(fd) < 0 ? merr_errno(err, -errno, "cannot write '%s'", folder) : 0; /* before it has its name */
}

/* `work`, whole: another node may have been first. */
static int lay_out(const struct prepare *p, const char *work, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + (int64_t)PREPARE_S * 1000000;
    const char *node = getenv("MUSTER_NODE");
    IO_CLOSE_AUTO int lock = -1;
    char path[PATH_MAX];
    int r;

    if (is_folder(work))
        return 0;
    (void)snprintf(path, sizeof(path), "%.4000s/prepare.lock", p->folder);
    lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    r = io_lock(lock, LOCK_EX, deadline_us);
    if (r < 0)
        return merr_errno(err, r, "another rank of this node has not laid out the files of the job");
    if (is_folder(work))
        return 0;
    (void)snprintf(path, sizeof(path), "%.3900s/.work-%.64s", p->job_dir, node ? node : "");
    r = fill(p, path, deadline_us, err);
    if (r == 0 && rename(path, work) < 0 && !is_folder(work))
        r = merr_errno(err, -errno, "cannot make '%s'", work);
    (void)io_remove_tree(path, NULL);
    return r;
}

static int enter_work(const struct prepare *p, struct merr *err)
{
    char work[PATH_MAX];

    (void)snprintf(work, sizeof(work), "%.3900s/" PREPARE_WORK, p->job_dir);
    TRY(lay_out(p, work, err));
    if (p->workdir)
        (void)snprintf(work, sizeof(work), "%.2000s/" PREPARE_WORK "/%.2000s", p->job_dir, p->workdir);
    if (chdir(work) < 0) {
        (void)merr_errno(err, -errno, "cannot enter the folder '%s'", p->workdir ? p->workdir : work);
        return -EINVAL;
    }
    (void)setenv("PWD", work, 1);
    return 0;
}

/* Let the program be that of podman or apptainer, which runs the job's in the image. */
static int enter_image(struct prepare *p, struct merr *err)
{
    const char *path = getenv("PATH");
    enum container_runtime runtime;
    char cwd[PATH_MAX];
    struct container c = {.image = p->image,
                          .cwd = cwd,
                          .folders = {p->job_dir, p->folder, getenv("MUSTER_LIB")},
                          .gpus = getenv("CUDA_VISIBLE_DEVICES"),
                          .root = geteuid() == 0,
                          .env = environ,
                          .argv = p->argv};

    TRY(container_find(path ? path : "", p->image, &runtime, err));
    if (!getcwd(cwd, sizeof(cwd)))
        return merr_errno(err, -errno, "cannot tell where the program is to run");
    if (strncmp(cwd, p->job_dir, strlen(p->job_dir)) != 0)
        c.folders[CONTAINER_FOLDERS_MAX - 1] = cwd;
    for (size_t i = 0; i < CONTAINER_FOLDERS_MAX; i++)
        if (c.folders[i] && strpbrk(c.folders[i], ":,"))
            return merr_set(err, -EINVAL, "a container cannot be given the folder '%.200s', whose name has ':' or ','",
                            c.folders[i]);
    p->argv = container_words(runtime, &c);
    return p->argv ? 0 : merr_set(err, -ENOMEM, "the command line of the container is too long");
}

int prepare_main(int argc, char **argv)
{
    struct prepare p = {.rank = -1};
    struct options_given given;
    struct merr err;
    int r, status;

    if (options_main(&options, argc, argv, &p, &given, &r))
        return r;
    p.argv = given.rest;
    if (!p.argv || !p.argv[0])
        return options_refuse(&options, "want -- PROGRAM ARGUMENT...");
    if (p.bundle || p.git) {
        r = enter_work(&p, &err);
        if (r < 0)
            return fail(&p, r == -EBADMSG || r == -EINVAL ? "user" : "node", err.text);
    }
    if (p.ranks > 1) {
        r = share_device(p.ranks, &status, &err);
        if (r < 0)
            return fail(&p, "node", err.text);
        if (r > 0)
            return status;
    }
    if (p.image && enter_image(&p, &err) < 0)
        return fail(&p, "node", err.text);
    (void)execvp(p.argv[0], p.argv);
    r = errno;
    (void)fprintf(stderr, "muster: cannot run '%s': %s%s\n", p.argv[0], strerror(r), order_hidden(p.argv[0]));
    return r == ENOENT ? 127 : 126;
}
