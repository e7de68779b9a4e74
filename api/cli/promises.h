/* promises - what the scheduler promises of a job, in words */
#ifndef MUSTER_API_CLI_PROMISES_H
#define MUSTER_API_CLI_PROMISES_H

#include <jansson.h>
#include <stdint.h>

#define PROMISES_TIME_MAX 32
#define PROMISES_START_MAX 256

/* "14:05" here, with the date unless that is within a day; "" stays so. */
void promises_time(const char *rfc3339, char ret[PROMISES_TIME_MAX]);

/* "about 14:05, after j12's time limit" of a job's `starts`; "": nobody knows. */
void promises_start(const json_t *starts, char ret[PROMISES_START_MAX]);

/* Set the field of body to a time that an option of that name says: "+2h" and "14:05" (the next one) from *now on,
 * "2026-11-21 14:05" of here, or as clock_read_rfc3339(); NULL: it is not given. *now becomes the time that was read:
 * the end is told from the beginning on. 0 or the CLI's exit status, with words. */
int promises_when(const char *option, const char *text, int64_t *now, const char *field, json_t *body);

/* Its place in the queue and its start, in lines. */
void promises_print(const json_t *job);

#endif
