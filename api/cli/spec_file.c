/* Spec files: read, changed by --set, paths made absolute; and the words for one that is refused. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/promises.h"
#include "api/spec.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "base/utf8.h"
#include "scheduler/plan/layout.h"

int cli_read_file(const char *file, struct buf *b, struct merr *err)
{
    ssize_t n;
    char *at;

    if (strcmp(file, "-") != 0)
        return io_read_file(file, b, err);
    for (;;) {
        at = buf_reserve(b, 65536);
        if (!at)
            return merr_set(err, -EMSGSIZE, "standard input has more than %zu bytes", b->limit);
        n = io_read_full(STDIN_FILENO, at, 65536);
        if (n < 0)
            return merr_errno(err, (int)n, "cannot read standard input");
        if (n == 0)
            return 0;
        buf_commit(b, (size_t)n);
    }
}

/* By an option. */
static bool brings_files(const struct cli *c)
{
    return cli_takes_program(c->cmd) && (cli_option(c, "upload") || cli_option(c, "git"));
}

/* Paths are relative to where the user stands; the server stands elsewhere. */
static int make_absolute(json_t *o, const char *name)
{
    const char *path = json_string_value(json_object_get(o, name));
    char cwd[PATH_MAX], *full;
    int r;

    if (!path || path[0] == '/' || !*path || strncmp(path, "${{", 3) == 0) /* an array's tasks say which it is */
        return 0;
    if (!getcwd(cwd, sizeof(cwd)) || asprintf(&full, "%s/%s", cwd, strncmp(path, "./", 2) == 0 ? path + 2 : path) < 0)
        return -ENOMEM;
    r = json_object_set_new(o, name, json_string(full));
    free(full);
    return r;
}

static int make_all_absolute(const struct cli *c, json_t *doc)
{
    json_t *train = json_object_get(doc, "train");

    return make_absolute(json_object_get(train, "data"), "path") < 0 ||
                   make_absolute(json_object_get(train, "data"), "tokenizer_path") < 0 ||
                   make_absolute(json_object_get(train, "data"), "index") < 0 ||
                   make_absolute(json_object_get(train, "init"), "from") < 0 ||
                   (!spec_has_source(json_object_get(doc, "command")) && !brings_files(c) &&
                    make_absolute(json_object_get(doc, "command"), "workdir") < 0)
               ? -ENOMEM
               : 0;
}

/* A command that brings its files along runs in them, or in a folder of them. */
static int give_source(const struct cli *c, json_t *command, const char *workdir)
{
    const char *url = cli_takes_program(c->cmd) ? cli_option(c, "git") : NULL;
    const char *ref = url ? cli_option(c, "ref") : NULL;
    int r = 0;

    if (workdir)
        r |= json_object_set_new(command, "workdir", json_string(workdir));
    if (url)
        r |= json_object_set_new(command, "git", json_pack("{s:s, s:s*}", "url", url, "ref", ref));
    return r ? cli_fail(CLI_REFUSED, "--workdir, --git or --ref is not UTF-8") : 0;
}

/* A command runs where its user stands, unless its spec says where. `command: TEXT` becomes what it is short for. */
static int give_workdir(const struct cli *c, json_t *doc)
{
    const char *given = cli_option(c, "workdir");
    json_t *command = json_object_get(doc, "command");
    char cwd[PATH_MAX];

    if (json_is_string(command)) {
        json_t *full = json_pack("{s:[s,s,O]}", "argv", "/bin/sh", "-c", command);

        if (!full || json_object_set_new(doc, "command", full) < 0)
            return cli_fail(CLI_FAILED, "no memory for the spec");
        command = full;
    }
    if (json_is_object(command) && (spec_has_source(command) || brings_files(c)))
        return give_source(c, command, given);
    if (given && !json_is_object(command))
        return cli_fail(CLI_USAGE, "--workdir is of a job with a command");
    if (!json_is_object(command) || (!given && json_object_get(command, "workdir")))
        return 0;
    if (given && !realpath(given, cwd))
        return cli_fail(CLI_NOT_FOUND, "--workdir '%.200s': %s", given, strerror(errno));
    if (!given && !getcwd(cwd, sizeof(cwd)))
        return cli_fail(CLI_FAILED, "cannot tell which folder this is (%s): go to another, or set command.workdir",
                        strerror(errno));
    return json_object_set_new(command, "workdir", json_string(cwd)) < 0
               ? cli_fail(CLI_REFUSED, "the path of this folder is not UTF-8: go to another, or set command.workdir")
               : 0;
}

/* Nothing but blanks and comments. */
static bool is_empty(const char *text)
{
    while (*(text += strspn(text, " \t\r\n")) == '#')
        text += strcspn(text, "\n");
    return !*text;
}

/* What is no object cannot be a spec: say what it is (NULL: nothing at all), and what one looks like. */
static int say_no_spec(const char *file, const json_t *doc)
{
    const char *what = !doc                  ? "is empty"
                       : json_is_array(doc)  ? "is a list"
                       : json_is_string(doc) ? "is one text"
                       : json_is_number(doc) ? "is one number"
                                             : "is one word: null, true or false";

    return cli_fail(CLI_REFUSED,
                    "'%s' %s, not a spec: want fields, of which `train` or `command` is one, such as "
                    "'command: python train.py'",
                    file, what);
}

/* The object under `name` of o to set something in, made where there is none. Borrowed; NULL when another value is
 * there. A model that is a preset's name gets room for sizes. */
static json_t *step_into(json_t *o, const char *name)
{
    json_t *is = json_object_get(o, name);

    if (is && json_is_string(is) && strcmp(name, "model") == 0)
        (void)json_object_set_new(o, name, json_pack("{s:O}", "preset", is));
    else if (!is || json_is_null(is))
        (void)json_object_set_new(o, name, json_object());
    is = json_object_get(o, name);
    return json_is_object(is) ? is : NULL;
}

/* Do one --set PATH=VALUE, as train.steps=20. VALUE is JSON, or plain text when it is not. */
static int set_one(json_t *doc, const char *set)
{
    const char *value = strchr(set, '='), *at = set, *dot;
    char name[64];
    json_t *o = doc, *v;

    if (!value || value == set)
        return cli_fail(CLI_USAGE, "--set '%s': want PATH=VALUE, such as train.steps=200", set);
    for (;; at = dot + 1) {
        size_t len = strcspn(at, ".=");

        dot = at + len;
        if (len == 0 || len >= sizeof(name))
            return cli_fail(CLI_USAGE, "--set '%s': '%.*s' is no path; want names with dots between", set,
                            (int)(value - set), set);
        (void)snprintf(name, sizeof(name), "%.*s", (int)len, at);
        if (*dot == '=')
            break;
        o = step_into(o, name);
        if (!o)
            return cli_fail(CLI_USAGE, "--set '%s': '%.*s' is no object", set, (int)(dot - set), set);
    }
    v = json_loads(value + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!v)
        v = json_string(value + 1);
    if (!v || json_object_set_new(o, name, v) < 0)
        return cli_fail(CLI_USAGE, "--set: the value of '%s' is not UTF-8", name);
    return 0;
}

/* Jobs that an option names, separated by commas, at the end of `after`. */
static int add_after(const struct cli *c, json_t *doc, const char *option, const char *when)
{
    const char *list = cli_option(c, option);
    json_t *after = json_object_get(doc, "after");

    if (list && !json_is_array(after)) {
        after = json_array();
        (void)json_object_set_new(doc, "after", after);
    }
    while (list && *list) {
        size_t n = strcspn(list, ",");
        json_t *job = json_stringn(list, n);

        if (!job || json_array_append_new(after, json_pack("{s:o, s:s}", "job", job, "when", when)) < 0)
            return cli_fail(CLI_USAGE, "--%s wants jobs such as j17,j18", option);
        list += n + (list[n] == ',');
    }
    return 0;
}

/* Past a number of devices; NULL: there is none. */
static const char *take_devices(const char *text, long *ret)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return NULL;
    errno = 0;
    *ret = strtol(text, &end, 10);
    return errno == 0 && *ret >= 1 && *ret <= PLAN_RANKS_MAX ? end : NULL;
}

int cli_devices(const char *text, long *ret_min, long *ret_max)
{
    long min = 0, max = 0;
    const char *end = take_devices(text, &min);

    max = min;
    if (end && *end == '-')
        end = take_devices(end + 1, &max);
    if (!end || *end || max < min)
        return -EINVAL;
    *ret_min = min;
    *ret_max = max;
    return 0;
}

/* --devices and --elastic. */
static int override_devices(const struct cli *c, json_t *doc)
{
    const char *text = cli_option(c, "devices");
    json_t *command = json_object_get(doc, "command");
    long min, max;

    if (text) {
        if (cli_devices(text, &min, &max) < 0)
            return cli_fail(CLI_USAGE, "--devices wants a number from 1 to %d, or a range such as 1-4, not '%s'",
                            PLAN_RANKS_MAX, text);
        if (json_object_set_new(doc, "devices", json_pack("{s:i, s:i}", "min", (int)min, "max", (int)max)) < 0)
            return cli_fail(CLI_FAILED, "no memory for a spec");
    }
    if (!cli_option(c, "elastic"))
        return 0;
    if (!json_is_object(command))
        return cli_fail(CLI_USAGE, "--elastic is of a program; a training job may always have other devices");
    return json_object_set_new(command, "elastic", json_true()) < 0 ? cli_fail(CLI_FAILED, "no memory for a spec") : 0;
}

static int override(const struct cli *c, json_t *doc)
{
    const char *name = cli_option(c, "name"), *project = cli_option(c, "project");
    bool submits = c->cmd->submits;
    const char *time = submits ? cli_option(c, "time") : NULL;
    long priority = cli_number(c, "priority", -1);
    int r = 0, time_s = 0;
    int64_t now = clock_wall_us();

    for (size_t i = 0; i < c->given.n_list; i++) {
        r = set_one(doc, c->given.list[i]);
        if (r)
            return r;
    }
    if (submits) {
        TRY(add_after(c, doc, "after", "ok"));
        TRY(add_after(c, doc, "after-any", "ended"));
        TRY(add_after(c, doc, "after-failed", "failed"));
    }
    if (name)
        r |= json_object_set_new(doc, "name", json_string(name));
    if (project)
        r |= json_object_set_new(doc, "project", json_string(project));
    if (cli_option(c, "reservation"))
        r |= json_object_set_new(doc, "reservation", json_string(cli_option(c, "reservation")));
    if (priority >= 0)
        r |= json_object_set_new(doc, "priority", json_integer(priority));
    if (submits) /* `run` means others */
        TRY(override_devices(c, doc));
    if (time && (times_parse(time, &time_s) < 0 || time_s < 1 || time_s > SPEC_TIME_S_MAX))
        return cli_fail(CLI_USAGE, "--time wants a time up to a year, as 90m, 4h, 4:00:00 or 2-12, not '%s'", time);
    if (submits && cli_option(c, "finish-by"))
        TRY(promises_when("finish-by", cli_option(c, "finish-by"), &now, "finish_by", step_into(doc, "limits")));
    if (time && json_object_set_new(step_into(doc, "limits"), "time_s", json_integer(time_s)) < 0)
        return cli_fail(CLI_USAGE, "'limits' of the spec is no object, so --time cannot be set in it");
    return r ? cli_fail(CLI_USAGE, "--name or --project is not UTF-8") : 0;
}

static int say_faults(const char *file, const json_t *faults)
{
    size_t i, n = json_array_size(faults);
    json_t *one;

    (void)cli_fail(CLI_REFUSED, "'%s' is refused for %zu fault%s", file, n, n == 1 ? "" : "s");
    json_array_foreach (faults, i, one) {
        const char *pointer = cli_str(one, "pointer");

        (void)fprintf(stderr, "  %s:%s%s %s\n", file, pointer, *pointer ? ":" : "", cli_str(one, "message"));
    }
    return CLI_REFUSED;
}

static int say_own_faults(const char *file, struct faults *f)
{
    json_t *all = faults_json(f);
    int r = say_faults(file, all);

    json_decref(all);
    faults_clear(f);
    return r;
}

int cli_check_spec(const char *file, const json_t *doc)
{
    struct faults f = {.n = 0};
    struct job_spec *spec = NULL;
    int r = spec_from_json(doc, &spec, &f);

    if (r == -ENOMEM)
        return cli_fail(CLI_FAILED, "no memory for the spec");
    if (r < 0)
        return say_own_faults(file, &f);
    spec_free(spec);
    return 0;
}

/* Add a fault where what the spec names under pointer cannot be read here. */
static void look_for(const json_t *o, const char *name, const char *pointer, bool may_be_folder, struct faults *f)
{
    const char *path = json_string_value(json_object_get(o, name));
    struct stat s;
    int wrong = 0;

    if (!path || path[0] != '/' || strstr(path, "${{"))
        return;
    if (stat(path, &s) != 0 || access(path, R_OK) != 0)
        wrong = errno;
    else if (!S_ISREG(s.st_mode) && !(may_be_folder && S_ISDIR(s.st_mode)))
        wrong = S_ISDIR(s.st_mode) ? EISDIR : EINVAL;
    if (wrong)
        faults_add(f, pointer, "'%s': %s; give a path that is there, or --no-check-files if only the nodes have it",
                   path, wrong == EINVAL ? "not a plain file" : strerror(wrong));
}

int cli_check_files(const char *file, const json_t *doc)
{
    const json_t *train = json_object_get(doc, "train"), *data = json_object_get(train, "data");
    struct faults files = {.n = 0}, all = {.n = 0};
    struct job_spec *spec = NULL;

    look_for(data, "path", "/train/data/path", false, &files);
    look_for(data, "tokenizer_path", "/train/data/tokenizer_path", true, &files);
    look_for(data, "index", "/train/data/index", false, &files);
    look_for(json_object_get(train, "init"), "from", "/train/init/from", true, &files);
    if (files.n == 0)
        return 0;
    if (spec_from_json(doc, &spec, &all) == 0)
        spec_free(spec);
    for (size_t i = 0; i < files.n; i++)
        faults_add(&all, files.v[i].pointer, "%s", files.v[i].message);
    faults_clear(&files);
    return say_own_faults(file, &all);
}

/* As the command line changes it, with paths that hold everywhere. */
static int finish(const struct cli *c, json_t *doc, json_t **ret_doc)
{
    TRY(override(c, doc));
    TRY(give_workdir(c, doc));
    if (make_all_absolute(c, doc) < 0)
        return cli_fail(CLI_FAILED, "no memory for the spec");
    *ret_doc = json_incref(doc);
    return 0;
}

/* Each of a list of jobs, which the options of one would change alike. */
static int finish_all(const struct cli *c, json_t *doc, json_t **ret_doc)
{
    json_t *one;
    size_t i;

    if (c->given.n_list > 0 || cli_option(c, "name"))
        return cli_fail(CLI_USAGE, "--set and --name are of one job; the file has a list of them");
    json_array_foreach (json_object_get(doc, "jobs"), i, one) {
        json_auto_t *full = NULL;

        if (!json_is_object(one))
            return cli_fail(CLI_REFUSED, "job %zu of the list is no object", i + 1);
        TRY(finish(c, one, &full));
    }
    *ret_doc = json_incref(doc);
    return 0;
}

int cli_read_spec(const struct cli *c, const char *file, json_t **ret_doc)
{
    struct faults f = {.n = 0};
    struct merr err;
    BUF_CLEAR_AUTO struct buf b;
    json_auto_t *doc = NULL;
    int r;

    buf_init(&b, SPEC_TEXT_MAX + 65536);
    r = cli_read_file(file, &b, &err);
    if (r < 0)
        return cli_fail(r == -ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "%s", err.text);
    if (is_empty(buf_text(&b)))
        return say_no_spec(file, NULL);
    if (spec_document(buf_text(&b), b.len, &doc, &f) < 0)
        return say_own_faults(file, &f);
    if (!json_is_object(doc))
        return say_no_spec(file, doc);
    return json_is_array(json_object_get(doc, "jobs")) ? finish_all(c, doc, ret_doc) : finish(c, doc, ret_doc);
}

int cli_spec_again(const struct cli *c, json_t *doc, json_t **ret_doc)
{
    const json_t *env, *value;
    const char *variable;

    (void)json_object_del(doc, "after"); /* it was for that submission */
    TRY(finish(c, doc, ret_doc));
    env = json_object_get(json_object_get(*ret_doc, "command"), "env");
    json_object_foreach ((json_t *)env, variable, value) {
        if (json_is_string(value) && strcmp(json_string_value(value), SPEC_MASK) == 0)
            return cli_fail(CLI_REFUSED,
                            "the value of '%.60s' is for the job's owner alone: give yours with --set "
                            "command.env.%.60s=VALUE",
                            variable, variable);
    }
    return 0;
}

/* What people call the program: its own name, or of an interpreter the script's. */
static const char *program_name(char *const *program)
{
    static const char *const interpreters[] = {"python", "sh", "bash", "perl", "Rscript", "torchrun"};
    const char *base = strrchr(program[0], '/') ? strrchr(program[0], '/') + 1 : program[0], *slash;

    for (size_t i = 0; i < sizeof(interpreters) / sizeof(interpreters[0]); i++)
        if (strncmp(base, interpreters[i], strlen(interpreters[i])) == 0 && program[1] && program[1][0] != '-') {
            slash = strrchr(program[1], '/');
            return slash ? slash + 1 : program[1];
        }
    return base;
}

int cli_program_spec(const struct cli *c, char *const *program, json_t **ret_doc)
{
    json_t *argv = json_array();
    json_auto_t *doc = NULL;
    char name[64];
    int r = 0;

    for (; r == 0 && program[json_array_size(argv)];)
        r = json_array_append_new(argv, json_string(program[json_array_size(argv)]));
    utf8_copy(name, sizeof(name), program_name(program));
    doc =
        json_pack("{s:s, s:{s:i, s:i}, s:{s:o}}", "name", name, "devices", "min", 1, "max", 1, "command", "argv", argv);
    if (r < 0 || !doc)
        return cli_fail(CLI_REFUSED, "the program or one of its arguments is not UTF-8");
    return finish(c, doc, ret_doc);
}

int cli_send_spec(struct cli *c, const char *path, const char *file, const json_t *doc, const char *key, json_t **ret)
{
    struct merr err;
    const json_t *faults;
    int r = cli_connect(c);

    if (r)
        return r;
    r = client_call(c->client, "POST", path, doc, key, ret, &err);
    faults = json_object_get(client_problem(c->client), "errors");
    if (r == -EPERM && json_array_size(faults) > 0)
        return say_faults(file, faults);
    return r < 0 ? cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text) : 0;
}
