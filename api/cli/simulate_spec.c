#include "api/cli/simulate_spec.h"

#include <errno.h>
#include <stdlib.h>

#include "api/cli/cli.h"
#include "api/cli/described.h"
#include "api/spec_plan.h"
#include "base/try.h"

struct simulate_spec {
    const struct cli *c;
    struct described classes[2][RATES_TYPES_MAX]; /* by precision: bf16 is the second */
};

static int describe(struct simulate_spec *p, const struct sim_setup *s, const json_t *doc,
                    struct planned_class ret[2][RATES_TYPES_MAX])
{
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t t = 0; t < s->n_types; t++) {
            struct described *d = &p->classes[bf16][t];

            TRY(described_site(cli_option(p->c, "cluster"), doc, s->types[t], 0, bf16, d));
            ret[bf16][t] = (struct planned_class){
                .site = d->site, .program_bytes = d->program_bytes, .devices = d->site.group[0].n};
        }
    return 0;
}

/* The classes, when the first spec wants them. */
static int prepare(struct simulate_spec *p, struct sim_setup *s)
{
    struct planned_class classes[2][RATES_TYPES_MAX];
    json_auto_t *doc = NULL;

    if (s->planned)
        return 0;
    TRY(described_read(cli_option(p->c, "cluster"), &doc));
    TRY(describe(p, s, doc, classes));
    s->planned = planned_new(classes[0], classes[1], s->n_types);
    return s->planned ? 0 : -ENOMEM;
}

static int add(struct sim_setup *s, const char *name, const struct job_spec *spec, struct merr *err)
{
    struct plan_job job;
    struct plan_wish wish;
    struct rates_profile *profile;
    int at, r;

    if (spec->kind != JOB_TRAIN)
        return merr_set(err, -EINVAL, "a command's rates cannot be planned; give it a job_type and throughputs");
    job = spec_plan_job(spec);
    wish = spec_plan_wish(spec);
    at = planned_add(s->planned, &job, &wish, spec->devices.max, err);
    if (at < 0)
        return at;
    profile = calloc(1, sizeof(*profile));
    if (!profile)
        return merr_set(err, -ENOMEM, "no memory for its rates");
    planned_profile(s->planned, at, profile);
    r = sim_add_profile(s, name, profile);
    free(profile);
    return r < 0 ? merr_set(err, r, r == -E2BIG ? "more than %d kinds of jobs" : "no memory for %d kinds of jobs",
                            SIM_PROFILES_MAX)
                 : 0;
}

/* What the commands print of a spec goes before what the trace says. */
static int add_spec(struct sim_setup *s, const char *name, struct merr *err)
{
    struct simulate_spec *p = s->of_caller;
    struct job_spec *spec = NULL;
    struct faults f = {.n = 0};
    json_auto_t *doc = NULL;
    int r;

    if (prepare(p, s) != 0)
        return merr_set(err, -EINVAL, "cannot be planned for this cluster");
    if (cli_read_spec(p->c, name, &doc) != 0 || cli_check_spec(name, doc) != 0)
        return merr_set(err, -EINVAL, "is no spec of a job");
    r = spec_from_json(doc, &spec, &f);
    faults_clear(&f);
    if (r < 0)
        return merr_set(err, r, "is no spec of a job");
    r = add(s, name, spec, err);
    spec_free(spec);
    return r;
}

int simulate_spec_new(const struct cli *c, struct sim_setup *s, struct simulate_spec **ret)
{
    *ret = calloc(1, sizeof(**ret));
    if (!*ret)
        return cli_fail(CLI_FAILED, "out of memory");
    (*ret)->c = c;
    s->add_spec = add_spec;
    s->of_caller = *ret;
    return 0;
}

void simulate_spec_free(struct simulate_spec *p)
{
    for (int t = 0; p && t < RATES_TYPES_MAX; t++) {
        described_clear(&p->classes[0][t]);
        described_clear(&p->classes[1][t]);
    }
    free(p);
}
