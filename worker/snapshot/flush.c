#include "worker/snapshot/flush.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/snapshot/stream.h"

#define PIECE_BYTES (1u << 20)

static int copy_bytes(int from, int to, const char *path, struct merr *err)
{
    char *piece = malloc(PIECE_BYTES);
    ssize_t n = 1;
    int r = piece ? 0 : merr_set(err, -ENOMEM, "no memory to copy '%s'", path);

    while (r == 0 && n > 0) {
        n = io_read_full(from, piece, PIECE_BYTES);
        r = n < 0 ? (int)n : io_write_all(to, piece, (size_t)n);
    }
    if (r == 0 && fdatasync(to) != 0)
        r = -errno;
    free(piece);
    return r < 0 && piece ? merr_errno(err, r, "cannot write '%s'", path) : r;
}

static int flush_part(const struct flush_cfg *cfg, const char *from_dir, const char *to_dir, uint32_t rank,
                      struct merr *err)
{
    char from[STREAM_PATH_MAX], temp[STREAM_PATH_MAX], final[STREAM_PATH_MAX], tag[17], suffix[32];
    IO_CLOSE_AUTO int in = -1, out = -1, fence = -1;
    int r;

    coordinate_tag(cfg->plan->id, tag);
    (void)snprintf(suffix, sizeof(suffix), ".%s.tmp", tag);
    stream_path(from_dir, rank, "", from);
    stream_path(to_dir, rank, suffix, temp);
    stream_path(to_dir, rank, "", final);
    in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return merr_errno(err, -errno, "cannot open '%s'", from);
    out = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0)
        return merr_errno(err, -errno, "cannot make '%s'", temp);
    r = copy_bytes(in, out, temp, err);
    if (r == 0)
        r = folder_fence(cfg->disk, cfg->generation, false, &fence, err);
    if (r == 0 && rename(temp, final) != 0)
        r = merr_errno(err, -errno, "cannot rename '%s'", temp);
    if (r != 0)
        (void)unlink(temp);
    return r;
}

int flush_parts(const struct flush_cfg *cfg, struct merr *err)
{
    char from[MCK_PATH_MAX], to[MCK_PATH_MAX];

    TRY(folder_make(cfg->disk, err));
    TRY(folder_raise_generation(cfg->disk, cfg->generation, err));
    TRY(folder_step_path(cfg->disk, cfg->plan->step, NULL, to, err));
    TRY(folder_make(to, err));
    if (cfg->dir[0])
        TRY(folder_step_path(cfg->dir, cfg->plan->step, NULL, from, err));
    for (uint32_t i = 0; i < cfg->plan->writers; i++)
        if (cfg->plan->node[i] == cfg->node)
            TRY(flush_part(cfg, from, to, i, err));
    return io_sync_dir(to, err);
}

int flush_commit(const struct flush_cfg *cfg, struct merr *err)
{
    char folder[MCK_PATH_MAX];
    struct mck_index ix;
    int r;

    TRY(folder_step_path(cfg->disk, cfg->plan->step, NULL, folder, err));
    TRY(coordinate_merge(folder, cfg->plan->writers, &ix, err));
    r = memcmp(ix.uuid, cfg->plan->id, sizeof(ix.uuid)) == 0
            ? 0
            : merr_set(err, -EBADMSG, "'%s' holds data files of another attempt", folder);
    if (r == 0)
        r = coordinate_write_manifest(&ix, cfg->disk, folder, cfg->generation, true, err);
    index_clear(&ix);
    return r;
}
