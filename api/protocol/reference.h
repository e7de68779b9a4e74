/* reference - all messages between the programs, as pages and schemas that people read */
#ifndef MUSTER_API_PROTOCOL_REFERENCE_H
#define MUSTER_API_PROTOCOL_REFERENCE_H

#include <jansson.h>

#include "api/protocol/wire.h"
#include "base/buf.h"

/* Print the fields of all messages: the last section of docs/protocol.md. Returns 0 or -ENOMEM. */
int reference_print(struct buf *out);

/* JSON schemas of all messages by name, for api/openapi.yaml; new, NULL without memory. */
json_t *reference_schemas(void);

/* All messages in the order of the reference; NULL ends them. */
extern const struct wire_message *const reference_messages[];

#endif
