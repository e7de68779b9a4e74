/* zone - how far the clocks of a place are from UTC, from the time zone database of the system
 *
 * Read from a compiled zone (RFC 8536): its table of changes, of which Debian's goes to 2037; after its last change
 * the offset stays. Times are seconds since 1970, "local" ones those that such clocks show. Immutable: any thread.
 */
#ifndef MUSTER_BASE_ZONE_H
#define MUSTER_BASE_ZONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define ZONE_NAME_MAX 64
#define ZONE_FOLDER "/usr/share/zoneinfo"

struct zone;

/* Whether it could be the name of a zone: "Europe/Berlin", and no way out of the folder. */
bool zone_name_ok(const char *name);

/* The zone of that name in the folder; "UTC" takes no file. 0; -EINVAL: it is no name of one; -ENOENT; -EBADMSG: its
 * file is not as it should be; -ENOMEM. */
int zone_open(const char *folder, const char *name, struct zone **ret, struct merr *err);
int zone_parse(const void *data, size_t len, struct zone **ret); /* likewise, from the bytes of a file */
void zone_free(struct zone *z);

int zone_offset_s(const struct zone *z, int64_t utc_s);

/* The times at which its clocks show this one: two where they are set back over it, the earlier first. Returns how
 * many; 0: they are set forward over it, and ret[0] is when. */
int zone_utc_s(const struct zone *z, int64_t local_s, int64_t ret[2]);

#endif
