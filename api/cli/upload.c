#include "api/cli/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/bundle.h"
#include "api/cli/git_ref.h"
#include "api/cli/ignore.h"
#include "base/io.h"
#include "base/try.h"

#define DEPTH_MAX 48
#define PIECE (512 << 10)
#define TRIES 20 /* of a piece: another upload of the same files may be under way */

struct pack {
    const char *folder; /* as it was named */
    int fd;
    struct ignore ignore;
    char **paths; /* n of them, owned */
    size_t n;
    uint64_t bytes, largest;
    char largest_path[BUNDLE_PATH_BYTES];
};

static int walk(struct pack *p, int fd, const char *path, int depth, struct merr *err);

static int read_ignore(struct pack *p, int fd, const char *path, struct merr *err)
{
    IO_CLOSE_AUTO int file = openat(fd, UPLOAD_IGNORE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    BUF_CLEAR_AUTO struct buf b;

    buf_init(&b, 1 << 20);
    if (file < 0)
        return errno == ENOENT ? 0 : merr_errno(err, -errno, "cannot read '%s" UPLOAD_IGNORE "'", path);
    TRY(io_read_open(file, UPLOAD_IGNORE, &b, err));
    return ignore_add(&p->ignore, buf_text(&b), strlen(path)) < 0
               ? merr_set(err, -E2BIG, "'%s" UPLOAD_IGNORE "': %d rules, each of %d parts, are the most", path,
                          IGNORE_RULES_MAX, IGNORE_PARTS_MAX)
               : 0;
}

static int take_file(struct pack *p, const char *path, const struct stat *st, struct merr *err)
{
    char **v = realloc(p->paths, (p->n + 1) * sizeof(*v));

    if (!v || !(v[p->n] = strdup(path))) {
        p->paths = v ? v : p->paths;
        return merr_set(err, -ENOMEM, "no memory for the files");
    }
    p->paths = v;
    p->n++;
    p->bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    if (S_ISREG(st->st_mode) && (uint64_t)st->st_size >= p->largest) {
        p->largest = (uint64_t)st->st_size;
        (void)snprintf(p->largest_path, sizeof(p->largest_path), "%s", path);
    }
    if (p->n > BUNDLE_FILES_MAX || p->bytes > BUNDLE_BYTES_MAX)
        return merr_set(err, -E2BIG,
                        "'%s' has more than %d files or %llu MiB (the largest: '%s', %llu MiB); name what the job does "
                        "not need in " UPLOAD_IGNORE,
                        p->folder, BUNDLE_FILES_MAX, (unsigned long long)(BUNDLE_BYTES_MAX >> 20), p->largest_path,
                        (unsigned long long)(p->largest >> 20));
    return 0;
}

static int visit(struct pack *p, int fd, const char *path, const char *name, int depth, struct merr *err)
{
    char full[BUNDLE_PATH_BYTES + 1];
    struct stat st;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".git") == 0)
        return 0;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return merr_errno(err, -errno, "cannot look at '%s%s'", path, name);
    if (snprintf(full, sizeof(full), "%s%s", path, name) >= BUNDLE_PATH_BYTES - 1)
        return merr_set(err, -ENAMETOOLONG, "the path '%.200s...' is too long for an upload", full);
    if (ignore_hides(&p->ignore, full, S_ISDIR(st.st_mode)))
        return 0;
    if (S_ISDIR(st.st_mode)) {
        IO_CLOSE_AUTO int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (below < 0)
            return merr_errno(err, -errno, "cannot open '%s'", full);
        (void)snprintf(full + strlen(full), 2, "/");
        return walk(p, below, full, depth + 1, err);
    }
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return merr_set(err, -EINVAL,
                        "'%s' is a pipe, socket or device, which cannot be uploaded; name it in " UPLOAD_IGNORE, full);
    return take_file(p, full, &st, err);
}

static int walk(struct pack *p, int fd, const char *path, int depth, struct merr *err)
{
    size_t rules = p->ignore.n;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), r;
    struct dirent *e;
    DIR *d;

    if (depth > DEPTH_MAX)
        return merr_set(err, -ELOOP, "'%.200s' is more than %d folders deep", path, DEPTH_MAX);
    r = read_ignore(p, fd, path, err);
    d = copy < 0 ? NULL : fdopendir(copy);
    if (!d && r == 0)
        r = merr_errno(err, -errno, "cannot read '%s'", *path ? path : p->folder);
    while (r == 0 && d && (e = readdir(d)))
        r = visit(p, fd, path, e->d_name, depth, err);
    if (d)
        (void)closedir(d);
    ignore_cut(&p->ignore, rules);
    return r;
}

static int pack_one(const struct pack *p, const char *path, struct buf *b, struct merr *err)
{
    struct bundle_entry e = {.kind = BUNDLE_LINK};
    char target[BUNDLE_PATH_BYTES];
    ssize_t n = readlinkat(p->fd, path, target, sizeof(target));
    BUF_CLEAR_AUTO struct buf content;
    struct stat st;

    buf_init(&content, BUNDLE_BYTES_MAX);
    (void)snprintf(e.path, sizeof(e.path), "%s", path);
    if (n >= 0) {
        e.data = target;
        e.size = (uint64_t)n;
    } else {
        IO_CLOSE_AUTO int fd = openat(p->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

        if (fd < 0 || fstat(fd, &st) < 0)
            return merr_errno(err, -errno, "cannot open '%s'", path);
        TRY(io_read_open(fd, path, &content, err));
        e.kind = st.st_mode & S_IXUSR ? BUNDLE_PROGRAM : BUNDLE_FILE;
        e.data = buf_text(&content);
        e.size = content.len;
    }
    return bundle_add(b, &e, err);
}

static int by_path(const void *a, const void *b)
{
    return bundle_compare(*(char *const *)a, *(char *const *)b);
}

static int pack_all(struct pack *p, struct buf *b, struct merr *err)
{
    TRY(walk(p, p->fd, "", 0, err));
    if (p->n == 0)
        return merr_set(err, -ENOENT, "'%s' has no files to upload", p->folder);
    qsort(p->paths, p->n, sizeof(*p->paths), by_path);
    (void)bundle_begin(b);
    for (size_t i = 0; i < p->n; i++)
        TRY(pack_one(p, p->paths[i], b, err));
    return buf_failed(b) ? merr_set(err, -ENOMEM, "no memory for the files") : 0;
}

int upload_pack(const char *folder, struct buf *b, struct merr *err)
{
    struct pack *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return merr_set(err, -ENOMEM, "no memory for the files");
    p->folder = folder;
    p->fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = p->fd < 0 ? merr_errno(err, -errno, "cannot open the folder '%s'", folder) : pack_all(p, b, err);
    for (size_t i = 0; i < p->n; i++)
        free(p->paths[i]);
    free(p->paths);
    io_close(&p->fd);
    free(p);
    return r;
}

/* Send what the server does not have of it. */
static int send_bundle(struct cli *c, const struct buf *b, const char *name, struct merr *err)
{
    char path[160], put[240];
    int tries = 0;

    (void)snprintf(path, sizeof(path), "/v1/bundles/%s", name);
    for (;;) {
        json_auto_t *is = NULL;
        size_t at, len;
        int r = client_call(c->client, "GET", path, NULL, NULL, &is, err);

        if (r < 0 && r != -ENOENT)
            return r;
        if (json_is_true(json_object_get(is, "complete")))
            return 0;
        at = (size_t)cli_int(is, "stored");
        while (at < b->len) {
            len = b->len - at < PIECE ? b->len - at : PIECE;
            (void)snprintf(put, sizeof(put), "%s?size=%zu&offset=%zu", path, b->len, at);
            r = client_put(c->client, put, b->data + at, len, err);
            if (r < 0)
                break;
            at += len;
        }
        if (at >= b->len && r == 0)
            return 0;
        if (client_status(c->client) != 409 || ++tries == TRIES) /* another sends the same: go on from where it is */
            return r < 0 ? r : merr_set(err, -EIO, "the upload does not come to its end");
    }
}

static int upload(struct cli *c, const char *folder, json_t *command)
{
    BUF_CLEAR_AUTO struct buf b;
    char name[BUNDLE_NAME_BYTES];
    struct merr err = {""};
    int r;

    buf_init(&b, BUNDLE_BYTES_MAX);
    r = upload_pack(folder, &b, &err);
    if (r < 0)
        return cli_fail(r == -ENOENT ? CLI_NOT_FOUND : CLI_REFUSED, "--upload: %s", err.text);
    TRY(cli_connect(c));
    r = send_bundle(c, &b, bundle_name(b.data, b.len, name), &err);
    if (r < 0)
        return cli_fail((enum cli_exit)client_exit_status(r), "--upload: %s", err.text);
    return json_object_set_new(command, "bundle", json_string(name)) < 0
               ? cli_fail(CLI_FAILED, "no memory for the spec")
               : 0;
}

int upload_add(struct cli *c, json_t *doc)
{
    const char *folder = cli_option(c, "upload");
    json_t *command = json_object_get(doc, "command");

    if ((folder || cli_option(c, "git")) && !json_is_object(command))
        return cli_fail(CLI_USAGE, "--upload and --git are of a job with a command");
    if (folder && json_object_get(command, "git"))
        return cli_fail(CLI_USAGE, "a job runs in an upload or in a repository, not in both");
    return folder ? upload(c, folder, command) : git_ref_add(command);
}
