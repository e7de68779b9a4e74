/* spool_names - what the files of the spool are called */
#ifndef MUSTER_SERVER_SPOOL_NAMES_H
#define MUSTER_SERVER_SPOOL_NAMES_H

#include <stdbool.h>

#define SPOOL_INDEX_END ".index" /* of the name of what is known of a metrics file, behind the file's */
#define SPOOL_NAME_MAX 48        /* bytes of a file's name, with its end */

/* A rank or generation that is not in the name stays as it was. */
void spool_log_name(int rank, int generation, char ret[SPOOL_NAME_MAX]);
void spool_metrics_name(int generation, char ret[SPOOL_NAME_MAX]);
bool spool_is_log(const char *name, int *ret_rank, int *ret_generation);
bool spool_is_metrics(const char *name, int *ret_generation);

#endif
