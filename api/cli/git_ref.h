/* git_ref - the commit that a branch or tag of a repository is now, by `git ls-remote` */
#ifndef MUSTER_API_CLI_GIT_REF_H
#define MUSTER_API_CLI_GIT_REF_H

#include <jansson.h>
#include <stddef.h>

#define GIT_REF_ID 65 /* bytes of a commit, with its NUL */

/* Which commit ref is by what ls-remote printed: HEAD, a tag (what it points to), a branch, or a name in full. Returns
 * 0, or -ENOENT. */
int git_ref_find(const char *listed, const char *ref, char ret[GIT_REF_ID]);

/* Let command.git.commit be what command.git.ref is now, unless it is given. Returns 0, also without command.git, or an
 * exit status. */
int git_ref_add(json_t *command);

#endif
