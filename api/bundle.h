/* bundle - the files of a folder as one run of bytes, named by its SHA-256
 *
 * The bytes follow from names, contents, the right to execute and links alone, so a folder that has not changed has the
 * name that it had before. The magic, then a record a file: its kind (a letter), the bytes of its path (2, little
 * endian) and of its contents (8), the path, the contents; of a link its target. Records are sorted by path, '/' before
 * all else. Folders follow from the paths; an empty one is not kept.
 *
 * A bundle comes from outside. What bundle_next() gives stays below the folder that it is unpacked into: paths are
 * relative, without "." and "..", each is there once, nothing is below a file or a link, and a link leads to a place in
 * the folder. That is so since ".." stands only at its beginning, where it climbs real folders, at most to the top.
 */
#ifndef MUSTER_API_BUNDLE_H
#define MUSTER_API_BUNDLE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"

#define BUNDLE_FILES_MAX 20000
#define BUNDLE_BYTES_MAX (UINT64_C(1) << 30) /* of a bundle; a server may take less */
#define BUNDLE_PATH_BYTES 1024               /* of a path, and of a link's target, with its NUL */
#define BUNDLE_NAME_BYTES 65                 /* of a bundle's name, with its NUL: 64 hex digits */
#define BUNDLE_FOLDER ".bundles"             /* of all bundles, beside the jobs' folders */

enum bundle_kind { BUNDLE_FILE = 'f', BUNDLE_PROGRAM = 'x', BUNDLE_LINK = 'l' };

struct bundle_entry {
    enum bundle_kind kind;
    char path[BUNDLE_PATH_BYTES];
    const char *data; /* borrowed from the bundle; of a link its target, without a NUL */
    uint64_t size;
};

struct bundle_reader {
    const char *at;
    size_t left;
    size_t n; /* entries given so far */
    char last[BUNDLE_PATH_BYTES];
};

/* Begin to write one: b is empty. */
int bundle_begin(struct buf *b);

/* Append an entry, whose path comes after all before. -EINVAL: it would not be read again; -EMSGSIZE: b's limit. */
int bundle_add(struct buf *b, const struct bundle_entry *e, struct merr *err);

/* Whether the path a comes before b (< 0), after it (> 0) or is the same (0). */
int bundle_compare(const char *a, const char *b);

/* Begin to read one, borrowed. -EBADMSG: it is none. */
int bundle_open(struct bundle_reader *r, const void *data, size_t len, struct merr *err);

/* The next entry: 1; at the end 0. -EBADMSG: it is damaged, or would leave its folder; that is the last call then. */
int bundle_next(struct bundle_reader *r, struct bundle_entry *ret, struct merr *err);

/* Whether all of it can be read. */
int bundle_check(const void *data, size_t len, struct merr *err);

/* Its name: the SHA-256 of its bytes. Returns ret. */
const char *bundle_name(const void *data, size_t len, char ret[BUNDLE_NAME_BYTES]);
bool bundle_is_name(const char *name);

/* Where the server keeps a user's bundle, and agents find it: JOBS/.bundles/USER/NAME. name "": the user's folder.
 * -ENAMETOOLONG. */
int bundle_path(const char *jobs, const char *user, const char *name, char ret[PATH_MAX]);

#endif
