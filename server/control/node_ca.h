/* node_ca - the authority whose certificates agents show besides the tokens of their nodes (musterd --node-ca)
 *
 * Its folder holds ca.pem and ca-key.pem, made when neither is there. Servers that take over from each other have the
 * same two files. A certificate names its node (CN) and the token of that node (OU, the token's id), so that it ends
 * with the token. Its key is made by the agent, who sends a request for a certificate of it. No state: any thread.
 */
#ifndef MUSTER_SERVER_NODE_CA_H
#define MUSTER_SERVER_NODE_CA_H

#include <stdint.h>

#include "base/merr.h"

struct node_ca;

/* life_s: of each certificate. 0; -EINVAL: the files are no authority; -EPERM: others may read the key. */
int node_ca_open(const char *folder, int life_s, int64_t wall_us, struct node_ca **ret, struct merr *err);
void node_ca_close(struct node_ca *ca);

/* Its own certificate as PEM, for whoever is to trust what it signs. Borrowed. */
const char *node_ca_certificate(const struct node_ca *ca);

/* A certificate, PEM, new, from this wall time on (and a little before, for clocks that are late) for the key of a
 * request (PKCS #10, PEM), of which nothing else is used. -EINVAL: it is none, or not of a P-256 key; -ENOMEM. */
int node_ca_sign(const struct node_ca *ca, const char *request, const char *node, const char *token, int64_t wall_us,
                 char **ret, struct merr *err);

#endif
