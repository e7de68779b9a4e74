/* agent - the node's side of the agents' protocol (docs/protocol.md)
 *
 * One thread owns everything and waits for all at once: the server's answers, the ends of ranks, files of
 * a rendezvous, signals. What a server says is wanted is compared with what is there, as often as it likes;
 * a server out of reach changes nothing.
 */
#ifndef MUSTER_WORKER_AGENT_AGENT_H
#define MUSTER_WORKER_AGENT_AGENT_H

/* The program `muster-agent`. self and train: paths of the programs. Returns the exit status. */
int agent_main(int argc, char **argv, const char *self, const char *train);

#endif
