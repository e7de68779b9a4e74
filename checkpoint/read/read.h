/* read - the inside of a mck: tables, sources, ranged reads */
#ifndef MUSTER_CHECKPOINT_READ_READ_H
#define MUSTER_CHECKPOINT_READ_READ_H

#include "checkpoint/format/folder.h"
#include "checkpoint/format/index.h"

struct mck_source { /* where the stream of ix.file[i] lies */
    uint32_t path;  /* index in paths */
    uint64_t base;  /* foreign: byte in the file where the stream starts */
    bool foreign;   /* plain bytes without chunk table: a safetensors file */
};

struct read_watch { /* whom a long call tells how far it is */
    void (*tell)(void *arg, uint64_t done, uint64_t all);
    void *arg;
    uint64_t done, all;
};

struct mck {
    struct mck_index ix;
    struct mck_source *source;
    char **paths;
    size_t path_count;
    char path[MCK_PATH_MAX];
    json_t *kv;
    int lease; /* MANIFEST, locked shared while open, so that it is not collected; -1: foreign */
    struct read_watch watch;
};

/* Passes the folder's checkpoint the quick check? */
bool read_is_committed(const char *path);

/* As mck_open_path, then the quick check. */
int read_open_checked(const char *path, struct mck **ret, struct merr *err);

/* One data file by its own index, as a checkpoint that may have gaps. */
int read_open_part(const char *path, struct mck **ret, struct merr *err);

/* Is file f there with its length, id and footer? -EBADMSG says what is wrong. */
int read_quick_check_file(const struct mck *c, uint32_t f, struct merr *err);

/* Chunk i of file f: its entry, made up for foreign files. */
void read_chunk_entry(const struct mck *c, uint32_t f, uint64_t i, struct mck_chunk *ret);

/* Open the data file of f for reading. Returns a descriptor or a negative errno with words. */
int read_open_file(const struct mck *c, uint32_t f, struct merr *err);

/* A long call begins, of so many bytes; so many of them are done now, too. */
void read_watch_begin(struct mck *c, uint64_t all);
void read_watch_add(struct mck *c, uint64_t bytes);

/* A new empty mck, lease -1; or NULL. */
struct mck *read_alloc(void);

/* A buffer for the whole of a tensor, without data, and its number of elements. name is borrowed by it. */
void read_describe(const struct mck *c, const struct mck_tensor *t, char name[MCK_NAME_MAX + 1], struct mck_buffer *ret,
                   uint64_t *ret_volume);

/* Bytes of a tensor, of all tensors, of all files' streams. */
uint64_t read_tensor_bytes(const struct mck_tensor *t);
uint64_t read_all_bytes(const struct mck *c);
uint64_t read_stream_bytes(const struct mck *c);

/* Does a tensor (NULL: none) tell of the layout that wrote it, and nothing of what was reached? Its name then begins
 * with "layout.". */
bool read_is_layout(const struct mck_index *ix, const struct mck_tensor *t);

/* The cursor less what tells how and by whom it was written, not what was reached. New; NULL when memory is short. */
json_t *read_meaning(const struct mck *c);

#endif
