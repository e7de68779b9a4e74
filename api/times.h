/* times - how long something takes, as people write it on a command line
 *
 * Slurm's forms: "90" (minutes), "30:00" (minutes:seconds), "4:00:00" (hours:minutes:seconds), "2-12", "2-12:30" and
 * "2-12:30:00" (days-hours:minutes:seconds); and a number with its unit: "90s", "90m", "4h", "7d". Pure.
 */
#ifndef MUSTER_API_TIMES_H
#define MUSTER_API_TIMES_H

/* Seconds in *ret, from 0 to INT32_MAX. Returns 0, or -EINVAL: it is none of these forms, or longer. */
int times_parse(const char *text, int *ret);

#endif
