/* remove - one checkpoint that is not wanted any more */
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/try.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/parts.h"
#include "checkpoint/write/collect.h"

int mck_remove(const char *dir, uint64_t step, struct merr *err)
{
    char path[MCK_PATH_MAX];
    struct stat st;
    int r;

    TRY(folder_step_path(dir, step, NULL, path, err));
    if (lstat(path, &st) < 0)
        return merr_errno(err, -errno, "cannot remove the checkpoint of step %" PRIu64 " in '%s'", step, dir);
    r = collect_step(dir, step, err);
    if (r == 0)
        return merr_set(err, -EBUSY, "the checkpoint '%s' is being read; try again later", path);
    return r < 0 ? r : 0;
}
