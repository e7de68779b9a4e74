/* The small files a shim leaves in the run's folder: see shim.h. */
#include "worker/agent/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

#define FILE_MAX 4096

const char *shim_path(char *path, size_t size, const char *folder, int rank, const char *suffix)
{
    (void)snprintf(path, size, "%s/rank-%05d.%s", folder, rank, suffix);
    return path;
}

/* *ret_doc is new. */
static int read_json(const char *path, json_t **ret_doc, struct merr *err)
{
    struct buf text;
    json_error_t je;
    json_t *doc;
    int r;

    buf_init(&text, FILE_MAX);
    r = io_read_plain(path, &text, err);
    if (r == 0) {
        doc = json_loadb(buf_text(&text), text.len, 0, &je);
        if (doc)
            *ret_doc = doc;
        else
            r = merr_set(err, -EPROTO, "'%s' is damaged: %s", path, je.text);
    }
    buf_clear(&text);
    return r;
}

int shim_read_pids(const char *folder, int rank, struct shim_pids *ret, struct merr *err)
{
    json_auto_t *doc = NULL;
    json_int_t shim, shim_start, pid, pid_start;
    char path[4096];
    int r = read_json(shim_path(path, sizeof(path), folder, rank, "pid"), &doc, err);

    if (r < 0)
        return r;
    if (json_unpack(doc, "{s:I,s:I,s:I,s:I}", "shim", &shim, "shim_start", &shim_start, "pid", &pid, "pid_start",
                    &pid_start) < 0 ||
        shim < 1 || pid < 1 || shim > INT32_MAX || pid > INT32_MAX)
        return merr_set(err, -EPROTO, "'%s' does not name two processes", path);
    *ret = (struct shim_pids){{(pid_t)shim, (uint64_t)shim_start}, {(pid_t)pid, (uint64_t)pid_start}};
    return 0;
}

int shim_read_exit(const char *folder, int rank, struct rank_exit *ret, struct merr *err)
{
    json_auto_t *doc = NULL;
    char path[4096];
    int r = read_json(shim_path(path, sizeof(path), folder, rank, "exit"), &doc, err);

    if (r < 0)
        return r;
    r = exit_read(doc, ret, err);
    return r < 0 ? merr_prefix(err, -EPROTO, "'%s' does not tell how the rank ended", path) : 0;
}

int shim_write_exit(const char *folder, int rank, const struct rank_exit *e, struct merr *err)
{
    json_t *doc = exit_write(e);
    char path[4096], *text = doc ? json_dumps(doc, 0) : NULL;
    int r = merr_set(err, -ENOMEM, "no memory to tell how rank %d ended", rank);

    json_decref(doc);
    if (text)
        r = io_publish_file(shim_path(path, sizeof(path), folder, rank, "exit"), text, strlen(text), 0600, err);
    free(text);
    return r;
}
