/* session - `muster-agent session`: a connection to the server in one hand, what is inside a run in the other
 *
 * The agent starts one for each session of a rank (sessions.h). It joins the session at the server, hears what is
 * asked, has inside.h do that as the rank's user, and passes messages on: so a slow reader, or one that lies, holds
 * nobody but this process, and the token stays with the agent's account. The program's environment is the one that the
 * rank was started with, as the rank's shim still has it. When either end has gone, all that was started is killed.
 */
#ifndef MUSTER_WORKER_AGENT_SESSION_H
#define MUSTER_WORKER_AGENT_SESSION_H

#define SESSION_WIRE_FD 3 /* to the guard, where there is a helper */

int session_main(int argc, char **argv);

#endif
