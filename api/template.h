/* template - texts of a spec with places to be filled in: ${{index}}, ${{param.lr}}
 *
 * The names are a table, an object: {"index": 3, "param.lr": 0.001}. So who has other values to give (what a job's
 * parent left, say) adds rows to it. Where a place is all of a text, the value comes as it is, a number as a number;
 * else its text is put there. Pure.
 */
#ifndef MUSTER_API_TEMPLATE_H
#define MUSTER_API_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/merr.h"

#define TEMPLATE_NAME_MAX 64
#define TEMPLATE_TEXT_MAX (1 << 20) /* bytes of a text that was filled in */

/* Whether the text has a place to be filled in. */
bool template_is(const char *text);

/* The text, filled in: new. NULL with words in err: a name is not in the table, a place does not end, it grows too
 * long, no memory. names are borrowed. */
json_t *template_fill(const char *text, const json_t *names, struct merr *err);

/* A value as it stands in a text: numbers as short as they can be. False: it is no text, number or boolean, or does not
 * fit. */
bool template_print(const json_t *value, char *ret, size_t size);

#endif
