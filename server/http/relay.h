/* relay - sessions: bytes passed on between a client and an agent, who both have opened a WebSocket to this server
 *
 * A session is opened with a ticket for the client, which is good once, and the name of the node whose agent may join.
 * Both have RELAY_JOIN_US to come. From then on each message of one goes to the other (api/protocol/frame.h), and is
 * not read while RELAY_HELD bytes wait for that one. It ends when either closes or has gone, or when nothing has passed
 * for as long as cfg.idle_us; the other is told why.
 *
 * One thread moves the bytes of all sessions. All functions may be called on any thread.
 */
#ifndef MUSTER_SERVER_RELAY_H
#define MUSTER_SERVER_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/http/http_req.h"

#define RELAY_ID_MAX 33
#define RELAY_NAME_MAX 64
#define RELAY_BEGIN_MAX (128 << 10) /* bytes of what the agent is told first: as much as its frames take */
#define RELAY_JOIN_US INT64_C(60000000)
#define RELAY_PING_US INT64_C(15000000)
#define RELAY_LOST_US INT64_C(45000000) /* without a sign of life */
#define RELAY_LAST_US INT64_C(30000000) /* for what the other is still to be sent */
#define RELAY_HELD (1 << 20)
#define RELAY_MOST 512    /* sessions, */
#define RELAY_OF_USER 128 /* of one user, */
#define RELAY_OF_GROUP 16 /* and of one job: with programs, and likewise to ports */

struct relay;

struct relay_session {                           /* one that is to be opened, or has ended */
    char id[RELAY_ID_MAX], ticket[RELAY_ID_MAX]; /* nobody guesses them */
    char node[RELAY_NAME_MAX], user[RELAY_NAME_MAX], token[RELAY_NAME_MAX], group[RELAY_NAME_MAX];
    char run[RELAY_NAME_MAX]; /* what the agent is told of it in lists: its run, */
    uint32_t generation;
    int rank, port;               /* port: 0 of one with a program */
    uint64_t bytes[2];            /* of the client; of the agent */
    int64_t opened_us, active_us; /* monotonic */
    char why[128];                /* it has ended */
};

struct relay_cfg {
    int64_t idle_us;
    void (*ended)(void *arg, const struct relay_session *s); /* on the relay's thread, or in relay_stop; may be NULL */
    void *arg;
};

int relay_start(const struct relay_cfg *cfg, struct relay **ret, struct merr *err);

/* Open a session whose agent is sent begin first. -ENOMEM; -EBUSY and err says which limit is reached. */
int relay_open(struct relay *y, const struct relay_session *s, const char *begin, size_t len, struct merr *err);

/* Answer a held request to join: a client's with a ticket, or that of an agent of node. The right to speak for the node
 * was looked at. */
void relay_join_client(struct relay *y, struct http_req *r, const char *id, const char *ticket);
void relay_join_agent(struct relay *y, struct http_req *r, const char *id, const char *node);

/* Call fn with each session that the agent of node has not joined yet. */
void relay_waiting(struct relay *y, const char *node, void (*fn)(void *arg, const struct relay_session *s), void *arg);

/* End all sessions of a token: it is good no more. */
void relay_end_token(struct relay *y, const char *token);

/* End all sessions; those who come then are refused. NULL is fine. Before http_stop(), after which it is freed. */
void relay_stop(struct relay *y);
void relay_free(struct relay *y);

#endif
