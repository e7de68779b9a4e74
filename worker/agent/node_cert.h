/* node_cert - the certificate that the agent shows besides its token, on servers that want one (musterd --node-ca)
 *
 * The agent makes the key, and sends a request for a certificate of it with its join code; two thirds of the way to the
 * end it makes another key and asks for the next one by the old. In the state folder: node-TIME.pem, mode 0600, with a
 * certificate and its key, TIME being the second when it expires: so a new one never stands in place of one in use.
 */
#ifndef MUSTER_WORKER_AGENT_NODE_CERT_H
#define MUSTER_WORKER_AGENT_NODE_CERT_H

#include <stdint.h>

#include "api/client/calls.h"
#include "api/protocol/join.h"
#include "base/merr.h"

/* A new key, PEM, and a request for a certificate of it. */
int node_cert_ask(char **ret_key, char request[JOIN_REQUEST_MAX], struct merr *err);

/* Keep what was asked for, in place of what was before. -EINVAL: the certificate is not of the key. */
int node_cert_keep(const char *folder, const char *key, const char *certificate, struct merr *err);

/* The path of the newest one in the folder; NULL: there is none. */
const char *node_cert_newest(const char *folder, char ret[4096]);

struct node_cert;

/* Let calls show the newest certificate of the folder, if it has one, and be the ones that renew it. *ret is NULL where
 * there is none. The texts are borrowed. */
int node_cert_new(const char *folder, const char *node, struct calls *calls, struct node_cert **ret, struct merr *err);
void node_cert_free(struct node_cert *c);

/* Renew it when that is due. Returns when to come again (monotonic, as now_us). NULL: never. */
int64_t node_cert_tick(struct node_cert *c, int64_t now_us);

#endif
