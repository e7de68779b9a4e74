/* The directives of a batch script. */
#include "api/cli/slurm.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 1024 /* bytes of a directive's value */
#define COUNT_MAX 1000000
#define HOSTS_MAX 1024 /* named by one list */

struct reading {
    json_t *spec, *notes;
    struct slurm_ask ask;
    char name[64];
    size_t line;
};

struct directive {
    char letter;
    const char *name;
    int (*take)(struct reading *r, const char *value); /* < 0: not such a value; NULL: no counterpart */
    const char *text; /* what to do instead, where there is no counterpart or a part of it is lost */
    enum { VALUE, FLAG, MAYBE } form;
    size_t field; /* of struct slurm_ask, for take_count */
};

static json_t *member(json_t *of, const char *key)
{
    json_t *o = json_object_get(of, key);

    if (!o) {
        o = json_object();
        (void)json_object_set_new(of, key, o);
    }
    return o;
}

static int number(const char *text, long *ret)
{
    char *end;

    errno = 0;
    *ret = strtol(text, &end, 10);
    return !isdigit((unsigned char)*text) || errno || *end || *ret > COUNT_MAX ? -EINVAL : 0;
}

int slurm_time(const char *text, long *ret_s)
{
    long part[3], days = 0;
    const char *dash = strchr(text, '-');
    int n = 0;

    if (strcmp(text, "UNLIMITED") == 0 || strcmp(text, "INFINITE") == 0 || strcmp(text, "0") == 0) {
        *ret_s = 0;
        return 0;
    }
    for (const char *at = text; n < 3;) {
        char *end;

        if (!isdigit((unsigned char)*at))
            return -EINVAL;
        errno = 0;
        part[n] = strtol(at, &end, 10);
        if (errno || part[n] > COUNT_MAX)
            return -EINVAL;
        if (dash && end == dash && n == 0 && days == 0) {
            days = part[0];
            at = end + 1;
            dash = NULL;
            if (*at)
                continue;
            return -EINVAL;
        }
        n++;
        if (!*end)
            break;
        if (*end != ':' || n == 3)
            return -EINVAL;
        at = end + 1;
    }
    if (strchr(text, '-')) /* D-H, D-H:M, D-H:M:S */
        *ret_s = days * 86400 + part[0] * 3600 + (n > 1 ? part[1] * 60 : 0) + (n > 2 ? part[2] : 0);
    else /* M, M:S, H:M:S */
        *ret_s = n == 3 ? part[0] * 3600 + part[1] * 60 + part[2] : part[0] * 60 + (n > 1 ? part[1] : 0);
    return 0;
}

int slurm_memory(const char *text, long *ret_mib)
{
    char *end;

    errno = 0;
    *ret_mib = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno || *ret_mib > (1L << 40))
        return -EINVAL;
    switch (toupper((unsigned char)*end)) {
    case 'K':
        *ret_mib = (*ret_mib + 1023) / 1024;
        break;
    case 'G':
        *ret_mib *= 1024;
        break;
    case 'T':
        *ret_mib *= 1024L * 1024;
        break;
    case 'M':
        break;
    case '\0':
        return 0;
    default:
        return -EINVAL;
    }
    return end[1] ? -EINVAL : 0;
}

/* The names that begin with the first head bytes of text and end with what is in its brackets. */
static int add_range(const char *text, int head, const char *from, const char *to, json_t *names)
{
    for (const char *at = from; at < to;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        int width = (int)(end - at);

        if (!isdigit((unsigned char)*at))
            return -EINVAL;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (!isdigit((unsigned char)*at))
                return -EINVAL;
        }
        if (last < first || last - first > HOSTS_MAX || end > to || width > 9)
            return -EINVAL;
        for (long i = first; i <= last && json_array_size(names) <= HOSTS_MAX; i++)
            (void)json_array_append_new(names, json_sprintf("%.*s%0*ld", head, text, width, i));
        if (end < to && *end != ',')
            return -EINVAL;
        at = end + 1;
    }
    return 0;
}

int slurm_hosts(const char *text, json_t *names)
{
    while (*text) {
        size_t len = strcspn(text, ",[");

        if (text[len] == '[') {
            const char *close = strchr(text, ']');

            if (!close || (close[1] && close[1] != ',') || add_range(text, (int)len, text + len + 1, close, names) < 0)
                return -EINVAL;
            text = close + 1;
        } else {
            if (!len)
                return -EINVAL;
            (void)json_array_append_new(names, json_stringn(text, len));
            text += len;
        }
        if (*text == ',')
            text++;
    }
    return json_array_size(names) > HOSTS_MAX ? -EINVAL : 0;
}

static int take_name(struct reading *r, const char *value)
{
    size_t n = 0;

    for (const char *p = value; *p && n < sizeof(r->name) - 1; p++)
        r->name[n++] = isalnum((unsigned char)*p) || strchr("._-", *p) ? *p : '-';
    r->name[n] = '\0';
    if (!n)
        return -EINVAL;
    return json_object_set_new(r->spec, "name", json_string(r->name));
}

static int take_account(struct reading *r, const char *value)
{
    return json_object_set_new(r->spec, "project", json_string(value));
}

static int take_time(struct reading *r, const char *value)
{
    long s;

    if (slurm_time(value, &s) < 0)
        return -EINVAL;
    if (s)
        (void)json_object_set_new(member(r->spec, "limits"), "time_s", json_integer(s));
    return 0;
}

/* [B:]SIG[@S] */
static int take_signal(struct reading *r, const char *value)
{
    static const char *const names[] = {[1] = "HUP", [2] = "INT", [10] = "USR1", [12] = "USR2", [15] = "TERM"};
    static const char *const warnings[] = {"USR1", "USR2", "HUP", "INT"};
    char word[32];
    const char *at = strchr(value, ':') ? strchr(value, ':') + 1 : value, *when = strchr(at, '@');
    long s = 60, n = 0;
    bool known = false;
    json_t *limits;

    (void)snprintf(word, sizeof(word), "%.*s", (int)(when ? when - at : (long)strlen(at)), at);
    if (when && number(when + 1, &s) < 0)
        return -EINVAL;
    if (number(word, &n) == 0)
        (void)snprintf(word, sizeof(word), "%s",
                       n < (long)(sizeof(names) / sizeof(names[0])) && names[n] ? names[n] : "");
    if (!*word)
        return -EINVAL;
    for (size_t i = 0; !known && i < 4; i++)
        known = strcmp(word + (strncmp(word, "SIG", 3) == 0 ? 3 : 0), warnings[i]) == 0;
    if (!known) {
        slurm_note(r->notes, r->line, "--signal", "Muster warns by SIGUSR1, SIGUSR2, SIGHUP or SIGINT");
        return 0;
    }
    limits = member(r->spec, "limits");
    (void)json_object_set_new(limits, "warn_s", json_integer(s));
    return json_object_set_new(limits, "warn_signal",
                               json_sprintf("%s%s", strncmp(word, "SIG", 3) == 0 ? "" : "SIG", word));
}

/* 0-99:2%8 */
static int take_array(struct reading *r, const char *value)
{
    const char *most = strchr(value, '%');
    json_t *array = member(r->spec, "array");
    long n;

    (void)json_object_set_new(array, "index", json_stringn(value, most ? (size_t)(most - value) : strlen(value)));
    if (!most)
        return 0;
    if (number(most + 1, &n) < 0)
        return -EINVAL;
    return json_object_set_new(array, "max_running", json_integer(n));
}

static int take_exclude(struct reading *r, const char *value)
{
    json_t *names = json_array();
    int bad = slurm_hosts(value, names);

    (void)json_object_set_new(member(r->spec, "devices"), "exclude", names);
    return bad;
}

static int take_folder(struct reading *r, const char *value)
{
    return json_object_set_new(member(r->spec, "command"), "workdir", json_string(value));
}

/* NAME=VALUE,ALL,NAME */
static int take_export(struct reading *r, const char *value)
{
    char copy[WORD_MAX], *rest = copy;

    (void)snprintf(copy, sizeof(copy), "%s", value);
    for (char *one; (one = strsep(&rest, ","));) {
        char *equals = strchr(one, '=');

        if (equals) {
            *equals = '\0';
            (void)json_object_set_new(member(member(r->spec, "command"), "env"), one, json_string(equals + 1));
        } else if (strcmp(one, "NONE") != 0 && *one) {
            slurm_note(r->notes, r->line, "--export",
                       "variables of the shell that submits do not reach the job: name them in command.env");
        }
    }
    return 0;
}

static int take_no_requeue(struct reading *r, const char *value)
{
    (void)value;
    return json_object_set_new(member(r->spec, "retry"), "max", json_integer(0));
}

static int add_class(struct reading *r, const char *name, size_t len)
{
    json_t *devices = member(r->spec, "devices"), *classes = json_object_get(devices, "classes");

    if (!classes) {
        classes = json_array();
        (void)json_object_set_new(devices, "classes", classes);
        slurm_note(r->notes, r->line, "a type of GPU", "see that `muster nodes` has a class of devices of this name");
    }
    return json_array_append_new(classes, json_stringn(name, len));
}

/* [TYPE:]N */
static int gpus(struct reading *r, const char *value, long *ret)
{
    const char *colon = strrchr(value, ':');

    if (!colon && !isdigit((unsigned char)*value)) {
        *ret = 1;
        return add_class(r, value, strlen(value));
    }
    if (colon)
        (void)add_class(r, value, (size_t)(colon - value));
    return number(colon ? colon + 1 : value, ret);
}

static int take_gpus(struct reading *r, const char *value)
{
    return gpus(r, value, &r->ask.gpus);
}

static int take_gpus_per_node(struct reading *r, const char *value)
{
    return gpus(r, value, &r->ask.gpus_per_node);
}

static int take_gpus_per_task(struct reading *r, const char *value)
{
    return gpus(r, value, &r->ask.gpus_per_task);
}

static int take_gres(struct reading *r, const char *value)
{
    if (strncmp(value, "gpu", 3) != 0 || (value[3] && value[3] != ':') || strchr(value, ',')) {
        slurm_note(r->notes, r->line, "--gres", "Muster gives devices alone: name them by devices");
        return 0;
    }
    if (!value[3]) {
        r->ask.gpus_per_node = 1;
        return 0;
    }
    return gpus(r, value + 4, &r->ask.gpus_per_node);
}

/* N, or N-M of which the lower counts. */
static int take_nodes(struct reading *r, const char *value)
{
    char low[32];

    (void)snprintf(low, sizeof(low), "%.*s", (int)strcspn(value, "-"), value);
    return number(low, &r->ask.nodes);
}

#define ASK(f) offsetof(struct slurm_ask, f)
#define COUNTED(letter, name, f)                                                                                       \
    {                                                                                                                  \
        letter, name, NULL, NULL, VALUE, ASK(f) + 1                                                                    \
    }

static const char no_partition[] = "Muster has no partitions: name classes of devices by devices.classes";
static const char no_output[] = "`muster logs JOB` shows what each rank prints";
static const char no_ids[] = "names a job of Slurm: give the one of Muster by `muster submit --after JOB`";

static const struct directive directives[] = {
    {'J', "job-name", take_name, NULL, VALUE, 0},
    {'A', "account", take_account, NULL, VALUE, 0},
    {'t', "time", take_time, NULL, VALUE, 0},
    {0, "signal", take_signal, NULL, VALUE, 0},
    {'a', "array", take_array, NULL, VALUE, 0},
    {'N', "nodes", take_nodes, NULL, VALUE, 0},
    COUNTED('n', "ntasks", tasks),
    COUNTED(0, "ntasks-per-node", tasks_per_node),
    COUNTED('c', "cpus-per-task", cpus_per_task),
    COUNTED(0, "mem", node_mib),
    COUNTED(0, "mem-per-cpu", cpu_mib),
    COUNTED(0, "mem-per-gpu", gpu_mib),
    {'G', "gpus", take_gpus, NULL, VALUE, 0},
    {0, "gpus-per-node", take_gpus_per_node, NULL, VALUE, 0},
    {0, "gpus-per-task", take_gpus_per_task, NULL, VALUE, 0},
    {0, "gres", take_gres, NULL, VALUE, 0},
    {'x', "exclude", take_exclude, NULL, VALUE, 0},
    {'D', "chdir", take_folder, NULL, VALUE, 0},
    {0, "export", take_export, NULL, VALUE, 0},
    {0, "requeue", NULL, "", FLAG, 0}, /* as Muster does */
    {0, "no-requeue", take_no_requeue, NULL, FLAG, 0},
    {'p', "partition", NULL, no_partition, VALUE, 0},
    {'q', "qos", NULL, "use priority (0 to 100) and projects", VALUE, 0},
    {'o', "output", NULL, no_output, VALUE, 0},
    {'e', "error", NULL, no_output, VALUE, 0},
    {'i', "input", NULL, "a job's standard input is empty: redirect it in the command", VALUE, 0},
    {'d', "dependency", NULL, no_ids, VALUE, 0},
    {'C', "constraint", NULL, "name classes of devices by devices.classes", VALUE, 0},
    {'w', "nodelist", NULL, "Muster chooses the nodes: devices.exclude names those that are not wanted", VALUE, 0},
    {'W', "wait", NULL, "`muster submit --follow` waits for the job's end", FLAG, 0},
    {'H', "hold", NULL, "`muster suspend JOB` holds a job, `muster resume JOB` lets it go on", FLAG, 0},
    {0, "exclusive", NULL, "a device belongs to one rank; ask for all devices of a node", MAYBE, 0},
    {'s', "oversubscribe", NULL, "a device belongs to one rank", FLAG, 0},
    {0, "nice", NULL, "use priority (0 to 100)", MAYBE, 0},
    {0, "priority", NULL, "use priority (0 to 100)", VALUE, 0},
    {0, "mail-type", NULL, "Muster sends no mail", VALUE, 0},
    {0, "mail-user", NULL, "Muster sends no mail", VALUE, 0},
    {0, "comment", NULL, "use labels", VALUE, 0},
    {0, "overcommit", NULL, "a device belongs to one rank", FLAG, 0},
    {'O', "overcommit", NULL, "a device belongs to one rank", FLAG, 0},
    {0, "contiguous", NULL, "Muster chooses the nodes", FLAG, 0},
    {0, "spread-job", NULL, "Muster chooses the nodes", FLAG, 0},
    {'Q', "quiet", NULL, "", FLAG, 0},
    {'v', "verbose", NULL, "", FLAG, 0},
    {0, "parsable", NULL, "", FLAG, 0},
    {0, "get-user-env", NULL, "variables of a login shell: `#!/bin/bash -l`", MAYBE, 0},
    {0, "open-mode", NULL, no_output, VALUE, 0},
};

static const struct directive *find(const char *name, size_t len, char letter)
{
    for (size_t i = 0; i < sizeof(directives) / sizeof(directives[0]); i++)
        if (letter ? directives[i].letter == letter
                   : name && strlen(directives[i].name) == len && memcmp(directives[i].name, name, len) == 0)
            return &directives[i];
    return NULL;
}

static int take(struct reading *r, const struct directive *d, const char *value, struct merr *err)
{
    char what[WORD_MAX + 64];
    int bad = 0;

    if (d->take)
        bad = d->take(r, value);
    else if (d->field && strncmp(d->name, "mem", 3) == 0)
        bad = slurm_memory(value, (long *)((char *)&r->ask + d->field - 1));
    else if (d->field)
        bad = number(value, (long *)((char *)&r->ask + d->field - 1));
    if (bad < 0)
        return merr_set(err, -EINVAL, "line %zu: '%s' is no value for --%s", r->line, value, d->name);
    if (d->text && *d->text) {
        (void)snprintf(what, sizeof(what), "--%s%s%s", d->name, *value ? "=" : "", value);
        slurm_note(r->notes, r->line, what, d->text);
    }
    return 0;
}

/* The next word of a directive, quotes taken off. False at the line's end or a comment. */
static bool next_word(const char **at, char *word)
{
    size_t n = 0;
    char quote = 0;
    const char *p = *at + strspn(*at, " \t\r");

    if (!*p || *p == '\n' || *p == '#')
        return false;
    for (; *p && *p != '\n' && (quote || !strchr(" \t\r", *p)); p++) {
        if (quote ? *p == quote : *p == '"' || *p == '\'')
            quote = quote ? 0 : *p;
        else if (n < WORD_MAX - 1)
            word[n++] = *p;
    }
    word[n] = '\0';
    *at = p;
    return true;
}

static int read_directive(struct reading *r, const char *at, struct merr *err)
{
    char word[WORD_MAX], next[WORD_MAX];

    while (next_word(&at, word)) {
        bool is_long = strncmp(word, "--", 2) == 0;
        const char *equals = is_long ? strchr(word, '=') : NULL, *value = "";
        const struct directive *d = is_long ? find(word + 2, equals ? (size_t)(equals - word - 2) : strlen(word) - 2, 0)
                                    : word[0] == '-' && word[1] ? find(NULL, 0, word[1])
                                                                : NULL;

        if (!d) {
            slurm_note(r->notes, r->line, word, "has no counterpart");
            return 0; /* whether the next word is its value is not known */
        }
        if (equals)
            value = equals + 1;
        else if (!is_long && word[2])
            value = word + 2 + (word[2] == '=');
        else if (d->form == VALUE)
            value = next_word(&at, next) ? next : "";
        if (d->form == VALUE && !*value)
            return merr_set(err, -EINVAL, "line %zu: --%s wants a value", r->line, d->name);
        if (take(r, d, value, err) < 0)
            return -EINVAL;
    }
    return 0;
}

/* How many devices, and what each rank may take, of what was asked for nodes and tasks. */
static void size_job(struct reading *r)
{
    const struct slurm_ask *a = &r->ask;
    long nodes = a->nodes ? a->nodes : 1, devices, mib;
    long tasks = a->tasks ? a->tasks : a->tasks_per_node ? a->tasks_per_node * nodes : nodes;
    json_t *o = member(r->spec, "devices");

    devices = a->gpus ? a->gpus : a->gpus_per_node ? a->gpus_per_node * nodes : a->gpus_per_task * tasks;
    if (!devices)
        devices = tasks;
    (void)json_object_set_new(o, "min", json_integer(devices));
    (void)json_object_set_new(o, "max", json_integer(devices));
    if (a->cpus_per_task)
        (void)json_object_set_new(member(r->spec, "resources"), "cpus",
                                  json_real((double)a->cpus_per_task * (double)tasks / (double)devices));
    mib = a->gpu_mib   ? a->gpu_mib
          : a->cpu_mib ? a->cpu_mib * (a->cpus_per_task ? a->cpus_per_task : 1) * tasks / devices
                       : a->node_mib * nodes / devices;
    if (mib)
        (void)json_object_set_new(member(r->spec, "resources"), "memory_mib", json_integer(mib));
}

/* The notes in the order of their lines. */
static json_t *sorted(const json_t *notes)
{
    json_t *ret = json_array(), *note;
    size_t i, at;

    json_array_foreach (notes, i, note) {
        for (at = json_array_size(ret); at > 0; at--)
            if (json_integer_value(json_object_get(json_array_get(ret, at - 1), "line")) <=
                json_integer_value(json_object_get(note, "line")))
                break;
        (void)json_array_insert(ret, at, note);
    }
    return ret;
}

/* The spec as people write one. */
static json_t *ordered(const json_t *spec)
{
    static const char *const order[] = {"name",   "project", "devices", "resources",
                                        "limits", "array",   "retry",   "command"};
    json_t *ret = json_object();

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (json_object_get(spec, order[i]))
            (void)json_object_set(ret, order[i], json_object_get(spec, order[i]));
    return ret;
}

/* The script less its directives, its launchers taken off. Commands that only Slurm has are noted. */
static void read_body(struct reading *r, const char *text, bool shell, struct buf *body)
{
    static const char *const foreign[][2] = {
        {"sbatch", "submits another job of Slurm: use `muster submit`"},
        {"scontrol", "asks Slurm: Muster sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
        {"sbcast", "copies to Slurm's nodes: use a shared file system"},
        {"mpirun", "Muster starts one process on each device itself: leave mpirun out"},
        {"mpiexec", "Muster starts one process on each device itself: leave mpiexec out"},
    };
    size_t line = 1, before = 0, launched = 0, first = 0;

    for (const char *at = text; *at; line++) {
        const char *end = at + strcspn(at, "\n");
        size_t from = line;
        int n;

        while (end > at && end[-1] == '\\' && *end == '\n' && shell) { /* goes on in the next line */
            end += 1 + strcspn(end + 1, "\n");
            line++;
        }
        if (strncmp(at, "#SBATCH", 7) != 0 && !(from == 1 && at[0] == '#')) {
            n = shell && *at != '#' ? slurm_unwrap(at, (size_t)(end - at), body) : 0;
            if (!shell || *at == '#')
                (void)buf_add(body, at, (size_t)(end - at));
            (void)buf_addstr(body, "\n");
            if (n && launched++ == 0)
                first = from;
            if (!n && !launched && *at != '#' && end > at && strncmp(at, "module", 6) != 0 &&
                strncmp(at, "export", 6) != 0 && strncmp(at, "source", 6) != 0 && strncmp(at, "set", 3) != 0 &&
                strncmp(at, "cd ", 3) != 0 && strncmp(at, "echo", 4) != 0)
                before = from;
            for (size_t i = 0; shell && i < sizeof(foreign) / sizeof(foreign[0]); i++) {
                const char *found = strstr(at, foreign[i][0]);
                size_t len = strlen(foreign[i][0]);

                if (found && found < end && (found == at || !isalnum((unsigned char)found[-1])) &&
                    !isalnum((unsigned char)found[len]) && *at != '#')
                    slurm_note(r->notes, from, foreign[i][0], foreign[i][1]);
            }
        }
        at = *end ? end + 1 : end;
    }
    if (before && launched)
        slurm_note(
            r->notes, before, "what stands before srun",
            "ran once on the first node under Slurm, and runs on each device here: put what must run once behind "
            "`[ \"$RANK\" = 0 ] &&`");
    if (launched > 1)
        slurm_note(r->notes, first, "several srun", "each of these steps runs on all devices of the job");
}

/* #!/usr/bin/env -S bash -l -> its words, and "-c" */
static int read_interpreter(const char *text, json_t *argv, bool *ret_shell, struct merr *err)
{
    char word[WORD_MAX];
    const char *at = text + 2, *base;
    size_t n = 0;

    if (strncmp(text, "#!", 2) != 0)
        return merr_set(err, -EINVAL, "line 1: want the script's interpreter, such as #!/bin/bash");
    while (next_word(&at, word)) {
        base = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
        if (n == 0 && strcmp(base, "env") != 0 && word[0] != '/')
            break;
        n += json_array_append_new(argv, json_string(word)) == 0;
    }
    base = n ? json_string_value(json_array_get(argv, 0)) : "";
    base = strrchr(base, '/') ? strrchr(base, '/') + 1 : base;
    if (strcmp(base, "env") == 0 && n > 1)
        base = json_string_value(
            json_array_get(argv, strcmp(json_string_value(json_array_get(argv, 1)), "-S") == 0 ? 2 : 1));
    if (!n || !base || (!strstr(base, "sh") && strncmp(base, "python", 6) != 0))
        return merr_set(err, -EINVAL, "line 1: want the script's interpreter, a shell or Python, such as #!/bin/bash");
    *ret_shell = strncmp(base, "python", 6) != 0;
    return json_array_append_new(argv, json_string("-c"));
}

int slurm_read(const char *text, json_t **ret_spec, json_t **ret_notes, struct merr *err)
{
    struct reading r = {.spec = json_object(), .notes = json_array(), .name = "job", .line = 1};
    BUF_CLEAR_AUTO struct buf body, script;
    json_t *argv = json_array();
    json_auto_t *utf8 = json_string(text);
    bool shell = true;
    int ret;

    buf_init(&body, 4 * SLURM_SCRIPT_MAX);
    buf_init(&script, SLURM_SCRIPT_MAX - 1);
    ret = utf8 ? read_interpreter(text, argv, &shell, err) : merr_set(err, -EINVAL, "the script is not UTF-8");
    for (const char *at = text; ret == 0 && *at; r.line++) {
        const char *end = at + strcspn(at, "\n");

        if (strncmp(at, "#SBATCH", 7) == 0 && (at[7] == ' ' || at[7] == '\t'))
            ret = read_directive(&r, at + 7, err);
        else if (*at != '#' && at + strspn(at, " \t\r") < end)
            break; /* later directives are comments, as for sbatch */
        at = *end ? end + 1 : end;
    }
    if (ret == 0) {
        size_job(&r);
        read_body(&r, text, shell, &body);
        if (shell)
            slurm_variables(text, r.name, &r.ask, &script, r.notes);
        (void)buf_addstr(&script, buf_text(&body) + strspn(buf_text(&body), "\n"));
        (void)json_array_append_new(argv, json_string(buf_text(&script)));
        (void)json_object_set(member(r.spec, "command"), "argv", argv);
        if (buf_failed(&script) || buf_failed(&body))
            ret = merr_set(err, -EINVAL, "the script has more than %d bytes", SLURM_SCRIPT_MAX);
    }
    json_decref(argv);
    if (ret < 0) {
        json_decref(r.spec);
        json_decref(r.notes);
        return ret;
    }
    *ret_spec = ordered(r.spec);
    *ret_notes = sorted(r.notes);
    json_decref(r.spec);
    json_decref(r.notes);
    return 0;
}
