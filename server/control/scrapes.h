/* scrapes - /metrics: one page of text, printed now and then and shared by all who ask
 *
 * Anybody may ask, without a token, as often and for as many connections at once as the HTTP side lets them. So a page
 * is printed again only after a time that grows with its length, which leaves the core's thread all but a few
 * hundredths of its time, and readers share it. Pages that slow readers still hold have a limit in all: beyond it the
 * oldest is withdrawn, and its readers are cut off.
 */
#ifndef MUSTER_SERVER_SCRAPES_H
#define MUSTER_SERVER_SCRAPES_H

#include <stdint.h>

#define SCRAPES_PAGE_BYTES (64 << 20) /* of one page: 1,000 nodes with 8 GPUs each take 3 MiB */
#define SCRAPES_KEPT_BYTES (32 << 20) /* of those before the newest */
#define SCRAPES_KEPT_MAX 32           /* pages */
#define SCRAPES_BYTES_A_US 4          /* a page of so many bytes is printed again after so many microseconds */

struct call;
struct core;
struct scrapes;

struct scrapes *scrapes_new(void); /* NULL: no memory */
void scrapes_free(struct scrapes *s);

/* Answer with the page. */
void scrapes_answer(struct core *c, struct call *call);

#endif
