/* top - which jobs are shown in which order, and what keys do: pure, the terminal is top_screen.c's */
#ifndef MUSTER_API_CLI_TOP_H
#define MUSTER_API_CLI_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_ENDED_US (INT64_C(3600) * 1000000) /* how long a job that has ended stays in sight */

enum top_order { TOP_BY_STATE, TOP_BY_DEVICES, TOP_BY_TIME, TOP_BY_NAME, TOP_ORDERS };

enum top_key {
    TOP_KEY_OTHER,
    TOP_KEY_QUIT,
    TOP_KEY_UP,
    TOP_KEY_DOWN,
    TOP_KEY_FIRST,
    TOP_KEY_LAST,
    TOP_KEY_SHOW,
    TOP_KEY_LOGS,
    TOP_KEY_EXPLAIN,
    TOP_KEY_CANCEL,
    TOP_KEY_SORT,
    TOP_KEY_YES,
};

enum top_action { TOP_STAY, TOP_QUIT, TOP_SHOW, TOP_LOGS, TOP_EXPLAIN, TOP_CANCEL };

struct top_choice {
    char id[40]; /* of the chosen job; "": there is none */
    size_t at;   /* where it was */
    enum top_order order;
    bool asks; /* the next key answers the question */
    char question[120];
};

const char *top_order_name(enum top_order order);

/* The jobs in that order as a new list, without those that ended long before now_us (wall). Jobs that are alike stay as
 * they were. NULL: no memory. */
json_t *top_sort_new(const json_t *jobs, enum top_order order, int64_t now_us);

/* Where the job is; SIZE_MAX: nowhere. */
size_t top_find(const json_t *jobs, const char *id);

/* The list is another one: the chosen job stays so; when it is gone, the one in its place is. */
void top_keep(struct top_choice *t, const json_t *jobs);

/* The first key of n bytes that a terminal sent, at least 1; *ret_used: its bytes. */
enum top_key top_key(const char *text, size_t n, size_t *ret_used);

/* What a key does; the action is on t->id. */
enum top_action top_press(struct top_choice *t, const json_t *jobs, enum top_key key);

#endif
