/* solo - one node without a server: `muster-agent run FILE --devices N --dir D`
 *
 * Plays server and agent for one job: reads the spec, chooses the layout, starts the ranks under shims like
 * any agent, restarts them as a new generation within the spec's retry budgets, and ends with the job. The
 * run's folder is D/run-gN for generation N, D/logs a link to the newest one, D the job's folder.
 *
 * The first SIGINT or SIGTERM stops the ranks (they get the grace of the spec, nothing is saved beyond the
 * checkpoints there are), the second kills them.
 */
#ifndef MUSTER_WORKER_AGENT_SOLO_H
#define MUSTER_WORKER_AGENT_SOLO_H

/* argv[0] is "run". self and train: paths of the programs. Returns the exit status: 0 done, 1 failed or
 * stopped, 2 usage, 65 the job's own fault. */
int solo_main(int argc, char **argv, const char *self, const char *train);

#endif
