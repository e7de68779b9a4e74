/* rights - who may see a job, who may act on it, who may submit into a project
 *
 * An admin may all, a viewer sees all. A user sees and acts on their own jobs, and on all of the projects whose manager
 * they are. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_RIGHTS_H
#define MUSTER_SERVER_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/http/http_req.h"

struct core;
struct project;

/* Whether the caller may see, and act as far as their role goes, on a job of this user in this project. */
bool rights_sees(const struct core *c, const struct http_identity *who, const char *user, const char *project);

/* The project of a job that may have ended; NULL: it is not known any more, or of none that was set up. Borrowed. */
const struct project *rights_project_of(const struct core *c, uint64_t job);

/* As rights_sees, of an event of such a job. */
bool rights_sees_event(const struct http_identity *who, const char *user, const struct project *p);

/* Whether a job of this user is their own, or they are an admin. */
bool rights_owns(const struct http_identity *who, const char *user);

/* Whether they may have jobs in the project. */
bool rights_submits(const struct core *c, const struct http_identity *who, const char *project);

/* Whether they may say who else may. */
bool rights_manages(const struct core *c, const struct http_identity *who, const char *project);

#endif
