/* scrapes - /metrics: one page of text, printed now and then and shared by all who ask
 *
 * Anybody may ask, without a token, as often and for as many connections at once as the HTTP side lets them. So a page
 * is printed again only after a time that grows with its length, which leaves the core's thread all but a few
 * hundredths of its time, and readers share it. Pages that slow readers still hold have a limit in all: beyond it the
 * oldest is withdrawn, and its readers are cut off. And a page is printed in pieces, one a turn, so that nobody else
 * waits for all of it: those who ask meanwhile wait for that page.
 */
#ifndef MUSTER_SERVER_SCRAPES_H
#define MUSTER_SERVER_SCRAPES_H

#include <stdbool.h>

#define SCRAPES_PAGE_BYTES (64 << 20)  /* of one page: 1,000 nodes with 8 GPUs each take 3 MiB */
#define SCRAPES_PIECE_BYTES (64 << 10) /* printed in one turn, and one step more; */
#define SCRAPES_PIECE_STEPS 2048       /* the most steps of it: the users of a bucket, a metric of a node */
#define SCRAPES_JOBS_MAX 1000          /* whose steps are told */
#define SCRAPES_WAITING_MAX 1024       /* requests for a page that is being printed */
#define SCRAPES_KEPT_BYTES (32 << 20)  /* of those before the newest */
#define SCRAPES_KEPT_MAX 32            /* pages */
#define SCRAPES_BYTES_A_US 4           /* a page of so many bytes is printed again after so many microseconds */

struct call;
struct core;
struct scrapes;

struct scrapes *scrapes_new(void); /* NULL: no memory */
void scrapes_free(struct scrapes *s);

/* Answer with the page, at once or in the turn in which it is whole. */
void scrapes_answer(struct core *c, struct call *call);

bool scrapes_printing(const struct scrapes *s); /* another turn is due */
void scrapes_turn(struct core *c);              /* print a piece */
void scrapes_stop(struct core *c);              /* refuse those who wait */

#endif
