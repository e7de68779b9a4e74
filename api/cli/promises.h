/* promises - what the scheduler promises of a job, in words */
#ifndef MUSTER_API_CLI_PROMISES_H
#define MUSTER_API_CLI_PROMISES_H

#include <jansson.h>

#define PROMISES_TIME_MAX 32
#define PROMISES_START_MAX 256

/* "14:05" here, with the date unless that is within a day; "" stays so. */
void promises_time(const char *rfc3339, char ret[PROMISES_TIME_MAX]);

/* "about 14:05, after j12's time limit" of a job's `starts`; "": nobody knows. */
void promises_start(const json_t *starts, char ret[PROMISES_START_MAX]);

/* Its place in the queue and its start, in lines. */
void promises_print(const json_t *job);

#endif
