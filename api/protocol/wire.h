/* wire - a message as a table of fields, by which it is read, written, cleared and printed
 *
 * A message is JSON between programs and a struct within them. A field that is left out, or null, is its fallback
 * unless it is needed; fields that the table does not have are passed over, so that newer programs may add some. What
 * is read borrows nothing from the JSON but each WIRE_STRING.
 */
#ifndef MUSTER_API_PROTOCOL_WIRE_H
#define MUSTER_API_PROTOCOL_WIRE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"

enum wire_kind {
    WIRE_INT,    /* int */
    WIRE_LONG,   /* int64_t or uint64_t of at most INT64_MAX */
    WIRE_BOOL,   /* bool */
    WIRE_ENUM,   /* an enum of the size of int */
    WIRE_TEXT,   /* char[] */
    WIRE_STRING, /* const char *, borrowed from the JSON that was read; NULL: left out */
    WIRE_INTS,   /* int *, and how many */
    WIRE_LIST,   /* structs *, and how many */
    WIRE_STRUCT, /* a struct */
    WIRE_JSON,   /* json_t *, a reference of its own; NULL: left out */
};

enum {
    WIRE_NEEDED = 1, /* may not be left out */
    WIRE_OMIT = 2,   /* left out by the writer when it is the fallback, or empty */
    WIRE_PASS = 4,   /* entries of the list with faults are passed over, the others are read */
    WIRE_CUT = 8,    /* a text that is too long is cut, between two characters */
    WIRE_NAME = 16,  /* a text of letters, digits, '.', '_', '-' alone */
};

struct wire_message;

struct wire_field {
    const char *name;
    enum wire_kind kind;
    unsigned flags;
    size_t at, size;          /* of the member */
    size_t count_at;          /* of a list: where its number of entries is, a size_t */
    int64_t min, max;         /* of a number or of numbers in a list; min of a text: bytes */
    size_t most;              /* of a list: entries */
    int64_t fallback;         /* of a number, a bool or an enum */
    const char *const *names; /* of an enum, by value; NULL: such a value is not for the wire */
    size_t n_names;
    const struct wire_message
        *of;          /* of a struct, or a list of them; what the entries of a WIRE_JSON array are, if told */
    json_type type;   /* of WIRE_JSON: JSON_OBJECT or JSON_ARRAY */
    const char *what; /* for docs/protocol.md */
};

struct wire_message {
    const char *name, *what; /* what: for docs/protocol.md; NULL: not printed by itself */
    size_t size;             /* of the struct */
    const struct wire_field *fields;
    size_t n_fields;
};

/* In a row of a table: where member m of struct s is. */
#define WIRE_AT(s, m) .at = offsetof(struct s, m), .size = sizeof(((struct s *)NULL)->m)
#define WIRE_COUNT(s, m) .count_at = offsetof(struct s, m)
#define WIRE_NAMES(v) .names = (v), .n_names = sizeof(v) / sizeof((v)[0])
#define WIRE_MESSAGE(s, f) .size = sizeof(struct s), .fields = (f), .n_fields = sizeof(f) / sizeof((f)[0])

/* Read doc (borrowed) into the struct at ret. Returns 0, -ENOMEM, or -EINVAL with every fault and its place in err, as
 * many as it holds; on failure *ret is unchanged. */
int wire_read(const struct wire_message *m, const json_t *doc, void *ret, struct merr *err);

/* The struct at from as JSON, new; NULL without memory. */
json_t *wire_write(const struct wire_message *m, const void *from);

/* Free what the struct at s holds; it is all zero then. */
void wire_clear(const struct wire_message *m, void *s);

/* Print the table of a message's fields as markdown. */
void wire_print(const struct wire_message *m, struct buf *out);

/* Add the JSON schema of a message to an object of schemas, as "Agent" and its name in capitals ("AgentReportRank"); a
 * message within it is a reference into `components.schemas`. Returns 0, or -1 without memory. */
int wire_schema(const struct wire_message *m, json_t *into);

/* The value that a name of an enum stands for; fallback where it is none of them, or NULL. */
int wire_value(const char *const *names, size_t n_names, const char *name, int fallback);

#endif
