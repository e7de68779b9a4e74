/* command_line - a program's main function in a process of its own: its exit status, and what it said
 *
 * For those that end before anything runs.
 */
#ifndef MUSTER_TESTS_UNIT_WORKER_AGENT_COMMAND_LINE_H
#define MUSTER_TESTS_UNIT_WORKER_AGENT_COMMAND_LINE_H

#include "tests/unit/folder.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_LINE_MAX 16

typedef int command_line_main(int argc, char **argv, const char *self, const char *train);

/* Arguments are words with one space between, in which @ is the test's folder. said: its standard error. */
static inline int command_line(command_line_main *fn, const char *name, const char *args, char said[4096])
{
    char words[1024] = "", *argv[COMMAND_LINE_MAX + 1], *rest = NULL;
    int ends[2], status, argc = 0;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    for (const char *p = args; *p && n + sizeof(top) < sizeof(words); p++)
        n += (size_t)snprintf(words + n, sizeof(words) - n, *p == '@' ? "%s" : "%.1s", *p == '@' ? top : p);
    argv[argc++] = (char *)name;
    for (char *w = strtok_r(words, " ", &rest); w && argc < COMMAND_LINE_MAX; w = strtok_r(NULL, " ", &rest))
        argv[argc++] = w;
    argv[argc] = NULL;
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout)) /* help must not lie between the test's own lines */
            _exit(127);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)alarm(60); /* it was to end by itself */
        _exit(fn(argc, argv, "/nowhere/muster-agent", "/nowhere/muster-train"));
    }
    assert_true(pid > 0);
    (void)close(ends[1]);
    for (n = 0; n < 4095 && (got = read(ends[0], said + n, 4095 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
