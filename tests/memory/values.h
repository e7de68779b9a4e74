/* values - keys and their values in memory, as Redis keeps them: texts, hashes, sets, sorted sets, lists, streams
 *
 * For store_memory.c. It knows the commands that the store uses (store_priv.h), in the form in which it uses them; any
 * other, and a command on a value of another kind, is a fault of the program and ends it, as lack of memory does. Rows
 * of a hash or set come in the order in which they were first put, where Redis has none. One thread.
 */
#ifndef MUSTER_TESTS_MEMORY_VALUES_H
#define MUSTER_TESTS_MEMORY_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

#define VALUES_ARGS_MAX 512

struct values;

struct values_args { /* a command: its name, then its arguments; borrowed */
    const char *v[VALUES_ARGS_MAX];
    int n;
};

/* Empty; clock, which is borrowed, says when a value with a time to live ends. NULL: no memory. */
struct values *values_new(const struct clock *clock);
void values_free(struct values *m); /* NULL is fine */

/* The next RESP bulk string, in a text that goes on with one; *at goes on behind it. It is ended in place, over the CR
 * that follows it, and may be read again. Borrowed from the text. */
char *values_next_bulk(char **at);

bool values_is(const struct values_args *a, const char *name); /* whether it is this command */

/* The number of a stream's newest entry; 0: there is none. */
uint64_t values_newest(struct values *m, const char *key);

/* Carry out a command that writes. */
void values_write(struct values *m, const struct values_args *a);

/* Carry out a command that reads, and append the reply as RESP. */
void values_read(struct values *m, const struct values_args *a, struct buf *reply);

/* A text, a field of a hash: borrowed until the next call; NULL: there is none. */
const char *values_text(struct values *m, const char *key);
const char *values_field(struct values *m, const char *key, const char *name);

/* How long a value has to live; 0: it is not there, or has no end. */
int64_t values_left_us(struct values *m, const char *key);

/* All there is: an object of texts, hashes and sorted sets as objects, lists and streams as arrays, sets as sorted
 * arrays. New. */
json_t *values_dump(struct values *m);

#endif
