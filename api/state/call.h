/* call - what the parts of libmuster-state share: how a call fails, and structs of callers of another age */
#ifndef MUSTER_API_STATE_CALL_H
#define MUSTER_API_STATE_CALL_H

#include <jansson.h>

#include "api/state/muster_state.h"
#include "base/merr.h"

#define EXPORTED __attribute__((visibility("default")))

/* This thread's words: for the call that fails next. */
struct merr *call_error(void);

/* A caller's struct, which begins with its size, into one of ours of size bytes: what it does not know of is 0. -EINVAL
 * where it says no size, or has set what this library does not know. */
int call_struct(void *to, size_t size, const void *from, const char *what);

/* The text of a document (stolen) for the caller to free; -ENOMEM. */
int call_text(json_t *doc, char **ret);

#endif
