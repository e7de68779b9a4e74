/* notes - what followers of events are to be told of a change of the cluster, given back by those who made it
 *
 * Zeroed it is empty. Without memory a note is left out. Plain data.
 */
#ifndef MUSTER_SERVER_NOTES_H
#define MUSTER_SERVER_NOTES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define NOTES_TEXT_MAX 240

struct note {
    uint64_t job; /* that it is about; 0: it is about a node */
    const char *code;
    char text[NOTES_TEXT_MAX];
    json_t *data; /* owned */
};

struct notes {
    struct note *v; /* in the order in which things were found */
    size_t n, cap;
};

/* Append a note; data is taken over. The code is a literal. */
void notes_add_new(struct notes *all, uint64_t job, const char *code, json_t *data, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void notes_clear(struct notes *all);

#endif
