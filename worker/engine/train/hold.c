#include "worker/engine/train/hold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"

#define NUMBER_TEXT_MAX 64
#define START "start"

int hold_init(struct hold *ret, const char *name, struct merr *err)
{
    const char *folder = getenv("MUSTER_HOLD");
    struct hold h = {""};
    int n = folder && *folder ? snprintf(h.path, sizeof(h.path), "%s/%s", folder, name) : 0;

    if (n < 0 || (size_t)n >= sizeof(h.path))
        return merr_set(err, -ENAMETOOLONG, "MUSTER_HOLD is longer than %d bytes", HOLD_PATH_MAX);
    *ret = h;
    return 0;
}

bool hold_may(const struct hold *h)
{
    return h->path[0] != '\0';
}

/* What the file says, into text. False: nobody holds the job. */
static bool look(const struct hold *h, struct buf *text)
{
    buf_init(text, NUMBER_TEXT_MAX);
    return hold_may(h) && io_read_file(h->path, text, NULL) == 0;
}

bool hold_start_wanted(const struct hold *h)
{
    struct buf text;
    bool wanted = look(h, &text) && strncmp(buf_text(&text), START, strlen(START)) == 0;

    buf_clear(&text);
    return wanted;
}

bool hold_wanted(const struct hold *h, uint64_t done)
{
    struct buf text;
    bool wanted = look(h, &text) && strtoull(buf_text(&text), NULL, 10) <= done;

    buf_clear(&text);
    return wanted;
}
