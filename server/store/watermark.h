/* watermark - how far the store had come when somebody was last told that something is done, in a file outside it
 *
 * A store that was emptied, cut off or put back is behind its watermark, and store_open() notices. The file is one line
 * of a fixed length, written after each commit; a thread of its own makes it durable, so that nobody waits for a disk:
 * after a crash of the machine it may be a fifth of a second behind, never ahead. It lies in the folder of the jobs,
 * which servers that take over from each other share.
 */
#ifndef MUSTER_SERVER_WATERMARK_H
#define MUSTER_SERVER_WATERMARK_H

#include "base/merr.h"
#include "server/store/store.h"

struct watermark;

/* Open the file, made when missing, and say what it holds: all 0 where it is new. Returns 0; -EINVAL: it holds no
 * watermark; or another negative errno; with words. */
int watermark_open(const char *path, struct watermark **ret, struct store_mark *ret_mark, struct merr *err);

/* Begin to write: nothing is written before. 0, or a negative errno with words. */
int watermark_start(struct watermark *w, struct merr *err);

/* Write this. NULL is fine. */
void watermark_note(struct watermark *w, const struct store_mark *mark);

/* Make what was written durable, and free. NULL is fine. */
void watermark_close(struct watermark *w);

#endif
