#include "base/cron.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MINUTE_S 60
#define HOUR_S 3600
#define DAY_S 86400
#define HORIZON_S (INT64_C(12) * 366 * DAY_S) /* a leap day on a given weekday can be 12 years off */
#define ALL_HOURS 0xffffff

static const char *const months[] = {"jan", "feb", "mar", "apr", "may", "jun",
                                     "jul", "aug", "sep", "oct", "nov", "dec"};
static const char *const weekdays[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

static const struct field {
    const char *name;
    int least, most;
    const char *const *words;
    int n_words;
} fields[] = {
    {"minute", 0, 59, NULL, 0},
    {"hour", 0, 23, NULL, 0},
    {"day of the month", 1, 31, NULL, 0},
    {"month", 1, 12, months, 12},
    {"day of the week", 0, 7, weekdays, 7},
};

static const struct {
    const char *name, *text;
} macros[] = {{"@hourly", "0 * * * *"},  {"@daily", "0 0 * * *"},  {"@midnight", "0 0 * * *"}, {"@weekly", "0 0 * * 0"},
              {"@monthly", "0 0 1 * *"}, {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}};

/* A number or a word of the field, at *at, which goes behind it; -1: neither. */
static int read_value(const struct field *f, const char **at)
{
    size_t letters = 0;
    int v = 0;

    while (isalpha((unsigned char)(*at)[letters]))
        letters++;
    for (int i = 0; letters == 3 && i < f->n_words; i++)
        if (strncasecmp(f->words[i], *at, 3) == 0) {
            *at += 3;
            return i + f->least;
        }
    if (!isdigit((unsigned char)**at))
        return -1;
    for (; isdigit((unsigned char)**at); (*at)++)
        v = v < 1000 ? v * 10 + (**at - '0') : v;
    return v >= f->least && v <= f->most ? v : -1;
}

/* One part of a list, of len bytes. False: it is none. */
static bool read_part(const struct field *f, const char *at, const char *end, uint64_t *mask)
{
    int from = f->least, to = f->most, step = 1;
    bool one = false;

    if (*at == '*') {
        at++;
    } else {
        from = to = read_value(f, &at);
        one = true;
        if (from >= 0 && *at == '-') {
            at++;
            to = read_value(f, &at);
            one = false;
        }
    }
    if (from < 0 || to < from)
        return false;
    if (*at == '/') {
        char *rest;

        if (!isdigit((unsigned char)at[1]))
            return false;
        step = (int)strtol(at + 1, &rest, 10);
        at = rest;
        to = one ? f->most : to; /* 5/15 goes on to the end */
        if (step < 1 || step > 1000)
            return false;
    }
    for (int v = from; v <= to; v += step)
        *mask |= UINT64_C(1) << v;
    return at == end;
}

static int read_field(const struct field *f, const char *text, size_t len, uint64_t *mask, struct merr *err)
{
    const char *end = text + len;

    *mask = 0;
    for (const char *at = text; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;

        if (!read_part(f, at, stop, mask))
            return merr_set(err, -EINVAL,
                            "'%.*s' is no %s: want *, %d to %d, a range such as %d-%d, a list or a step /N",
                            (int)(len < 40 ? len : 40), text, f->name, f->least, f->most, f->least, f->least + 2);
        at = stop + 1;
    }
    return 0;
}

int cron_parse(const char *text, struct cron *ret, struct merr *err)
{
    uint64_t masks[5];
    bool any[5];
    size_t n = 0;

    if (strlen(text) >= CRON_TEXT_MAX)
        return merr_set(err, -EINVAL, "a time of cron has at most %d characters", CRON_TEXT_MAX - 1);
    for (size_t i = 0; i < sizeof(macros) / sizeof(macros[0]); i++)
        if (strcasecmp(text, macros[i].name) == 0)
            text = macros[i].text;
    if (*text == '@')
        return merr_set(err, -EINVAL, "'%s' is none of @hourly, @daily, @weekly, @monthly and @yearly", text);
    for (const char *p = text + strspn(text, " \t"); *p; n++) {
        size_t len = strcspn(p, " \t");

        if (n == 5)
            return merr_set(err, -EINVAL, "'%s' has more than five fields", text);
        any[n] = *p == '*';
        if (read_field(&fields[n], p, len, &masks[n], err) < 0)
            return -EINVAL;
        p += len;
        p += strspn(p, " \t");
    }
    if (n < 5)
        return merr_set(err, -EINVAL,
                        "'%s' has %zu fields; want five, minute hour day month weekday, such as '30 2 * * mon-fri', or "
                        "@hourly, @daily, @weekly, @monthly, @yearly",
                        text, n);
    masks[4] |= masks[4] >> 7 & 1; /* 7 is Sunday, too */
    *ret = (struct cron){.minutes = masks[0],
                         .hours = (uint32_t)masks[1],
                         .days = (uint32_t)masks[2],
                         .months = (uint32_t)masks[3],
                         .weekdays = (uint32_t)masks[4] & 0x7f,
                         .any_day = any[2],
                         .any_weekday = any[4]};
    return 0;
}

static bool is_day(const struct cron *c, const struct tm *t)
{
    bool day = c->days >> t->tm_mday & 1, weekday = c->weekdays >> t->tm_wday & 1;

    return c->any_day || c->any_weekday ? day && weekday : day || weekday;
}

/* The next local minute from a time on that is in the masks; or a later time at which to look again: *ret_found is
 * false. */
static int64_t look(const struct cron *c, int64_t local_s, bool *ret_found)
{
    time_t at = (time_t)local_s;
    struct tm t;

    *ret_found = false;
    (void)gmtime_r(&at, &t);
    if (!(c->months >> (t.tm_mon + 1) & 1) || !is_day(c, &t))
        return local_s - local_s % DAY_S + DAY_S;
    if (!(c->hours >> t.tm_hour & 1))
        return local_s - local_s % HOUR_S + HOUR_S;
    if (!(c->minutes >> t.tm_min & 1))
        return local_s + MINUTE_S;
    *ret_found = true;
    return local_s;
}

/* What comes at every hour goes by the hours that pass, whatever clocks show. */
static int64_t next_hourly_s(const struct cron *c, const struct zone *z, int64_t from_s)
{
    for (int64_t utc_s = from_s; utc_s < from_s + HORIZON_S;) {
        int64_t local_s = utc_s + zone_offset_s(z, utc_s), next_s;
        bool found;

        next_s = look(c, local_s, &found);
        if (found)
            return utc_s;
        utc_s += next_s - local_s < HOUR_S ? next_s - local_s : HOUR_S - local_s % HOUR_S;
    }
    return -1;
}

int64_t cron_next_s(const struct cron *c, const struct zone *z, int64_t after_s)
{
    int64_t from_s = after_s - after_s % MINUTE_S + MINUTE_S, local_s = from_s + zone_offset_s(z, from_s),
            end_s = local_s + HORIZON_S;

    if (c->hours == ALL_HOURS)
        return next_hourly_s(c, z, from_s);
    local_s -= ((local_s % MINUTE_S) + MINUTE_S) % MINUTE_S; /* offsets of long ago have seconds */
    while (local_s < end_s) {
        int64_t utc_s[2] = {0, 0};
        bool found;

        local_s = look(c, local_s, &found);
        if (!found)
            continue;
        (void)zone_utc_s(z, local_s, utc_s);
        if (utc_s[0] > after_s)
            return utc_s[0];
        local_s += MINUTE_S;
    }
    return -1;
}
