#include "worker/engine/recover/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/engine/recover/fetch.h"
#include "worker/snapshot/flush.h"
#include "worker/engine/recover/guard.h"
#include "worker/engine/recover/repair.h"
#include "worker/engine/recover/rebuild.h"
#include "worker/snapshot/stream.h"

#define VIEW ".view" /* folder of the snapshot being read */

struct recover {
    struct recover_cfg cfg;
    char dir[MCK_PATH_MAX], view[MCK_PATH_MAX];
    int *leader; /* [nodes] ranks */
    int nodes, node;
    bool leads;
    struct comm_group *leaders; /* NULL on other ranks and where there is one node */
    struct survey *survey;
    struct recover_stats stats;
};

static double seconds_since(int64_t began_us)
{
    return (double)(clock_mono_us() - began_us) * 1e-6;
}

/* Whether any rank failed. Returns the world's own failure. */
static int any_failed(struct recover *r, int code, bool *ret, struct merr *err)
{
    double failed = code != 0;

    TRY(comm_all_reduce(r->cfg.all, &failed, 1, COMM_F64, COMM_SUM, err));
    *ret = failed > 0;
    return 0;
}

/* --- what there is --------------------------------------------------------------------------------------- */

/* The leaders' pieces to all ranks. */
static int exchange(struct recover *r, const struct buf *own, struct merr *err)
{
    size_t n = (size_t)r->cfg.size, *bytes = calloc(n, sizeof(*bytes)), *at = calloc(n, sizeof(*at)), all = 0;
    uint64_t mine = own->len, *told = calloc(n, sizeof(*told));
    char *pieces = NULL;
    int code = bytes && at && told ? 0 : merr_set(err, -ENOMEM, "no memory for %d ranks", r->cfg.size);

    if (code == 0)
        code = comm_all_gather(r->cfg.all, &mine, sizeof(mine), told, err);
    for (int i = 0; i < r->cfg.size && code == 0; i++) {
        at[i] = all;
        all += bytes[i] = told[i];
    }
    if (code == 0 && !(pieces = malloc(all + 1)))
        code = merr_set(err, -ENOMEM, "no memory for what %d nodes have", r->nodes);
    if (code == 0)
        code = comm_all_gather_v(r->cfg.all, buf_text(own), bytes, at, pieces, err);
    for (int i = 0; i < r->nodes && code == 0; i++)
        code = survey_add(r->survey, i, pieces + at[r->leader[i]], bytes[r->leader[i]], err);
    free(pieces);
    free(told);
    free(at);
    free(bytes);
    return code;
}

static int look(struct recover *r, struct merr *err)
{
    struct merr why = {""};
    struct buf own;
    bool failed;
    int code = 0;

    buf_init(&own, SURVEY_BYTES_MAX);
    if (r->leads && r->dir[0])
        code = survey_scan(r->dir, &own, &why);
    if (code == 0 && !r->dir[0] && r->cfg.source_nodes == 0)
        code = -ENOENT; /* without room for what it is sent a node cannot go on from memory */
    code = any_failed(r, code, &failed, err);
    if (code == 0 && !failed)
        code = exchange(r, &own, err);
    buf_clear(&own);
    return code;
}

int recover_open(const struct recover_cfg *cfg, struct recover **ret, struct merr *err)
{
    struct recover *r = calloc(1, sizeof(*r));
    int64_t began = clock_mono_us();
    int code;

    if (r)
        r->leader = calloc((size_t)cfg->size, sizeof(*r->leader));
    if (!r || !r->leader) {
        free(r);
        return merr_set(err, -ENOMEM, "no memory to look at snapshots");
    }
    r->cfg = *cfg;
    (void)snprintf(r->dir, sizeof(r->dir), "%s", cfg->dir);
    r->nodes = guard_leaders(cfg->node_of, cfg->size, r->leader);
    while (r->leader[r->node] != cfg->node_of[cfg->rank])
        r->node++;
    r->leads = cfg->node_of[cfg->rank] == cfg->rank;
    r->survey = survey_new(r->nodes);
    code = r->survey ? 0 : merr_set(err, -ENOMEM, "no memory to look at snapshots");
    if (code == 0 && r->leads && r->nodes > 1)
        code = comm_group_new(cfg->world, "leaders", r->leader, r->nodes, &r->leaders, err);
    if (code == 0)
        code = look(r, err);
    r->stats.survey_s = seconds_since(began);
    if (code != 0)
        recover_free(r);
    else
        *ret = r;
    return code;
}

void recover_free(struct recover *r)
{
    char path[MCK_PATH_MAX];

    if (!r)
        return;
    if (r->leads && r->dir[0] && folder_join(r->dir, VIEW, path, NULL) == 0)
        (void)io_remove_tree(path, NULL); /* what stays is removed before the next one is made */
    survey_free(r->survey);
    free(r->leader);
    free(r);
}

int recover_newest(const struct recover *r, uint64_t limit, uint64_t *ret_step, struct merr *ret_lost, struct merr *err)
{
    struct survey_plan plan;
    int found = survey_newest(r->survey, limit, &plan, ret_lost, err);

    if (found == 1) {
        *ret_step = plan.step;
        survey_plan_clear(&plan);
    }
    return found;
}

const struct recover_stats *recover_stats(const struct recover *r)
{
    return &r->stats;
}

/* --- a lost node's files --------------------------------------------------------------------------------- */

/* The node with the fewest data files of those that train: a new one, where there is one. */
static int emptiest(const struct recover *r, const struct survey_plan *plan)
{
    uint32_t least = UINT32_MAX;
    int best = 0;

    for (int node = 0; node < r->nodes - r->cfg.source_nodes; node++) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < plan->writers; i++)
            n += plan->node[i] == node;
        if (n < least) {
            least = n;
            best = node;
        }
    }
    return best;
}

static int rebuild(struct recover *r, struct survey_plan *plan, int *own, struct merr *why, struct merr *err)
{
    int64_t began = clock_mono_us();

    for (int i = 0; i < plan->losses; i++) {
        const struct survey_loss *l = &plan->loss[i];
        const struct parity_member *m = &l->p.member[l->member];
        struct rebuild_cfg cfg = {.dir = r->dir,
                                  .world = r->cfg.world,
                                  .leader = r->leader,
                                  .node = r->node,
                                  .target = emptiest(r, plan),
                                  .plan = plan,
                                  .loss = l};
        int failed = 0;

        if (r->leads)
            TRY(rebuild_loss(&cfg, &failed, *own ? NULL : why, err));
        *own = *own ? *own : failed;
        for (uint32_t k = m->first; k < m->first + m->parts; k++)
            plan->node[l->p.part[k].rank] = cfg.target;
        r->stats.rebuilt_bytes += m->bytes;
    }
    r->stats.rebuild_s += seconds_since(began);
    return 0;
}

/* --- the folder that reads as a checkpoint --------------------------------------------------------------- */

struct ends { /* of a data file: what lies outside its chunks */
    int32_t code;
    uint32_t zero;
    uint64_t file_bytes, tail_at;
};

/* Put the own file into the view, and read where its chunks end. */
static int show_own(const struct recover *r, const char *folder, uint32_t rank, struct ends *ret, struct merr *err)
{
    char from[STREAM_PATH_MAX], to[STREAM_PATH_MAX];
    IO_CLOSE_AUTO int fd = -1;
    struct mck_footer f;
    struct stat st;

    stream_path(folder, rank, "", from);
    stream_path(r->view, rank, "", to);
    if (link(from, to) != 0)
        return merr_errno(err, -errno, "cannot link '%s'", to);
    fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return merr_errno(err, -errno, "cannot open '%s'", from);
    if (st.st_size < (off_t)(sizeof(f) + MCK_ALIGN))
        return merr_set(err, -EBADMSG, "'%s' is cut short", from);
    TRY(input_read_at(fd, from, (uint64_t)st.st_size - sizeof(f), &f, sizeof(f), err));
    if (f.index_off < MCK_ALIGN || f.index_off > (uint64_t)st.st_size ||
        (uint64_t)st.st_size - f.index_off > MCK_INDEX_MAX + 2 * MCK_ALIGN)
        return merr_set(err, -EBADMSG, "'%s': its index lies outside the file", from);
    *ret = (struct ends){.file_bytes = (uint64_t)st.st_size, .tail_at = f.index_off};
    return 0;
}

static int read_ends(const char *folder, uint32_t rank, const struct ends *e, char *data, struct merr *err)
{
    char path[STREAM_PATH_MAX];
    IO_CLOSE_AUTO int fd = -1;

    stream_path(folder, rank, "", path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    TRY(input_read_at(fd, path, 0, data, MCK_ALIGN, err));
    return input_read_at(fd, path, e->tail_at, data + MCK_ALIGN, e->file_bytes - e->tail_at, err);
}

/* Another node's file: its ends, and holes for the chunks that may come. */
static int write_ends(const char *folder, uint32_t rank, const struct ends *e, const char *data, struct merr *err)
{
    char path[STREAM_PATH_MAX];
    IO_CLOSE_AUTO int fd = -1;

    stream_path(folder, rank, "", path);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make '%s'", path);
    TRY(stream_write_at(fd, path, 0, data, MCK_ALIGN, err));
    return stream_write_at(fd, path, e->tail_at, data + MCK_ALIGN, e->file_bytes - e->tail_at, err);
}

/* The file of a rank, on every node. */
static int show_file(struct recover *r, const struct survey_plan *plan, const char *folder, uint32_t rank, int *own,
                     struct merr *why, struct merr *err)
{
    bool mine = plan->node[rank] == r->node;
    struct ends e = {0};
    char *data;
    int code = 0;

    if (mine)
        e.code = show_own(r, folder, rank, &e, why);
    if (mine && e.code != 0)
        *own = e.code;
    if (!r->leaders)
        return 0;
    TRY(comm_broadcast(r->leaders, &e, sizeof(e), plan->node[rank], err));
    if (e.code != 0)
        return 0; /* its node says so at the end */
    data = calloc(1, MCK_ALIGN + (e.file_bytes - e.tail_at));
    if (!data)
        return merr_set(err, -ENOMEM, "no memory for an index of %llu bytes",
                        (unsigned long long)(e.file_bytes - e.tail_at));
    if (mine && *own == 0)
        *own = read_ends(r->view, rank, &e, data, why);
    code = comm_broadcast(r->leaders, data, MCK_ALIGN + (e.file_bytes - e.tail_at), plan->node[rank], err);
    if (code == 0 && !mine && *own == 0)
        *own = write_ends(r->view, rank, &e, data, why);
    free(data);
    return code;
}

static int write_manifest(struct recover *r, const struct survey_plan *plan, const char *base, struct merr *err)
{
    struct mck_index ix;
    int code;

    TRY(coordinate_merge(r->view, plan->writers, &ix, err));
    code = coordinate_write_manifest(&ix, base, r->view, 0, false, err);
    index_clear(&ix);
    return code;
}

/* On the leaders. */
static int make_view(struct recover *r, const struct survey_plan *plan, int *own, struct merr *why, struct merr *err)
{
    char folder[MCK_PATH_MAX], base[MCK_PATH_MAX];

    *own = folder_join(r->dir, VIEW, base, why);
    if (*own == 0)
        *own = folder_step_path(r->dir, plan->step, NULL, folder, why);
    if (*own == 0)
        *own = io_remove_tree(base, why);
    if (*own == 0)
        *own = io_mkdirs(r->view, 0700, why);
    for (uint32_t i = 0; i < plan->writers; i++) {
        int code = *own; /* a node that has failed goes on with the others to the end */

        TRY(show_file(r, plan, folder, i, &code, code ? NULL : why, err));
        *own = *own ? *own : code;
    }
    if (*own == 0)
        *own = write_manifest(r, plan, base, why);
    return 0;
}

/* --- all together ---------------------------------------------------------------------------------------- */

/* The chunks that go from node to node. */
static int fetch(struct recover *r, const struct survey_plan *plan, recover_needed *needed, void *arg, int *own,
                 struct merr *why, struct merr *err)
{
    struct fetch_cfg cfg = {.all = r->cfg.all,
                            .leaders = r->leaders,
                            .node_of = r->cfg.node_of,
                            .leader = r->leader,
                            .rank = r->cfg.rank,
                            .size = r->cfg.size,
                            .nodes = r->nodes,
                            .node = r->node,
                            .folder = r->view,
                            .owner = plan->node,
                            .needed = needed,
                            .arg = arg};
    struct mck *c = NULL;
    bool failed;
    int code;

    *own = mck_open_path(r->view, &c, why);
    code = any_failed(r, *own, &failed, err);
    if (code == 0 && !failed)
        code = fetch_chunks(&cfg, c, &r->stats.fetched_bytes, own, why, err);
    mck_free(c);
    return code;
}

static int gather(struct recover *r, struct survey_plan *plan, recover_needed *needed, void *arg, int *own,
                  struct merr *why, struct merr *err)
{
    int64_t began;
    bool failed;

    if (!r->dir[0])
        *own = merr_set(why, -ENOENT, "this node has no memory to put a snapshot into");
    TRY(any_failed(r, *own, &failed, err));
    if (failed)
        return 0;
    TRY(rebuild(r, plan, own, why, err));
    TRY(any_failed(r, *own, &failed, err));
    if (failed)
        return 0;
    began = clock_mono_us();
    if (r->leads)
        TRY(make_view(r, plan, own, why, err));
    TRY(any_failed(r, *own, &failed, err)); /* and the view is there for the node's other ranks */
    if (!failed && r->nodes > 1)
        TRY(fetch(r, plan, needed, arg, own, why, err));
    r->stats.gather_s += seconds_since(began);
    r->stats.source = plan->losses ? "parity" : r->stats.fetched_bytes ? "peers" : "memory";
    return 0;
}

int recover_gather(struct recover *r, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path,
                   int *ret_own, struct merr *why, struct merr *err)
{
    struct survey_plan plan;
    char base[MCK_PATH_MAX];
    int code, found = survey_newest(r->survey, limit, &plan, NULL, err);

    *ret_own = 0;
    if (found != 1)
        return found < 0 ? found : merr_set(err, -ENOENT, "no snapshot is below the step asked for");
    code = folder_join(r->dir, VIEW, base, err);
    if (code == 0)
        code = folder_step_path(base, plan.step, NULL, r->view, err);
    if (code == 0)
        code = gather(r, &plan, needed, arg, ret_own, why, err);
    *ret_path = r->view;
    survey_plan_clear(&plan);
    return code;
}

int recover_flush(struct recover *r, uint64_t limit, const char *disk, uint64_t generation, int *ret_own,
                  struct merr *why, struct merr *err)
{
    struct survey_plan plan;
    struct flush_cfg cfg = {.dir = r->dir, .disk = disk, .generation = generation, .plan = &plan, .node = r->node};
    bool failed = true;
    int code = survey_newest(r->survey, limit, &plan, NULL, err);

    *ret_own = 0;
    if (code != 1)
        return code < 0 ? code : merr_set(err, -ENOENT, "no snapshot is below the step asked for");
    if (plan.losses)
        *ret_own = merr_set(why, -ENODATA, "a part of the snapshot would have to be made from parity first");
    else if (r->leads)
        *ret_own = flush_parts(&cfg, why);
    code = any_failed(r, *ret_own, &failed, err);
    if (code == 0 && !failed && r->cfg.rank == 0)
        *ret_own = flush_commit(&cfg, why);
    if (code == 0 && !failed)
        code = any_failed(r, *ret_own, &failed, err);
    if (code == 0 && failed && *ret_own == 0)
        *ret_own = merr_set(why, -ECOMM, "another rank could not write its part");
    survey_plan_clear(&plan);
    return code;
}

int recover_repair(struct recover *r, uint64_t limit, uint64_t *ret_chunks, int *ret_own, struct merr *why,
                   struct merr *err)
{
    struct survey_plan plan;
    double chunks = 0;
    int code = survey_newest(r->survey, limit, &plan, NULL, err);

    *ret_own = 0;
    *ret_chunks = 0;
    if (code != 1)
        return code;
    code = 0;
    for (int i = 0; i < plan.wholes && r->leads && code == 0; i++) {
        struct repair_cfg cfg = {
            .dir = r->dir, .world = r->cfg.world, .leader = r->leader, .node = r->node, .group = &plan.whole[i]};
        uint64_t repaired;
        int own;

        code = repair_group(&cfg, &repaired, &own, why, err);
        chunks += (double)repaired;
        *ret_own = own ? own : *ret_own;
    }
    survey_plan_clear(&plan);
    TRY(code);
    TRY(comm_all_reduce(r->cfg.all, &chunks, 1, COMM_F64, COMM_SUM, err));
    *ret_chunks = (uint64_t)chunks;
    return 0;
}
