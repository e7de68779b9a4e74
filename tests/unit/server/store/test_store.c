/* What a store promises, whatever keeps its data: the same table of cases for Redis and for memory. */
#include "tests/unit/server/store/homes.h"

#include <errno.h>

#include "base/buf.h"
#include "server/store/aside.h"
#include "server/store/history.h"
#include "server/store/history_read.h"
#include "server/store/job_store.h"

#define JOBS 5

static struct store *of(void **state)
{
    return ((struct home *)*state)->store[0];
}

#define DONE(call) assert_int_equal((call), 0)

/* --- tables ------------------------------------------------------------------------------------------ */

/* Rows as "name=text " by name. */
static const char *rows_text(struct store_rows *rows)
{
    static char text[1024];
    size_t at = 0;

    text[0] = '\0';
    for (size_t done = 0; done < rows->n; done++) {
        struct store_row *least = NULL;

        for (size_t i = 0; i < rows->n; i++)
            if (rows->v[i].name && (!least || strcmp(rows->v[i].name, least->name) < 0))
                least = &rows->v[i];
        assert_non_null(least);
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s=%s ", least->name, least->text);
        least->name = NULL;
    }
    store_rows_clear(rows);
    return text;
}

static const char *table_text(struct store *s, enum store_table table)
{
    struct store_rows rows;

    DONE(store_read_rows(s, table, &rows, NULL));
    return rows_text(&rows);
}

static void a_table_has_the_text_that_was_put_last(void **state)
{
    struct store *s = of(state);

    for (int t = 0; t < STORE_TABLES; t++) {
        assert_string_equal(table_text(s, (enum store_table)t), "");
        store_put(s, (enum store_table)t, "a", "1");
        store_put(s, (enum store_table)t, "with space", "{\"x\": \"\xe2\x82\xac\"}");
        store_put(s, (enum store_table)t, "gone", "");
        DONE(home_commit(s));
        assert_string_equal(table_text(s, (enum store_table)t), "a=1 gone= with space={\"x\": \"\xe2\x82\xac\"} ");
        store_put(s, (enum store_table)t, "a", "2");
        store_drop(s, (enum store_table)t, "gone");
        store_drop(s, (enum store_table)t, "never there");
        DONE(home_commit(s));
        assert_string_equal(table_text(s, (enum store_table)t), "a=2 with space={\"x\": \"\xe2\x82\xac\"} ");
    }
}

static const char *removed_text(struct store *s)
{
    struct store_rows rows;
    bool grows = true;

    DONE(store_read_removed(s, &rows, NULL));
    for (size_t i = 1; i < rows.n; i++)
        grows = grows && strtoll(rows.v[i - 1].text, NULL, 10) <= strtoll(rows.v[i].text, NULL, 10);
    assert_true(grows);
    return rows_text(&rows);
}

static void of_removed_agents_the_newest_are_known_for_a_while(void **state)
{
    struct store *s = of(state);

    assert_string_equal(removed_text(s), "");
    for (int i = 0; i < 4; i++) {
        char name[8] = {'n', (char)('0' + i), ' ', 'x', '\0'};

        store_put_removed(s, name, 1000 + 10 * i, 100, 3);
        DONE(home_commit(s));
    }
    assert_string_equal(removed_text(s), "n1 x=1010 n2 x=1020 n3 x=1030 "); /* three at most */
    store_put_removed(s, "n2 x", 1115, 100, 3);                             /* again: it is the newest now */
    DONE(home_commit(s));
    assert_string_equal(removed_text(s), "n2 x=1115 n3 x=1030 "); /* n1 is 105 seconds old */
}

static void device_time_adds_up(void **state)
{
    struct store *s = of(state);

    assert_int_equal(store_read_device_us(s, "p"), 0);
    store_add_device_us(s, "p", INT64_C(3000000000));
    store_add_device_us(s, "other", 7);
    DONE(home_commit(s));
    store_add_device_us(s, "p", 1);
    assert_int_equal(store_read_device_us(s, "p"), INT64_C(3000000000)); /* what is not committed is not there */
    DONE(home_commit(s));
    assert_int_equal(store_read_device_us(s, "p"), INT64_C(3000000001));
}

/* --- jobs -------------------------------------------------------------------------------------------- */

static void put_jobs(struct store *s)
{
    for (uint64_t i = 1; i <= JOBS; i++) {
        char record[32], spec[32];

        (void)snprintf(record, sizeof(record), "record %d", (int)i);
        (void)snprintf(spec, sizeof(spec), "spec %d", (int)i);
        job_store_put(s, i, 0, i * 10, record, spec);
    }
    DONE(home_commit(s));
}

struct taking {
    size_t n, fails_at;
    bool with_spec;
};

static int take(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    static const uint64_t number[] = {5, 4, 3, 2, 1, 9};
    struct taking *t = arg;
    char record[32], spec[32];

    assert_int_equal(i, t->n++);
    (void)snprintf(record, sizeof(record), "record %d", (int)number[i]);
    (void)snprintf(spec, sizeof(spec), "spec %d", (int)number[i]);
    if (i < JOBS) {
        assert_string_equal(stored->record, record);
        assert_int_equal(stored->version, number[i] * 10);
        if (t->with_spec)
            assert_string_equal(stored->spec, spec);
        else
            assert_null(stored->spec);
    } else {
        assert_null(stored->record);
        assert_int_equal(stored->version, 0);
    }
    return i == t->fails_at ? merr_set(err, -EINVAL, "no more") : 0;
}

static int read_each(struct store *s, bool with_spec, size_t fails_at, size_t *ret_n)
{
    static const uint64_t ids[] = {5, 4, 3, 2, 1, 9};
    struct taking t = {.fails_at = fails_at, .with_spec = with_spec};
    int r = job_store_read_each(s, ids, COUNT(ids), with_spec, take, &t, NULL);

    *ret_n = t.n;
    return r;
}

static void jobs_are_read_in_order_up_to_the_first_that_is_refused(void **state)
{
    struct store *s = of(state);
    size_t n;

    put_jobs(s);
    for (int with_spec = 0; with_spec < 2; with_spec++) {
        DONE(read_each(s, with_spec, SIZE_MAX, &n));
        assert_int_equal(n, JOBS + 1);
        assert_int_equal(read_each(s, with_spec, 1, &n), -EINVAL);
        assert_int_equal(n, 2);
    }
    DONE(job_store_read_each(s, NULL, 0, true, take, NULL, NULL));
    DONE(job_store_read(s, 5, take, &(struct taking){.fails_at = SIZE_MAX, .with_spec = true}, NULL));
}

static void a_spec_stays_as_it_was_put_first(void **state)
{
    struct store *s = of(state);
    char *spec;

    put_jobs(s);
    job_store_put(s, 2, 20, 21, "changed", NULL);
    DONE(home_commit(s));
    spec = job_store_read_spec(s, 2);
    assert_string_equal(spec, "spec 2");
    free(spec);
    assert_null(job_store_read_spec(s, 9));
}

/* "3 2 1 " */
static const char *ids_text(struct job_ids *ids)
{
    static char text[256];
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < ids->n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%d ", (int)ids->v[i]);
    job_ids_clear(ids);
    return text;
}

static const char *active_text(struct store *s)
{
    struct job_ids ids;

    DONE(job_store_active(s, &ids, NULL));
    return ids_text(&ids);
}

static const char *below_text(struct store *s, uint64_t below, size_t most)
{
    struct job_ids ids;

    DONE(job_store_ended_below(s, below, most, &ids, NULL));
    return ids_text(&ids);
}

static const char *oldest_text(struct store *s, size_t most)
{
    struct job_ids ids;

    DONE(job_store_ended_oldest(s, most, &ids, NULL));
    return ids_text(&ids);
}

static uint64_t ended_count(struct store *s)
{
    uint64_t n = 0;

    DONE(job_store_ended_count(s, &n, NULL));
    return n;
}

static void jobs_that_end_are_listed_apart_and_counted(void **state)
{
    static const char *const end[] = {"succeeded", "failed", "succeeded"};
    struct job_counters counters;
    struct store *s = of(state);

    assert_string_equal(active_text(s), "");
    assert_string_equal(below_text(s, UINT64_MAX, 9), "");
    assert_int_equal(ended_count(s), 0);
    DONE(job_store_read_counters(s, &counters, NULL));
    assert_int_equal(counters.next_job + counters.next_event + counters.ended[0], 0);
    put_jobs(s);
    assert_string_equal(active_text(s), "1 2 3 4 5 ");
    for (uint64_t i = 0; i < 3; i++) { /* 1, 3, 5 */
        job_store_put(s, 1 + 2 * i, 10 + 20 * i, 99, "over", NULL);
        job_store_end(s, 1 + 2 * i, end[i]);
    }
    job_store_put_counters(s, 6, 77);
    DONE(home_commit(s));
    assert_string_equal(active_text(s), "2 4 ");
    assert_string_equal(below_text(s, 6, 9), "5 3 1 ");
    assert_string_equal(below_text(s, 5, 9), "3 1 ");
    assert_string_equal(below_text(s, 5, 1), "3 ");
    assert_string_equal(below_text(s, 1, 9), "");
    assert_string_equal(oldest_text(s, 2), "1 3 ");
    assert_string_equal(oldest_text(s, 9), "1 3 5 ");
    assert_int_equal(ended_count(s), 3);
    DONE(job_store_read_counters(s, &counters, NULL));
    assert_int_equal(counters.next_job, 6);
    assert_int_equal(counters.next_event, 77);
    assert_int_equal(counters.ended[0], 2);
    assert_int_equal(counters.ended[1], 1);
    assert_int_equal(counters.ended[2], 0);
    job_store_drop(s, 3);
    DONE(home_commit(s));
    assert_string_equal(below_text(s, 6, 9), "5 1 ");
    assert_null(job_store_read_spec(s, 3));
    DONE(job_store_read_counters(s, &counters, NULL));
    assert_int_equal(counters.ended[1], 1); /* those that are forgotten count, too */
}

static void offsets_and_submits_are_remembered(void **state)
{
    struct store *s = of(state);
    uint64_t job = 0, hash = 0;
    int64_t at = -7;

    assert_int_equal(job_store_read_offset(s, 1, "n1", 3, &at), -ENOENT);
    assert_int_equal(at, -7);
    put_jobs(s);
    DONE(job_store_read_offset(s, 1, "n1", 3, &at));
    assert_int_equal(at, 0);
    job_store_put_offset(s, 1, "n1", 3, INT64_C(5000000000));
    job_store_put_offset(s, 1, "n1", 4, 4);
    DONE(home_commit(s));
    DONE(job_store_read_offset(s, 1, "n1", 3, &at));
    assert_int_equal(at, INT64_C(5000000000));
    job_store_drop_offset(s, 1, "n1", 3);
    assert_int_equal(job_store_find_submit(s, "ada:a key", &job, &hash, NULL), -ENOENT);
    job_store_put_submit(s, "ada:a key", 17, UINT64_C(0xfedcba9876543210));
    DONE(home_commit(s));
    DONE(job_store_read_offset(s, 1, "n1", 3, &at));
    assert_int_equal(at, 0);
    DONE(job_store_find_submit(s, "ada:a key", &job, &hash, NULL));
    assert_int_equal(job, 17);
    assert_true(hash == UINT64_C(0xfedcba9876543210));
}

/* --- events ------------------------------------------------------------------------------------------ */

static void add_event(struct store *s, uint64_t id, bool note, uint64_t n)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "{\"id\":\"%d\"}", (int)id);
    if (note)
        history_add_note(s, 1, text, HISTORY_NOTES);
    else
        history_add_state(s, 1, n, text);
    history_add_all(s, id, text, id % 2 ? "ada" : "bob");
}

static uint64_t event_id(const json_t *all, size_t i)
{
    const char *id = json_string_value(json_object_get(json_array_get(all, i), "id"));

    return id ? strtoull(id, NULL, 10) : 0;
}

static void a_job_keeps_its_first_and_its_newest_events(void **state)
{
    struct store *s = of(state);
    uint64_t states = HISTORY_FIRST + HISTORY_RECENT + 7, id = 1, end;
    struct history_gap gap;
    json_t *all;

    DONE(history_read_job(s, 1, 0, 100, false, &all, &end, &gap, NULL));
    assert_int_equal(json_array_size(all) + gap.events, 0);
    json_decref(all);
    job_store_put(s, 1, 0, states, "record", "spec");
    for (uint64_t i = 1; i <= states; i++) { /* a note after each tenth */
        add_event(s, id++, false, i);
        if (i % 10 == 0)
            add_event(s, id++, true, 0);
    }
    DONE(home_commit(s));
    DONE(history_read_job(s, 1, 0, SIZE_MAX / 2, false, &all, &end, &gap, NULL));
    assert_int_equal(json_array_size(all), HISTORY_FIRST + HISTORY_RECENT + states / 10);
    assert_int_equal(gap.events, 7);
    assert_int_equal(gap.before, 1 + 107 + 10); /* the 108th */
    for (size_t i = 1; i < json_array_size(all); i++)
        assert_true(event_id(all, i - 1) < event_id(all, i));
    json_decref(all);
    DONE(history_read_job(s, 1, 500, 3, false, &all, &end, NULL, NULL));
    assert_int_equal(json_array_size(all), 3);
    assert_int_equal(event_id(all, 0), 501);
    json_decref(all);
    DONE(history_read_job(s, 1, 0, 2, true, &all, &end, NULL, NULL));
    assert_int_equal(event_id(all, 0), 11);
    assert_int_equal(event_id(all, 1), 22);
    json_decref(all);
    history_drop(s, 1);
    DONE(home_commit(s));
    DONE(history_read_job(s, 1, 0, 100, false, &all, &end, NULL, NULL));
    assert_int_equal(json_array_size(all), 0);
    json_decref(all);
}

/* Put 40 events of some 100 kB, by turns of the job's state and others. */
static void add_large(struct store *s)
{
    static char text[100000];

    job_store_put(s, 1, 0, 20, "record", "spec");
    for (uint64_t i = 1; i <= 40; i++) {
        int n = snprintf(text, sizeof(text), "{\"id\": \"%llu\", \"at\": \"t\", \"type\": \"x\", \"pad\": \"",
                         (unsigned long long)i);

        memset(text + n, 'y', sizeof(text) - (size_t)n - 3);
        memcpy(text + sizeof(text) - 3, "\"}", 3);
        if (i % 2)
            history_add_state(s, 1, i / 2 + 1, text);
        else
            history_add_note(s, 1, text, HISTORY_NOTES);
        DONE(home_commit(s));
    }
}

static void a_page_of_large_events_ends_at_its_bytes_and_none_is_missed(void **state)
{
    struct store *s = of(state);
    uint64_t end = 0, seen = 0;
    json_t *all;

    add_large(s);
    do {
        size_t bytes = 0;

        DONE(history_read_job(s, 1, end, 1000, false, &all, &end, NULL, NULL));
        for (size_t i = 0; i < json_array_size(all); i++) {
            assert_int_equal(event_id(all, i), ++seen);
            bytes += 100000;
        }
        assert_in_range(bytes, 100000, 2 * HISTORY_PAGE_BYTES);
        json_decref(all);
    } while (end != 0);
    assert_int_equal(seen, 40);
}

/* The newest that there is room for stay, as the one who puts them says. */
static void of_notes_as_many_stay_as_are_told(void **state)
{
    struct store *s = of(state);
    uint16_t bytes[10];
    uint64_t end;
    json_t *all;

    job_store_put(s, 1, 0, 1, "record", "spec");
    for (uint64_t i = 1; i <= 6; i++)
        add_event(s, i, true, 0);
    history_add_note(s, 1, "{\"id\": \"7\", \"at\": \"t\", \"type\": \"x\"}", 3);
    DONE(home_commit(s));
    DONE(history_read_job(s, 1, 0, 100, true, &all, &end, NULL, NULL));
    assert_int_equal(json_array_size(all), 3);
    assert_int_equal(event_id(all, 0), 5);
    json_decref(all);
    assert_int_equal(history_read_note_bytes(s, 1, bytes, 10), 3);
    assert_int_equal(bytes[2], strlen("{\"id\": \"7\", \"at\": \"t\", \"type\": \"x\"}"));
}

static void all_events_are_read_in_pages(void **state)
{
    struct store *s = of(state);
    struct store_rows rows;
    uint64_t end = 7;

    DONE(history_read_all(s, 0, 10, &rows, &end, NULL));
    assert_int_equal(rows.n + end, 0);
    store_rows_clear(&rows);
    for (uint64_t id = 1; id <= 25; id++)
        add_event(s, id, true, 0);
    DONE(home_commit(s));
    DONE(history_read_all(s, 3, 10, &rows, &end, NULL));
    assert_int_equal(rows.n, 10);
    assert_int_equal(end, 13);
    assert_string_equal(rows.v[0].name, "bob");
    assert_string_equal(rows.v[0].text, "{\"id\":\"4\"}");
    assert_string_equal(rows.v[9].name, "ada");
    store_rows_clear(&rows);
    DONE(history_read_all(s, 20, 10, &rows, &end, NULL));
    assert_int_equal(rows.n, 5);
    assert_int_equal(end, 0);
    store_rows_clear(&rows);
}

/* --- losses and damage ------------------------------------------------------------------------------- */

static void a_store_that_is_behind_its_mark_is_refused_and_stays_as_it_is(void **state)
{
    static const struct {
        struct store_mark had;
        bool lost;
    } row[] = {
        {{.epoch = 1, .batch = 2, .next_job = 4}, false}, /* as it is */
        {{.epoch = 1, .batch = 1, .next_job = 4}, false}, /* the mark may be late */
        {{.epoch = 1, .batch = 3, .next_job = 4}, true},  {{.epoch = 2, .batch = 0, .next_job = 4}, true},
        {{.epoch = 3, .batch = 9, .next_job = 7}, true},
    };
    struct home *h = *state;
    uint64_t epoch;

    for (int i = 0; i < 2; i++) {
        job_store_put_counters(h->store[0], 4, 9);
        DONE(home_commit(h->store[0]));
    }
    for (size_t i = 0; i < COUNT(row); i++) {
        struct store_cfg cfg = {.force = true, .lease_s = STORE_LEASE_S, .mark = row[i].had};
        struct store *s = NULL;
        struct merr err = {""};

        if (!row[i].lost)
            continue;
        assert_int_equal(store_open(&h->backend[0], &cfg, &s, &err), -ENODATA);
        assert_non_null(strstr(err.text, "what was acknowledged is lost"));
        assert_true((row[i].had.next_job == 7) == (strstr(err.text, "3 jobs are missing, j4 to j6") != NULL));
    }
    DONE(home_commit(h->store[0]));
    store_put(h->store[0], STORE_SPEEDS, "a", "1");
    DONE(home_commit(h->store[0])); /* who leads still leads: nothing was changed */
    for (size_t i = 0; i < 2; i++) {
        assert_false(row[i].lost);
        h->mark = row[i].had;
        assert_non_null(home_open(h, true));
    }
    epoch = store_epoch(h->store[h->n - 1]);
    h->mark = (struct store_mark){.epoch = 50, .batch = 9, .next_job = 7, .next_event = 70};
    assert_true(epoch < 50);
    h->accept_loss = true;
    assert_non_null(home_open(h, true));
    assert_int_equal(store_epoch(h->store[h->n - 1]), 51); /* no epoch twice */
    assert_int_equal(store_mark(h->store[h->n - 1])->next_job, 7);
    assert_int_equal(store_mark(h->store[h->n - 1])->next_event, 70);
}

/* As after a replica took over that had not got all. */
static void a_batch_after_one_that_the_store_has_lost_changes_nothing(void **state)
{
    struct store *s = of(state);

    static const char args[] = "$1\r\n4\r\n$4\r\nHSET\r\n$13\r\nmuster:speeds\r\n$1\r\na\r\n$1\r\n2\r\n";
    const struct store_backend *b = &((struct home *)*state)->backend[0];
    struct store_batch batch = {
        .epoch = store_epoch(s), .number = 3, .args = args, .len = sizeof(args) - 1, .n_args = 5};
    struct merr err = {""};

    store_put(s, STORE_SPEEDS, "a", "1");
    DONE(home_commit(s));
    assert_int_equal(b->ops->commit(b->self, &batch, &err), -ESTALE);
    assert_non_null(strstr(err.text, "the store has lost changes"));
    assert_string_equal(table_text(s, STORE_SPEEDS), "a=1 ");
}

static void an_event_that_is_not_newer_changes_nothing_of_its_batch(void **state)
{
    struct store *s = of(state);

    history_add_all(s, 5, "{}", "ada");
    DONE(home_commit(s));
    store_put(s, STORE_SPEEDS, "a", "1");
    history_add_all(s, 6, "{}", "ada");
    history_add_all(s, 6, "{}", "ada");
    assert_int_equal(home_commit(s), -ESTALE);
    assert_string_equal(table_text(s, STORE_SPEEDS), "");
}

/* Only in Redis can a key be of another kind. */
static void a_key_that_is_in_the_way_is_set_aside_and_the_batch_goes_through(void **state)
{
    struct store *s = of(state);
    struct store_rows rows;

    freeReplyObject(redisCommand(homes.direct, "SET muster:jobs:ended x"));
    freeReplyObject(redisCommand(homes.direct, "SET muster:events y"));
    freeReplyObject(redisCommand(homes.direct, "HSET muster:device_us p many"));
    put_jobs(s);
    job_store_end(s, 1, "failed");
    history_add_all(s, 5, "{}", "ada");
    store_add_device_us(s, "p", 7);
    DONE(home_commit(s));
    assert_int_equal(store_read_device_us(s, "p"), 7);
    DONE(home_commit(s)); /* what is told of it */
    DONE(aside_read(s, &rows, NULL));
    assert_int_equal(rows.n, 3);
    store_rows_clear(&rows);
    {
        redisReply *kept = redisCommand(homes.direct, "GET muster:aside:key:muster:events");
        char *text = aside_read_text(s, "key:muster:device_us:p");

        assert_string_equal(kept->str, "y");
        assert_string_equal(text, "many");
        freeReplyObject(kept);
        free(text);
    }
    aside_drop(s, "key:muster:events");
    DONE(home_commit(s));
    {
        redisReply *gone = redisCommand(homes.direct, "EXISTS muster:aside:key:muster:events");

        assert_int_equal(gone->integer, 0);
        freeReplyObject(gone);
    }
}

static void a_redis_that_forgot_our_script_is_given_it_again(void **state)
{
    struct store *s = of(state);

    store_add_device_us(s, "p", 7);
    DONE(home_commit(s));
    freeReplyObject(redisCommand(homes.direct, "SCRIPT FLUSH"));
    store_add_device_us(s, "p", 8);
    DONE(home_commit(s));
    assert_int_equal(store_read_device_us(s, "p"), 15);
}

/* --- batches ----------------------------------------------------------------------------------------- */

static void a_batch_with_a_job_of_another_version_changes_nothing(void **state)
{
    struct store *s = of(state);

    put_jobs(s);
    store_put(s, STORE_NODES, "n1", "first");
    job_store_put(s, 2, 20, 21, "good", NULL);
    job_store_put(s, 4, 39, 41, "stale", NULL);
    store_put(s, STORE_NODES, "n2", "last");
    assert_int_equal(home_commit(s), -ESTALE);
    assert_string_equal(table_text(s, STORE_NODES), "");
    DONE(job_store_read(s, 5, take, &(struct taking){.fails_at = SIZE_MAX, .with_spec = true}, NULL));
    assert_string_equal(active_text(s), "1 2 3 4 5 ");
}

static void a_job_that_is_there_is_not_made_again(void **state)
{
    struct store *s = of(state);

    put_jobs(s);
    job_store_put(s, 5, 0, 1, "another", "another spec");
    assert_int_equal(home_commit(s), -ESTALE);
    DONE(job_store_read(s, 5, take, &(struct taking){.fails_at = SIZE_MAX, .with_spec = true}, NULL));
}

static void one_who_leads_no_more_changes_nothing(void **state)
{
    struct home *h = *state;
    struct store *old = of(state), *new;
    uint64_t epoch = store_epoch(old);

    store_put(old, STORE_NODES, "n1", "old");
    DONE(home_commit(old));
    store_put(old, STORE_NODES, "n1", "stale");
    new = home_open(h, true);
    assert_non_null(new);
    assert_int_equal(store_epoch(new), epoch + 1);
    assert_int_equal(home_commit(old), -ESTALE);
    assert_string_equal(table_text(new, STORE_NODES), "n1=old ");
    store_put(new, STORE_NODES, "n1", "new");
    DONE(home_commit(new));
    assert_string_equal(table_text(old, STORE_NODES), "n1=new "); /* it may still read */
    home_close(h, 0);                                             /* and gives back no lease but its own */
    assert_int_equal(home_commit(new), 0);
}

static void the_lead_goes_on_as_soon_as_it_is_given_back(void **state)
{
    struct home *h = *state;
    struct store *new;

    home_close(h, 0);
    new = home_open(h, false);
    assert_non_null(new);
    assert_int_equal(store_epoch(new), 2);
    store_put(new, STORE_NODES, "n1", "new");
    store_renew(new);
    DONE(home_commit(new));
    assert_string_equal(table_text(new, STORE_NODES), "n1=new ");
    assert_true(store_renew_every_us(new) < STORE_LEASE_S * INT64_C(1000000));
}

/* Bulk strings of one command, as a batch has them. */
static void add_command(struct buf *b, const char *const *argv, size_t n, size_t *n_args)
{
    (void)buf_printf(b, "$1\r\n%zu\r\n", n);
    for (size_t i = 0; i < n; i++)
        (void)buf_printf(b, "$%zu\r\n%s\r\n", strlen(argv[i]), argv[i]);
    *n_args += n + 1;
}

static void a_batch_that_comes_again_is_applied_once(void **state)
{
    static const char *const count[] = {"HINCRBY", "muster:device_us", "p", "1"};
    struct home *h = *state;
    struct store *s = of(state);
    struct store_batch batch = {.epoch = store_epoch(s), .number = 1};
    struct buf b;

    buf_init(&b, 4096);
    add_command(&b, count, COUNT(count), &batch.n_args);
    batch.args = b.data;
    batch.len = b.len;
    for (int i = 0; i < 3; i++)
        DONE(h->backend[0].ops->commit(h->backend[0].self, &batch, NULL));
    assert_int_equal(store_read_device_us(s, "p"), 1);
    batch.number++;
    DONE(h->backend[0].ops->commit(h->backend[0].self, &batch, NULL));
    assert_int_equal(store_read_device_us(s, "p"), 2);
    batch.number++;
    batch.epoch--;
    assert_int_equal(h->backend[0].ops->commit(h->backend[0].self, &batch, NULL), -ESTALE);
    assert_int_equal(store_read_device_us(s, "p"), 2);
    buf_clear(&b);
}

static void an_empty_batch_needs_nobody(void **state)
{
    struct store *s = of(state);

    assert_true(store_batch_empty(s));
    assert_true(store_up(s));
    DONE(home_commit(s));
    store_put(s, STORE_NODES, "n1", "x");
    assert_false(store_batch_empty(s));
    assert_true(store_batch_bytes(s) > 0);
    DONE(home_commit(s));
    assert_true(store_batch_empty(s));
    assert_int_equal(store_batch_bytes(s), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOMES(a_table_has_the_text_that_was_put_last),
        HOMES(of_removed_agents_the_newest_are_known_for_a_while),
        HOMES(device_time_adds_up),
        HOMES(jobs_are_read_in_order_up_to_the_first_that_is_refused),
        HOMES(a_spec_stays_as_it_was_put_first),
        HOMES(jobs_that_end_are_listed_apart_and_counted),
        HOMES(offsets_and_submits_are_remembered),
        HOMES(a_job_keeps_its_first_and_its_newest_events),
        HOMES(a_page_of_large_events_ends_at_its_bytes_and_none_is_missed),
        HOMES(of_notes_as_many_stay_as_are_told),
        HOMES(all_events_are_read_in_pages),
        HOMES(a_store_that_is_behind_its_mark_is_refused_and_stays_as_it_is),
        HOMES(a_batch_after_one_that_the_store_has_lost_changes_nothing),
        HOMES(an_event_that_is_not_newer_changes_nothing_of_its_batch),
        {"a_key_that_is_in_the_way_is_set_aside_and_the_batch_goes_through",
         a_key_that_is_in_the_way_is_set_aside_and_the_batch_goes_through, home_in_redis, home_leave, NULL},
        {"a_redis_that_forgot_our_script_is_given_it_again", a_redis_that_forgot_our_script_is_given_it_again,
         home_in_redis, home_leave, NULL},
        HOMES(a_batch_with_a_job_of_another_version_changes_nothing),
        HOMES(a_job_that_is_there_is_not_made_again),
        HOMES(one_who_leads_no_more_changes_nothing),
        HOMES(the_lead_goes_on_as_soon_as_it_is_given_back),
        HOMES(a_batch_that_comes_again_is_applied_once),
        HOMES(an_empty_batch_needs_nobody),
    };

    return cmocka_run_group_tests(tests, homes_start, homes_stop);
}
