/* ignore - which files a folder leaves out: rules with the syntax of git's .gitignore. Pure. */
#ifndef MUSTER_API_CLI_IGNORE_H
#define MUSTER_API_CLI_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

#define IGNORE_RULES_MAX 10000
#define IGNORE_PARTS_MAX 64 /* of a rule or path, parted by '/' */

struct ignore_rule {
    char *text;  /* owned; parts, each with its NUL */
    size_t n;    /* of the parts */
    size_t base; /* bytes of the folder of its file, with the '/' behind it */
    bool keeps, folders, anchored;
};

struct ignore {
    struct ignore_rule v[IGNORE_RULES_MAX];
    size_t n;
};

/* Add the rules of a file in the folder whose path ("a/b/", "" for the top) has base bytes. They go before those added
 * earlier. Returns 0, -E2BIG, -ENOMEM. */
int ignore_add(struct ignore *all, const char *text, size_t base);

/* Forget the rules but the first n. */
void ignore_cut(struct ignore *all, size_t n);

/* Whether a path is left out; what is below a folder that is left out is not to be asked about. */
bool ignore_hides(const struct ignore *all, const char *path, bool folder);

#endif
