/* join - the token of this node, which the agent trades for a code that an admin had made
 *
 * The agent makes the token itself and keeps it, mode 0600, before it sends it with the code; so whichever of the two
 * ends in between, the same code and the same token are sent again, and the server gives the same answer. In the state
 * folder: `joining`, a trade that is under way; `token`; `joined`, the node's name and which code that was; a
 * certificate (node_cert.h), where the server gives one.
 */
#ifndef MUSTER_WORKER_AGENT_JOIN_H
#define MUSTER_WORKER_AGENT_JOIN_H

#include <limits.h>

#include "base/merr.h"

#define JOIN_NODE_MAX 64

struct join_cfg {
    const char *state; /* the agent's folder, which it has to itself */
    const char *server, *ca_file;
    const char *code; /* NULL: none; one that was traded already is passed over */
    int signal_fd;    /* readable: give up */
};

/* The token's file and the node's name, after trading the code for it if that was not done yet, for as long as it takes
 * to reach the server. Returns 0; -ENOENT: there is no code and none was traded; -EPERM: the server refuses the code;
 * -EINTR: told to give up; others, with words. */
int join_token(const struct join_cfg *cfg, char ret_file[PATH_MAX], char ret_node[JOIN_NODE_MAX], struct merr *err);

#endif
