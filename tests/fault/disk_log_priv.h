/* disk_log_priv - the log itself */
#ifndef MUSTER_TESTS_FAULT_DISK_LOG_PRIV_H
#define MUSTER_TESTS_FAULT_DISK_LOG_PRIV_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_OBJECTS_MAX 1024
#define LOG_CHANGES_MAX 16384
#define LOG_NAME_MAX 64

enum change_kind {
    CHANGE_BYTES,    /* of object at [at, at + len): data; NULL: it is that long now */
    CHANGE_SYNC,     /* all that was done to object stays */
    CHANGE_LINK,     /* folder has name, which is object */
    CHANGE_UNLINK,   /* folder has no name any more, which was object */
    CHANGE_RENAME,   /* object, name in folder, is name_to there */
    CHANGE_EXCHANGE, /* object, name in folder, and other, name_to there, have each other's names */
    CHANGE_MARK,     /* the number `at` was reached */
};

struct change {
    enum change_kind kind;
    int object, other, folder;
    size_t at, len;
    void *data;
    char name[LOG_NAME_MAX], name_to[LOG_NAME_MAX];
};

extern struct disk_log {
    struct change v[LOG_CHANGES_MAX];
    size_t n;
    int objects; /* 0: the root */
    bool is_folder[LOG_OBJECTS_MAX];
} disk_log;

#endif
