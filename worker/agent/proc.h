/* proc - a process named so that a reused number is never taken for it
 *
 * A process id alone may belong to somebody else by the time it is used. Together with the start time that
 * the kernel keeps (/proc/PID/stat, field 22, in clock ticks since the boot) it names one process of one
 * boot. Signals go through a pidfd that was opened before the start time was compared.
 */
#ifndef MUSTER_WORKER_AGENT_PROC_H
#define MUSTER_WORKER_AGENT_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_BOOT_ID_MAX 40

struct proc_id {
    pid_t pid;      /* 0: none */
    uint64_t start; /* ticks since the boot */
};

/* Start time of pid, also of a zombie. Returns 0, -ESRCH when there is no such process. */
int proc_start_time(pid_t pid, uint64_t *ret_start);

/* A pidfd (close-on-exec) of exactly this process, or -ESRCH when it is gone or its number is another's. */
int proc_open(struct proc_id id);

/* Alive and not a zombie. */
bool proc_alive(struct proc_id id);

/* Stopped by a signal or a debugger, so that it does nothing until it is let go on. */
bool proc_stopped(struct proc_id id);

/* Signal exactly this process. Returns 0, or -ESRCH when it is gone. */
int proc_kill(struct proc_id id, int signal);
int proc_kill_fd(int pidfd, int signal);

/* SIGKILL to every child of this process, which are unreaped, so that their numbers are theirs. Of a subreaper that is
 * all that its children left behind. */
void proc_kill_children(void);

/* The boot's identity, "" when the system does not tell. */
void proc_boot_id(char out[PROC_BOOT_ID_MAX]);

#endif
