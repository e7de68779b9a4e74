/* history_priv - the lists in which a job's events are, for the two files that write and read them */
#ifndef MUSTER_SERVER_HISTORY_PRIV_H
#define MUSTER_SERVER_HISTORY_PRIV_H

#include "server/store/history.h"
#include "server/store/store_priv.h"

enum history_list { HISTORY_LIST_FIRST, HISTORY_LIST_RECENT, HISTORY_LIST_NOTES, HISTORY_LISTS };

/* Entries of a stream, as history_read_all(). */
int history_read_stream(struct store *s, const char *key, uint64_t after, size_t most, struct store_rows *ret,
                        uint64_t *ret_end, struct merr *err);

/* The key of one of a job's lists. */
void history_key(uint64_t job, enum history_list list, char ret[STORE_KEY_MAX]);

#endif
