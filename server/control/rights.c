#include "server/control/rights.h"

#include <string.h>

#include "server/control/auth.h"
#include "server/control/state.h"

static enum project_role role_in(const struct core *c, const struct http_identity *who, const char *project)
{
    const struct project *p = project_find(&c->cluster.projects, project);

    return p ? project_role(p, who->user) : PROJECT_MEMBER;
}

bool rights_manages(const struct core *c, const struct http_identity *who, const char *project)
{
    return who->role == ROLE_ADMIN || (who->role == ROLE_USER && role_in(c, who, project) == PROJECT_MANAGER);
}

bool rights_sees(const struct core *c, const struct http_identity *who, const char *user, const char *project)
{
    return auth_sees(who, user) || rights_manages(c, who, project);
}

const struct project *rights_project_of(const struct core *c, uint64_t job)
{
    const struct catalog_row *row = job ? catalog_find(&c->jobs.catalog, job) : NULL;

    return row ? project_find(&c->cluster.projects, row->project->name) : NULL;
}

bool rights_sees_event(const struct http_identity *who, const char *user, const struct project *p)
{
    return auth_sees(who, user) || (who->role == ROLE_USER && p && project_role(p, who->user) == PROJECT_MANAGER);
}

bool rights_submits(const struct core *c, const struct http_identity *who, const char *project)
{
    return who->role == ROLE_ADMIN || role_in(c, who, project) != PROJECT_STRANGER;
}

bool rights_owns(const struct http_identity *who, const char *user)
{
    return who->role == ROLE_ADMIN || strcmp(who->user, user) == 0;
}
