#include "api/state/call.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct merr last;

struct merr *call_error(void)
{
    return &last;
}

EXPORTED const char *mstate_last_error(void)
{
    return last.text;
}

EXPORTED void mstate_text_free(char *text)
{
    free(text);
}

int call_struct(void *to, size_t size, const void *from, const char *what)
{
    uint32_t has = 0;

    if (from)
        memcpy(&has, from, sizeof(has));
    if (has < sizeof(has) || has > 65536)
        return merr_set(&last, -EINVAL, "%s says %u for its size", what, has);
    for (size_t i = size; i < has; i++)
        if (((const char *)from)[i])
            return merr_set(&last, -EINVAL, "%s is of a newer library: it asks for more than this one knows", what);
    memset(to, 0, size);
    memcpy(to, from, has < size ? has : size);
    return 0;
}

int call_text(json_t *doc, char **ret)
{
    *ret = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    return *ret ? 0 : merr_set(&last, -ENOMEM, "no memory for a document");
}
