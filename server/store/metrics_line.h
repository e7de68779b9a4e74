/* metrics_line - the numbers of a line of metrics
 *
 * Files of them are hundreds of megabytes long, so lines as programs write them, flat and of plain names, are read
 * without making a tree; of all others jansson makes one. Both say the same.
 */
#ifndef MUSTER_SERVER_METRICS_LINE_H
#define MUSTER_SERVER_METRICS_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS_LINE_NUMBERS 128 /* of a line; more are left out */

struct metrics_number {
    const char *name; /* borrowed from the line or its tree; not ended by a NUL */
    size_t len;
    double v;
};

struct metrics_line_numbers {
    int64_t step; /* 0: it has none that is whole */
    size_t n;     /* besides the step */
    struct metrics_number v[METRICS_LINE_NUMBERS];
    json_t *tree; /* NULL: it needed none */
};

/* Whether text is an object. ret is to be cleared if so. */
bool metrics_line_read(const char *text, size_t len, struct metrics_line_numbers *ret);
void metrics_line_clear(struct metrics_line_numbers *l);

#endif
