#include "api/cli/slurm_batch.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/try.h"

#define WORD_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+:=/,@%[]&|"

/* Without a single quote: it stands in some. */
const char slurm_batch_task[] =
    "set -euf\n"
    "umask 077\n"
    "dir=$(mktemp -d \"${TMPDIR:-/tmp}/muster-agent-$SLURM_JOB_ID-XXXXXX\")\n"
    "trap \"rm -rf \\\"$dir\\\"\" EXIT\n"
    "set -- $MUSTER_CODES\n"
    "shift \"$SLURM_PROCID\"\n"
    "printf \"%s\\n\" \"$1\" >\"$dir/code\"\n"
    "unset MUSTER_CODES\n"
    "class=${MUSTER_CLASS:+=$MUSTER_CLASS}\n"
    "case ${CUDA_VISIBLE_DEVICES-} in\n"
    "\"\" | NoDevFiles) set -- --devices \"cpu:${MUSTER_DEVICES:-$SLURM_CPUS_ON_NODE}$class\" ;;\n"
    "*) set -- --devices \"gpu${MUSTER_DEVICES:+:$MUSTER_DEVICES}$class\" --gpus \"$CUDA_VISIBLE_DEVICES\" ;;\n"
    "esac\n"
    "case ${MUSTER_END-} in\n"
    "\"\" | *[!0-9]*) ;;\n"
    "*) set -- \"$@\" --leave-at \"$MUSTER_END\" ;;\n"
    "esac\n"
    "if [ -n \"${MUSTER_CA-}\" ]; then\n"
    "    printf \"%s\\n\" \"$MUSTER_CA\" >\"$dir/ca.pem\"\n"
    "    set -- \"$@\" --ca-file \"$dir/ca.pem\"\n"
    "fi\n"
    "\"$MUSTER_PROGRAMS/muster-agent\" --server \"$MUSTER_URL\" --join-file \"$dir/code\" --state \"$dir/state\" \\\n"
    "    --leave-within \"$MUSTER_GRACE\" --stop-ranks-on-exit \"$@\" $MUSTER_AGENT &\n"
    "pid=$!\n"
    "trap \"kill -USR1 $pid 2>/dev/null || :\" USR1 TERM INT\n"
    "status=0\n"
    "while kill -0 $pid 2>/dev/null; do\n"
    "    wait $pid && status=0 || status=$?\n"
    "done\n"
    "exit $status\n";

static bool is_word(const char *text)
{
    return *text && strspn(text, WORD_LETTERS) == strlen(text);
}

static int add_word(struct buf *out, const char *option, const char *value, struct merr *err)
{
    if (!value || !*value)
        return 0;
    if (!is_word(value))
        return merr_set(err, -EINVAL, "--%s '%.64s' cannot stand in a batch script", option, value);
    return buf_printf(out, "#SBATCH --%s=%s\n", option, value);
}

/* Words of options, each on a line of its own. */
static int add_options(struct buf *out, const char *text, struct merr *err)
{
    while (text && *(text += strspn(text, " ")) != '\0') {
        size_t len = strcspn(text, " ");

        if (len < 3 || strncmp(text, "--", 2) != 0 || strspn(text, WORD_LETTERS) < len)
            return merr_set(err, -EINVAL, "'%.*s' is no option of sbatch that can stand in a script: want --NAME=VALUE",
                            len < 64 ? (int)len : 64, text);
        TRY(buf_printf(out, "#SBATCH %.*s\n", (int)len, text));
        text += len;
    }
    return 0;
}

static int add_variable(struct buf *out, const char *name, const char *value, struct merr *err)
{
    for (const char *p = value ? value : ""; *p; p++)
        if (*p == '\'' || ((unsigned char)*p < ' ' && *p != '\n') || (unsigned char)*p >= 127)
            return merr_set(err, -EINVAL, "'%.64s' cannot stand in a batch script", value);
    return buf_printf(out, "export %s='%s'\n", name, value ? value : "");
}

static int add_codes(struct buf *out, const json_t *codes, struct merr *err)
{
    const json_t *one;
    size_t i;

    TRY(buf_addstr(out, "export MUSTER_CODES='"));
    json_array_foreach (codes, i, one) {
        const char *code = json_string_value(json_object_get(one, "code"));

        if (!code || !is_word(code))
            return merr_set(err, -EINVAL, "a node has no join code");
        TRY(buf_printf(out, "%s%s", i ? " " : "", code));
    }
    return buf_addstr(out, "'\n");
}

static int write_all(const struct slurm_batch *b, struct buf *out, struct merr *err)
{
    TRY(buf_addstr(out, "#!/bin/sh\n# Agents of Muster, one a node.\n"));
    TRY(add_word(out, "job-name", b->name, err));
    TRY(buf_printf(out, "#SBATCH --nodes=%d\n#SBATCH --ntasks-per-node=1\n#SBATCH --time=%d:%02d\n", b->nodes,
                   b->time_s / 60, b->time_s % 60));
    TRY(buf_printf(out, "#SBATCH --signal=USR1@%d\n#SBATCH --no-requeue\n", b->grace_s));
    TRY(add_word(out, "partition", b->partition, err));
    TRY(add_word(out, "account", b->account, err));
    TRY(add_word(out, "output", b->output, err));
    TRY(add_options(out, b->options, err));
    TRY(add_codes(out, b->codes, err));
    TRY(add_variable(out, "MUSTER_URL", b->server, err));
    TRY(add_variable(out, "MUSTER_CA", b->ca, err));
    TRY(add_variable(out, "MUSTER_PROGRAMS", b->programs, err));
    TRY(add_variable(out, "MUSTER_CLASS", b->class_, err));
    TRY(add_variable(out, "MUSTER_AGENT", b->agent, err));
    TRY(buf_printf(out, "export MUSTER_DEVICES=%.0d MUSTER_GRACE=%d\n", b->devices, b->grace_s));
    TRY(buf_addstr(out, "MUSTER_END=$(SLURM_TIME_FORMAT=%s squeue -h -j \"$SLURM_JOB_ID\" -o %e) || MUSTER_END=\n"
                        "export MUSTER_END\n"));
    return buf_printf(out, "exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 /bin/sh -c '%s'\n",
                      slurm_batch_task);
}

int slurm_batch_write(const struct slurm_batch *b, struct buf *out, struct merr *err)
{
    int r = write_all(b, out, err);

    return r < 0 && r != -EINVAL ? merr_set(err, -ENOMEM, "no memory for a batch script, or it is too large") : r;
}
