/* The body of a batch script: its launchers and Slurm's variables. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "api/cli/slurm.h"

/* A word of a line: [at, end). Quotes are kept together; a backslash before a line's end counts as a blank. */
static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (isspace((unsigned char)*at) || (at + 1 < end && at[0] == '\\' && at[1] == '\n')))
        at++;
    return at;
}

static const char *word_end(const char *at, const char *end)
{
    char quote = 0;

    for (; at < end; at++) {
        if (quote) {
            if (*at == quote)
                quote = 0;
        } else if (*at == '"' || *at == '\'') {
            quote = *at;
        } else if (isspace((unsigned char)*at) || (at + 1 < end && at[0] == '\\' && at[1] == '\n')) {
            break;
        } else if (*at == '\\' && at + 1 < end) {
            at++;
        }
    }
    return at;
}

static bool is(const char *at, const char *end, const char *word)
{
    size_t len = strlen(word);

    return (size_t)(end - at) == len && memcmp(at, word, len) == 0;
}

static bool one_of(const char *at, const char *end, const char *const *words)
{
    for (; *words; words++)
        if (is(at, end, *words))
            return true;
    return false;
}

/* The place after a launcher's own options, of which those in flags and the short ones in letters take no value. */
static const char *skip_options(const char *at, const char *end, const char *const *flags, const char *letters)
{
    for (;;) {
        const char *word = skip_blanks(at, end), *stop = word_end(word, end);
        bool takes;

        if (word == end || *word != '-')
            return word;
        if (is(word, stop, "--"))
            return skip_blanks(stop, end);
        if (word[1] == '-')
            takes = !memchr(word, '=', (size_t)(stop - word)) && !one_of(word, stop, flags);
        else
            takes = stop - word == 2 && !strchr(letters, word[1]);
        at = stop;
        if (takes)
            at = word_end(skip_blanks(at, end), end);
    }
}

static const char *const srun_flags[] = {"--label",   "--unbuffered", "--exclusive",    "--overlap",          "--pty",
                                         "--verbose", "--quiet",      "--preserve-env", "--kill-on-bad-exit", NULL};
static const char *const torchrun_flags[] = {"--standalone", "--no-python", "--no_python", "--run-path",
                                             "--run_path",   "--module",    NULL};

int slurm_unwrap(const char *line, size_t len, struct buf *out)
{
    const char *end = line + len, *at = line, *word = skip_blanks(at, end), *stop = word_end(word, end);
    int n = 0;
    bool python = false, module = false;

    /* What stands before stays as it is: variables for the program. */
    while (word < end && (isalpha((unsigned char)*word) || *word == '_') && memchr(word, '=', (size_t)(stop - word))) {
        word = skip_blanks(stop, end);
        stop = word_end(word, end);
    }
    if (is(word, stop, "exec")) {
        word = skip_blanks(stop, end);
        stop = word_end(word, end);
    }
    (void)buf_add(out, at, (size_t)(word - at));
    if (is(word, stop, "srun")) {
        word = skip_options(stop, end, srun_flags, "luKvQEOs");
        stop = word_end(word, end);
        n++;
    }
    at = word;
    if (is(word, stop, "torchrun")) {
        at = stop;
        python = true;
    } else if (is(word, stop, "python") || is(word, stop, "python3")) {
        const char *m = skip_blanks(stop, end), *m_end = word_end(m, end), *name = skip_blanks(m_end, end);

        at = word_end(name, end);
        if (is(m, m_end, "-m") && (is(name, at, "torch.distributed.run") || is(name, at, "torch.distributed.launch")))
            python = true;
    }
    if (python) {
        const char *options = at;

        at = skip_options(at, end, torchrun_flags, "m");
        for (const char *p = options; p < at; p = word_end(skip_blanks(p, end), end))
            module = module || is(skip_blanks(p, end), word_end(skip_blanks(p, end), end), "-m") ||
                     is(skip_blanks(p, end), word_end(skip_blanks(p, end), end), "--module");
        (void)buf_addstr(out, module ? "python3 -m " : "python3 ");
        n++;
    } else {
        at = word;
    }
    (void)buf_add(out, at, (size_t)(end - at));
    return n;
}

void slurm_note(json_t *notes, size_t line, const char *what, const char *text)
{
    (void)json_array_append_new(notes,
                                json_pack("{s:I, s:s, s:s}", "line", (json_int_t)line, "what", what, "text", text));
}

static bool reads(const char *text, const char *name, size_t *ret_line)
{
    size_t len = strlen(name);

    for (const char *at = text; (at = strstr(at, name)); at += len) {
        bool begins = at > text && (at[-1] == '$' || at[-1] == '{' || at[-1] == '"' || at[-1] == '\'');

        if (!begins || isalnum((unsigned char)at[len]) || at[len] == '_')
            continue;
        *ret_line = 1;
        for (const char *p = text; p < at; p++)
            *ret_line += *p == '\n';
        return true;
    }
    return false;
}

void slurm_variables(const char *text, const char *name, const struct slurm_ask *ask, struct buf *out, json_t *notes)
{
    static const char *const pairs[][2] = {
        {"SLURM_PROCID", "$RANK"},
        {"SLURM_LOCALID", "$LOCAL_RANK"},
        {"SLURM_NODEID", "$NODE_RANK"},
        {"SLURM_NTASKS", "$WORLD_SIZE"},
        {"SLURM_NPROCS", "$WORLD_SIZE"},
        {"SLURM_NTASKS_PER_NODE", "$LOCAL_WORLD_SIZE"},
        {"SLURM_TASKS_PER_NODE", "$LOCAL_WORLD_SIZE"},
        {"SLURM_GPUS_ON_NODE", "$LOCAL_WORLD_SIZE"},
        {"SLURM_JOB_ID", "$MUSTER_JOB"},
        {"SLURM_JOBID", "$MUSTER_JOB"},
        {"SLURM_RESTART_COUNT", "$((MUSTER_GENERATION - 1))"},
        {"SLURM_SUBMIT_DIR", "$PWD"},
        {"SLURM_ARRAY_TASK_ID", "$MUSTER_ARRAY_INDEX"},
        {"SLURM_ARRAY_JOB_ID", "$MUSTER_ARRAY_JOB"},
        {"SLURM_ARRAY_TASK_COUNT", "$MUSTER_ARRAY_COUNT"},
    };
    static const char *const none[][2] = {
        {"SLURM_JOB_NODELIST", "Muster sets MASTER_ADDR and MASTER_PORT itself: take out what computes them"},
        {"SLURM_NODELIST", "Muster sets MASTER_ADDR and MASTER_PORT itself: take out what computes them"},
        {"SLURM_NNODES", "the number of nodes is Muster's choice: use $WORLD_SIZE and $LOCAL_WORLD_SIZE"},
        {"SLURM_JOB_NUM_NODES", "the number of nodes is Muster's choice: use $WORLD_SIZE and $LOCAL_WORLD_SIZE"},
        {"SLURM_TMPDIR", "use $MUSTER_RUN_DIR, this attempt's folder on its node"},
        {"SLURM_JOB_PARTITION", "Muster has no partitions, but classes of devices"},
    };
    size_t line;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (reads(text, pairs[i][0], &line))
            (void)buf_printf(out, "export %s=\"%s\"\n", pairs[i][0], pairs[i][1]);
    if (reads(text, "SLURM_JOB_NAME", &line))
        (void)buf_printf(out, "export SLURM_JOB_NAME=\"%s\"\n", name);
    if (ask->cpus_per_task && reads(text, "SLURM_CPUS_PER_TASK", &line))
        (void)buf_printf(out, "export SLURM_CPUS_PER_TASK=%ld\n", ask->cpus_per_task);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        if (reads(text, none[i][0], &line))
            slurm_note(notes, line, none[i][0], none[i][1]);
}
