#include "worker/engine/train/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/try.h"
#include "checkpoint/parts.h"

struct list {
    struct mck_buffer *v;
    size_t n;
};

/* The part of a box that lies in [begin, end) of the weight arena, if any; data holds element begin of that. */
static void add_part(struct list *l, const struct param *q, const struct param_box *x, enum mck_role role, size_t begin,
                     size_t end, float *data, int bucket, bool replica)
{
    size_t n = x->len[0] * (q->ndim > 1 ? x->len[1] : 1), at = q->at + x->at;
    size_t from = at > begin ? at : begin, to = at + n < end ? at + n : end;
    struct mck_buffer *b;

    if (from >= to)
        return;
    b = &l->v[l->n++];
    *b = (struct mck_buffer){
        .name = q->name,
        .role = role,
        .dtype = MCK_F32,
        .ndim = q->ndim,
        .shape = {q->shape[0], q->shape[1]},
        .off = {x->off[0], x->off[1]},
        .len = {x->len[0], x->len[1]},
        .data = data + (from - begin),
        .bucket = bucket,
        .replica = replica,
    };
    if (to - from < n) {
        b->sub_begin = from - at;
        b->sub_end = to - at;
    }
    if (to == q->at + q->n) /* zeros up to the next tensor */
        b->pad = (PARAM_BLOCK - q->n % PARAM_BLOCK) % PARAM_BLOCK * sizeof(float);
}

static int list_new(const struct params *p, struct list *l, struct merr *err)
{
    /* a box may be cut by both ranges: three roles each */
    *l = (struct list){calloc((size_t)p->n * PARAM_BOXES_MAX * 6 + 1, sizeof(*l->v)), 0};
    return l->v ? 0 : merr_set(err, -ENOMEM, "no memory for the list of tensors");
}

/* The weights that this rank is the one of its replicas to update. */
static void add_masters(struct list *l, const struct state_view *s, const struct param *q, const struct param_box *x,
                        int bucket, bool replica)
{
    for (int i = 0; i < 2; i++) {
        const struct optim_range *r = &s->range[i];

        add_part(l, q, x, MCK_MASTER, r->begin, r->end, s->master ? s->master + r->state : s->weights + r->begin,
                 bucket, replica);
    }
}

static void add_moments(struct list *l, const struct state_view *s, const struct param *q, const struct param_box *x,
                        int bucket, bool replica)
{
    for (int i = 0; i < 2; i++) {
        const struct optim_range *r = &s->range[i];

        add_part(l, q, x, MCK_MOMENT1, r->begin, r->end, s->m + r->state, bucket, replica);
        add_part(l, q, x, MCK_MOMENT2, r->begin, r->end, s->v + r->state, bucket, replica);
    }
}

int state_save_list(const struct state_view *s, struct mck_buffer **ret, size_t *ret_n, struct merr *err)
{
    struct list l;

    TRY(list_new(s->params, &l, err));
    for (int i = 0; i < s->params->n; i++) {
        const struct param *q = s->params->by_place[i];
        bool replica = q->copy || s->mesh->cp_index > 0 || (!s->zero && s->mesh->dp_index > 0);

        for (int j = 0; j < q->boxes; j++) {
            add_masters(&l, s, q, &q->box[j], i, replica);
            add_moments(&l, s, q, &q->box[j], i, replica);
        }
    }
    *ret = l.v;
    *ret_n = l.n;
    return 0;
}

static int load_list(const struct state_view *s, struct list *ret, struct merr *err)
{
    TRY(list_new(s->params, ret, err));
    for (int i = 0; i < s->params->n; i++) {
        const struct param *q = &s->params->v[i];

        for (int j = 0; j < q->boxes; j++) {
            if (s->own || s->master)
                add_masters(ret, s, q, &q->box[j], i, false);
            else
                add_part(ret, q, &q->box[j], MCK_MASTER, 0, s->params->weight_n, s->weights, i, false);
            if (s->range && s->m)
                add_moments(ret, s, q, &q->box[j], i, false);
        }
    }
    return 0;
}

int state_load(const struct state_view *s, struct mck *c, struct merr *err)
{
    struct list l;
    int r;

    TRY(load_list(s, &l, err));
    r = mck_load_on(c, l.v, l.n, s->device, 0, err);
    free(l.v);
    return r;
}

int state_needed(const struct state_view *s, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk),
                 void *arg, struct merr *err)
{
    struct list l;
    int r;

    TRY(load_list(s, &l, err));
    r = mck_needed(c, l.v, l.n, take, arg, err);
    free(l.v);
    return r;
}

static bool exists(const char *folder, const char *name)
{
    char path[4096 + 64];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

static int open_newest(const char *path, struct mck **ret, struct merr *err)
{
    uint64_t step;
    int found = mck_latest(path, &step, NULL, err);

    if (found < 0)
        return found;
    if (found == 0)
        return merr_set(err, -ENOENT, "'%s' holds no checkpoint and no model.safetensors", path);
    return mck_open(path, step, ret, err);
}

/* "folder:step": the folder's part and the step. */
static bool split_step(const char *path, char folder[4096], uint64_t *ret_step)
{
    const char *colon = strrchr(path, ':');
    char *end;

    if (!colon || colon == path || colon - path >= 4096 || colon[1] < '0' || colon[1] > '9')
        return false;
    errno = 0;
    *ret_step = strtoull(colon + 1, &end, 10);
    if (*end || errno)
        return false;
    (void)snprintf(folder, 4096, "%.*s", (int)(colon - path), path);
    return true;
}

int state_open(const char *path, struct mck **ret, struct merr *err)
{
    char folder[4096];
    uint64_t step;
    struct stat st;

    if (strlen(path) >= sizeof(folder))
        return merr_set(err, -EINVAL, "the path of the weights is too long");
    if (stat(path, &st) != 0) {
        if (errno == ENOENT && split_step(path, folder, &step))
            return mck_open(folder, step, ret, err);
        return merr_errno(err, -errno, "cannot open the weights '%s'", path);
    }
    if (!S_ISDIR(st.st_mode))
        return mck_open_safetensors(path, ret, err);
    if (exists(path, "MANIFEST"))
        return mck_open_path(path, ret, err);
    if (exists(path, "model.safetensors") || exists(path, "model.safetensors.index.json"))
        return mck_open_safetensors(path, ret, err);
    return open_newest(path, ret, err);
}
