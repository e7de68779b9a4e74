/* The specs of an array's tasks, read one by one. */
#include <errno.h>
#include <stdlib.h>

#include "api/spec_array.h"
#include "api/spec_read.h"
#include "base/try.h"

#define CHECKED_MAX 320 /* tasks of an array whose specs are read when it is submitted */
#define CHECKED_EVENLY 64

int spec_task(const json_t *doc, const struct job_spec *spec, size_t position, const char *job,
              struct job_spec **ret_spec, json_t **ret_params, struct faults *f)
{
    json_auto_t *full = spec_write_out(doc), *params = NULL, *task = NULL;
    size_t before = f->n + f->more;

    if (!full)
        return -ENOMEM;
    task = spec_fill_task(full, spec, position, job, &params, f);
    if (!task)
        return f->n + f->more > before ? -EINVAL : -ENOMEM;
    TRY(spec_from_json(task, ret_spec, f));
    if (ret_params)
        *ret_params = json_incref(params);
    return 0;
}

/* A task's faults are told once for all tasks: the first that has some stands for the others. */
static bool check_task(const json_t *full, const struct job_spec *spec, size_t position, struct faults *f)
{
    struct faults own = {.n = 0};
    json_auto_t *task = spec_fill_task(full, spec, position, "j0", NULL, &own);
    struct job_spec *one = NULL;
    bool good = task && spec_from_json(task, &one, &own) == 0;

    spec_free(one);
    if (task)
        spec_check_paths(task, &own);
    good = good && own.n == 0;
    for (size_t i = 0; i < own.n; i++)
        faults_add(f, own.v[i].pointer, "%s (of task %zu)", own.v[i].message, position);
    faults_clear(&own);
    return good;
}

void spec_check_tasks(const json_t *doc, const struct job_spec *spec, struct faults *f)
{
    json_auto_t *full = spec_write_out(doc);
    size_t n = spec->array.tasks, stride = spec_combinations(spec->array.matrix), left = CHECKED_MAX, last = n;
    bool good = full != NULL;
    const char *name;
    json_t *v;

    for (size_t i = 0; good && i < CHECKED_EVENLY; i++, left--) {
        size_t at = n <= CHECKED_EVENLY ? i : i * (n - 1) / (CHECKED_EVENLY - 1);

        if (at >= n || at == last)
            continue;
        good = check_task(full, spec, at, f);
        last = at;
    }
    json_object_foreach (spec->array.matrix, name, v) {
        stride /= json_array_size(v);
        for (size_t i = 0; good && left > 0 && i < json_array_size(v) && i * stride < n; i++, left--)
            good = check_task(full, spec, i * stride, f);
    }
}
