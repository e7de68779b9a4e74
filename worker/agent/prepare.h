/* prepare - `muster-agent prepare`: a command's rank before its program is there
 *
 * It stands where the program will, under the rank's account and in its control group: it lays out the files that the
 * job brings along, `work` in the job's folder, and becomes the program there. One rank of a node does that, the others
 * wait for it; of several nodes that share the folder the first is taken. It is done once for all runs of the job, so
 * that what a run leaves there the next one finds. What cannot be done is the result of the rank (docs/programs.md).
 */
#ifndef MUSTER_WORKER_AGENT_PREPARE_H
#define MUSTER_WORKER_AGENT_PREPARE_H

#define PREPARE_WORK "work" /* in the job's folder */

int prepare_main(int argc, char **argv);

#endif
