/* cron - times that come again, as crontab(5) writes them: minute, hour, day of month, month, day of week
 *
 * Fields are *, numbers, names of months and days, ranges, lists and steps; @hourly, @daily, @weekly, @monthly and
 * @yearly stand for the usual ones. Where both days are given, either will do. Pure.
 */
#ifndef MUSTER_BASE_CRON_H
#define MUSTER_BASE_CRON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"
#include "base/zone.h"

#define CRON_TEXT_MAX 128

struct cron {
    uint64_t minutes; /* masks, by the number */
    uint32_t hours, days, months, weekdays;
    bool any_day, any_weekday; /* the field was * */
};

/* 0; -EINVAL with the field and what is wrong. */
int cron_parse(const char *text, struct cron *ret, struct merr *err);

/* The first such minute after a time, in seconds since 1970; -1: there is none within 12 years (30 February). Where
 * clocks are set forward over one it is when that happens, where they are set back it comes once; what comes at every
 * hour goes by hours that pass. */
int64_t cron_next_s(const struct cron *c, const struct zone *z, int64_t after_s);

#endif
