/* upload - the folder that a job brings along: packed, and sent to the server unless it is there */
#ifndef MUSTER_API_CLI_UPLOAD_H
#define MUSTER_API_CLI_UPLOAD_H

#include <jansson.h>

#include "api/cli/cli.h"

#define UPLOAD_IGNORE ".musterignore" /* with the syntax of .gitignore, in any folder */

/* The files below a folder as a bundle in b, which is empty and has the limit of one; folders named .git are left out.
 * Returns 0 or a negative errno with words. */
int upload_pack(const char *folder, struct buf *b, struct merr *err);

/* Where --upload or --git is given, or the spec names a repository: let the spec say which upload, or which commit.
 * Returns 0 or an exit status. */
int upload_add(struct cli *c, json_t *doc);

#endif
