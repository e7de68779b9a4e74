#include "api/cli/git_ref.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/git_source.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define LIST_MAX (1 << 20)
#define LOOK_S 60

extern char **environ;

/* The commit of the line "ID\tNAME". */
static bool find_line(const char *listed, const char *prefix, const char *ref, const char *suffix, char *ret)
{
    char name[512];
    size_t n;

    (void)snprintf(name, sizeof(name), "%s%s%s", prefix, ref, suffix);
    for (const char *line = listed; *line; line += n + (line[n] == '\n')) {
        const char *tab = strchr(line, '\t');

        n = strcspn(line, "\n");
        if (!tab || (size_t)(tab - line) >= GIT_REF_ID || (size_t)(tab - line) > n ||
            strlen(name) != n - 1 - (size_t)(tab - line) || strncmp(tab + 1, name, strlen(name)) != 0)
            continue;
        (void)snprintf(ret, GIT_REF_ID, "%.*s", (int)(tab - line), line);
        return git_source_is_commit(ret);
    }
    return false;
}

int git_ref_find(const char *listed, const char *ref, char ret[GIT_REF_ID])
{
    return find_line(listed, "refs/tags/", ref, "^{}", ret) || find_line(listed, "refs/tags/", ref, "", ret) ||
                   find_line(listed, "refs/heads/", ref, "", ret) || find_line(listed, "", ref, "^{}", ret) ||
                   find_line(listed, "", ref, "", ret)
               ? 0
               : -ENOENT;
}

/* What a child prints, until it ends or deadline_us. */
static int read_out(int fd, pid_t pid, struct buf *out, int64_t deadline_us)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int status = -1;
    ssize_t n = 1;

    while (n > 0) {
        char *at = buf_reserve(out, 4096);

        if (!at || poll(&p, 1, clock_poll_ms(deadline_us)) <= 0)
            break;
        n = read(fd, at, 4096);
        if (n > 0)
            buf_commit(out, (size_t)n);
    }
    if (n != 0)
        (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return n != 0 ? -ETIMEDOUT : WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

static int list(const char *url, const char *ref, struct buf *out)
{
    char *const argv[] = {"git", "ls-remote", "-q", "--", (char *)url, NULL};
    posix_spawn_file_actions_t actions;
    IO_CLOSE_AUTO int from = -1;
    int ends[2], r;
    pid_t pid;

    (void)setenv("GIT_ALLOW_PROTOCOL", GIT_SOURCE_PROTOCOLS, 1);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cli_fail(CLI_FAILED, "cannot make a pipe: %s", strerror(errno));
    from = ends[0];
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    r = posix_spawnp(&pid, "git", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (r)
        return cli_fail(CLI_FAILED, "cannot run git, which finds the commit of '%s': %s", ref, strerror(r));
    r = read_out(from, pid, out, clock_mono_us() + (int64_t)LOOK_S * 1000000);
    if (r == -ETIMEDOUT)
        return cli_fail(CLI_FAILED, "git ls-remote was not done in %d s, or lists more than %d bytes", LOOK_S,
                        LIST_MAX);
    return r ? cli_fail(CLI_FAILED, "git cannot list the branches of '%s'; its words are above", url) : 0;
}

/* A path is relative to where the user stands. */
static int make_absolute(json_t *git, const char *url)
{
    char full[PATH_MAX];

    if (strstr(url, "://") || url[0] == '/')
        return 0;
    if (!realpath(url, full))
        return cli_fail(CLI_NOT_FOUND, "no repository at '%.200s': %s", url, strerror(errno));
    return json_object_set_new(git, "url", json_string(full)) < 0 ? cli_fail(CLI_FAILED, "no memory for the spec") : 0;
}

int git_ref_add(json_t *command)
{
    json_t *git = json_object_get(command, "git");
    const char *url = json_string_value(json_object_get(git, "url")), *ref;
    char commit[GIT_REF_ID];
    BUF_CLEAR_AUTO struct buf out;
    struct merr err;

    buf_init(&out, LIST_MAX);
    if (!url || json_object_get(git, "commit"))
        return 0; /* what is wrong with it, its check says */
    TRY(make_absolute(git, url));
    url = cli_str(git, "url");
    ref = json_object_get(git, "ref") ? cli_str(git, "ref") : "HEAD";
    if (git_source_check_url(url, &err) < 0 || git_source_check_ref(ref, &err) < 0)
        return cli_fail(CLI_REFUSED, "%s", err.text);
    if (!git_source_is_commit(ref)) {
        TRY(list(url, ref, &out));
        if (git_ref_find(buf_text(&out), ref, commit) < 0)
            return cli_fail(CLI_NOT_FOUND, "'%s' has no branch or tag '%s'; a commit is named in full", url, ref);
    } else {
        (void)snprintf(commit, sizeof(commit), "%s", ref);
    }
    return json_object_set_new(git, "commit", json_string(commit)) < 0 ? cli_fail(CLI_FAILED, "no memory for the spec")
                                                                       : 0;
}
