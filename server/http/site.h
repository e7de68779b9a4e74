/* site - a folder of finished pages, served from memory: the documentation below /docs
 *
 * Read once, whole, so that no request waits for a disk and none can name a file that was not there at the start.
 * Links, pipes and whatever else is no plain file are left out, as are folders below folders. Unchanging; safe from any
 * thread.
 */
#ifndef MUSTER_SERVER_HTTP_SITE_H
#define MUSTER_SERVER_HTTP_SITE_H

#include <stddef.h>

#include "base/merr.h"
#include "server/http/http_req.h"

#define SITE_FILES_MAX 1000
#define SITE_BYTES_MAX (64u << 20) /* of all of them */

struct site;

/* The files of a folder and of its folders. -ENOENT: no such folder; -E2BIG: more than the limits; others as of
 * reading. */
int site_load(const char *path, struct site **ret, struct merr *err);
void site_free(struct site *s); /* NULL is fine */

size_t site_files(const struct site *s);

/* Answer with the file "NAME" or "FOLDER/NAME" (the parameters of the route's pattern); s NULL: there are no pages. */
void site_serve(const struct site *s, struct http_req *req);

#endif
