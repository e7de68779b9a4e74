#include "worker/agent/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "base/utf8.h"
#include "worker/agent/shim.h"

#define SEQ_MAX (INT64_C(1) << 53) /* of a number that every reader of JSON takes whole */
#define LAUNCHED_MAX 4096          /* results of one launcher that are looked at */

const char *const program_order_names[PROGRAM_ORDERS] = {"none", "save", "stop", "scale", "abort"};

/* --- texts ------------------------------------------------------------------------------------------- */

static json_t *parse(const char *text, size_t n)
{
    json_t *doc = n <= PROGRAM_FILE_MAX ? json_loadb(text, n, 0, NULL) : NULL;

    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    return NULL;
}

static int64_t step_of(const json_t *doc)
{
    json_int_t step = json_integer_value(json_object_get(doc, "step"));

    return json_is_integer(json_object_get(doc, "step")) && step >= 0 ? (int64_t)step : -1;
}

int program_parse_result(const char *text, size_t n, struct program_result *ret)
{
    static const char *const outcomes[] = {
        [EXIT_SAID_DONE] = "done", [EXIT_SAID_STOPPED] = "stopped", [EXIT_SAID_FAILED] = "failed"};
    static const struct {
        const char *name;
        enum exit_cause cause;
    } classes[] = {{"user", EXIT_CAUSE_USER}, {"system", EXIT_CAUSE_INTERNAL}, {"node", EXIT_CAUSE_NODE}};
    json_auto_t *doc = parse(text, n);
    const char *outcome = json_string_value(json_object_get(doc, "outcome"));
    const char *class_ = json_string_value(json_object_get(doc, "class"));
    const char *message = json_string_value(json_object_get(doc, "message"));
    struct program_result r = {.cause = EXIT_CAUSE_USER, .step = step_of(doc)};

    for (int i = EXIT_SAID_DONE; outcome && i <= EXIT_SAID_FAILED; i++)
        if (strcmp(outcome, outcomes[i]) == 0)
            r.outcome = (enum exit_said)i;
    if (r.outcome == EXIT_SAID_NOTHING)
        return -EINVAL;
    for (size_t i = 0; class_ && i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(class_, classes[i].name) == 0)
            r.cause = classes[i].cause;
    utf8_copy(r.message, sizeof(r.message), message ? message : "");
    *ret = r;
    return 0;
}

int program_parse_beat(const char *text, size_t n, struct program_beat *ret)
{
    json_auto_t *doc = parse(text, n);
    const json_t *at = json_object_get(doc, "at"), *for_s = json_object_get(doc, "for_s");
    const char *section = json_string_value(json_object_get(doc, "section"));
    double at_s = json_number_value(at), s = json_number_value(for_s);
    struct program_beat b = {.step = step_of(doc)};

    if (!json_is_number(at) || !(at_s >= 0 && at_s < 1e12))
        return -EINVAL;
    b.at_us = (int64_t)(at_s * 1e6);
    if (section && s > 0) {
        b.for_us = (int64_t)((s < PROGRAM_FOR_S_MAX ? s : PROGRAM_FOR_S_MAX) * 1e6);
        utf8_copy(b.section, sizeof(b.section), section);
    }
    *ret = b;
    return 0;
}

static int parse_seq(const json_t *doc, uint64_t *ret_seq)
{
    json_int_t seq = json_integer_value(json_object_get(doc, "seq"));

    if (seq < 1 || seq > SEQ_MAX)
        return -EINVAL;
    *ret_seq = (uint64_t)seq;
    return 0;
}

int program_parse_ack(const char *text, size_t n, struct report_ack *ret)
{
    json_auto_t *doc = parse(text, n);
    const char *did = json_string_value(json_object_get(doc, "did"));
    uint64_t seq;

    if (parse_seq(doc, &seq) < 0)
        return -EINVAL;
    *ret = (struct report_ack){.seq = (int64_t)seq, .step = step_of(doc)};
    for (int i = REPORT_DID_SAVE; did && i < REPORT_DIDS; i++)
        if (strcmp(did, report_did_names[i]) == 0)
            ret->did = (enum report_did)i;
    return 0;
}

int program_parse_order(const char *text, size_t n, enum program_order *ret, uint64_t *ret_seq)
{
    json_auto_t *doc = parse(text, n);
    const char *order = json_string_value(json_object_get(doc, "order"));

    for (int i = 0; order && i < PROGRAM_ORDERS; i++)
        if (strcmp(order, program_order_names[i]) == 0 && parse_seq(doc, ret_seq) == 0) {
            *ret = (enum program_order)i;
            return 0;
        }
    return -EINVAL;
}

/* --- files ------------------------------------------------------------------------------------------- */

/* A file's text, which ends in NUL, and its length. Of the folder's owner or, where that lets others into it, of
 * them. */
static ssize_t read_text(const char *path, bool ours_alone, char text[PROGRAM_FILE_MAX + 1])
{
    IO_CLOSE_AUTO int fd = -1;
    struct stat st;
    ssize_t n;

    fd = io_open_plain(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -errno;
    if (ours_alone && st.st_uid != geteuid())
        return -EPERM;
    if (st.st_size > PROGRAM_FILE_MAX)
        return -EMSGSIZE;
    n = io_read_full(fd, text, PROGRAM_FILE_MAX);
    if (n >= 0)
        text[n] = '\0';
    return n;
}

/* A rank's account may be another than ours: then the folder is shared with it alone (account.h). */
static ssize_t read_rank(const char *folder, int rank, const char *suffix, char text[PROGRAM_FILE_MAX + 1])
{
    char path[PATH_MAX];
    struct stat st;
    bool ours_alone = stat(folder, &st) < 0 || !(st.st_mode & S_IWGRP);

    return read_text(shim_path(path, sizeof(path), folder, rank, suffix), ours_alone, text);
}

int program_read_result(const char *folder, int rank, struct program_result *ret)
{
    char text[PROGRAM_FILE_MAX + 1];
    ssize_t n = read_rank(folder, rank, "result", text);

    return n < 0 ? (int)n : program_parse_result(text, (size_t)n, ret);
}

int program_read_beat(const char *folder, int rank, struct program_beat *ret)
{
    char text[PROGRAM_FILE_MAX + 1];
    ssize_t n = read_rank(folder, rank, "beat", text);

    return n < 0 ? (int)n : program_parse_beat(text, (size_t)n, ret);
}

int program_read_ack(const char *folder, int rank, struct report_ack *ret)
{
    char text[PROGRAM_FILE_MAX + 1];
    ssize_t n = read_rank(folder, rank, "ack", text);

    return n < 0 ? (int)n : program_parse_ack(text, (size_t)n, ret);
}

static int read_order(const char *folder, enum program_order *ret, uint64_t *ret_seq)
{
    char path[PATH_MAX + 16], text[PROGRAM_FILE_MAX + 1];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/order.json", folder);
    n = read_text(path, true, text);
    return n < 0 ? (int)n : program_parse_order(text, (size_t)n, ret, ret_seq);
}

/* --- ends -------------------------------------------------------------------------------------------- */

struct heard {
    size_t of[EXIT_SAID_FAILED + 1];
    struct program_result worst; /* the first that has failed, else any */
    int rank;                    /* whose it is */
};

static void hear_rank(void *arg, const char *folder, int rank)
{
    struct heard *h = arg;
    struct program_result r;
    struct report_ack ack;

    if (program_read_result(folder, rank, &r) == 0) {
        if (h->worst.outcome != EXIT_SAID_FAILED) {
            h->worst = r;
            h->rank = rank;
        }
        h->of[r.outcome]++;
    } else if (program_read_ack(folder, rank, &ack) == 0) {
        h->of[EXIT_SAID_HEARD]++;
    }
}

/* Call fn for each rank that has left a result or an acknowledgement. */
static void each_heard(const char *folder, void (*fn)(void *arg, const char *folder, int rank), void *arg)
{
    DIR *dir = opendir(folder);
    struct dirent *e;

    for (int seen = 0; dir && seen < LAUNCHED_MAX && (e = readdir(dir));) {
        static const char *const suffix[] = {"result", "ack"};
        char name[NAME_MAX + 1];
        int rank = -1;

        for (size_t i = 0; i < 2; i++) {
            if (sscanf(e->d_name, "rank-%5d.", &rank) != 1 || rank < 0)
                break;
            (void)snprintf(name, sizeof(name), "rank-%05d.%s", rank, suffix[i]);
            if (strcmp(name, e->d_name) == 0) {
                fn(arg, folder, rank);
                seen++;
            }
        }
    }
    if (dir)
        (void)closedir(dir);
}

void program_hear(const char *folder, int rank, int n, struct exit_seen *seen)
{
    struct heard h = {.worst = {.outcome = EXIT_SAID_NOTHING}};
    enum program_order order;
    uint64_t seq;

    if (n == 0)
        each_heard(folder, hear_rank, &h);
    for (int i = 0; i < n; i++)
        hear_rank(&h, folder, rank + i);
    if (h.of[EXIT_SAID_FAILED] > 0) {
        seen->said = EXIT_SAID_FAILED;
        seen->said_cause = h.worst.cause;
        if (h.rank != rank && *h.worst.message)
            (void)snprintf(seen->said_why, sizeof(seen->said_why), "rank %d: %.180s", h.rank, h.worst.message);
        else
            (void)snprintf(seen->said_why, sizeof(seen->said_why), "%s", h.worst.message);
    } else if (h.of[EXIT_SAID_STOPPED] > 0 && h.of[EXIT_SAID_HEARD] == 0) {
        seen->said = EXIT_SAID_STOPPED;
    } else if (h.of[EXIT_SAID_DONE] > 0) {
        seen->said = EXIT_SAID_DONE;
    } else if (h.of[EXIT_SAID_HEARD] > 0) {
        seen->said = EXIT_SAID_HEARD;
    }
    /* Who reads the order as it comes may end before its signal does. */
    if (seen->said != EXIT_SAID_NOTHING && !seen->asked && read_order(folder, &order, &seq) == 0)
        seen->asked = order >= PROGRAM_STOP;
}

/* --- what the agent tells ---------------------------------------------------------------------------- */

static int publish(const char *folder, const char *name, json_t *doc, struct merr *err)
{
    char path[PATH_MAX + 16], *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    int r;

    json_decref(doc);
    if (!text)
        return merr_set(err, -ENOMEM, "no memory to write '%s'", name);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    r = io_publish_file(path, text, strlen(text), 0640, err);
    free(text);
    return r;
}

int program_publish_abi(const char *folder, struct merr *err)
{
    return publish(folder, "abi.json",
                   json_pack("{s:i, s:i, s:[s,s,s,s]}", "abi", PROGRAM_ABI, "minor", 0, "features", "metrics", "orders",
                             "beat", "result"),
                   err);
}

struct answer {
    uint64_t seq;
    bool given;
};

static void look_for_answer(void *arg, const char *folder, int rank)
{
    struct answer *a = arg;
    struct report_ack ack;

    a->given = a->given || (program_read_ack(folder, rank, &ack) == 0 && (uint64_t)ack.seq >= a->seq);
}

/* Whether an order stands that is to be obeyed yet: an agent that was started anew has it from its server again. */
static bool still_stands(const char *folder, enum program_order order, uint64_t seq)
{
    struct answer a = {.seq = seq};

    if (order == PROGRAM_GO_ON)
        return false;
    each_heard(folder, look_for_answer, &a);
    return !a.given;
}

int program_publish_order(const char *folder, const struct program_telling *t, struct merr *err)
{
    json_t *doc, *devices, *deadline = json_null();
    enum program_order before = PROGRAM_GO_ON;
    char at[CLOCK_RFC3339_MAX];
    uint64_t seq = 0;

    if (read_order(folder, &before, &seq) < 0 || seq >= SEQ_MAX)
        seq = 0;
    if (before == t->order && still_stands(folder, before, seq))
        return 0;
    devices = json_pack("{s:i}", "now", t->devices_now);
    if (t->deadline_us > 0) {
        clock_rfc3339(t->deadline_us, at);
        deadline = json_string(at);
    }
    if (t->devices_next > 0)
        (void)json_object_set_new(devices, "next", json_integer(t->devices_next));
    doc = json_pack("{s:i, s:I, s:s, s:o, s:s, s:o}", "v", PROGRAM_ABI, "seq", (json_int_t)(seq + 1), "order",
                    program_order_names[t->order], "deadline", deadline, "reason", t->reason, "devices", devices);
    return publish(folder, "order.json", doc, err);
}
