#include "worker/agent/beats.h"

void beats_take(struct beats_seen *s, const struct program_beat *b)
{
    int64_t took_us = b->at_us - s->last.at_us, steps = b->step - s->last.step;
    bool counts = s->last.at_us > 0 && took_us > 0 && !s->last.section[0] && !b->section[0];

    if (took_us == 0 && s->last.at_us > 0) {
        s->last = *b; /* the same sign of life, perhaps of a section that it began by then */
        return;
    }
    steps = b->step < 0 || steps < 1 ? 1 : steps;
    s->steps += s->last.at_us > 0 ? steps : 0;
    s->last = *b;
    if (!counts || s->steps <= BEATS_WARM_STEPS)
        return;
    if (s->steps / BEATS_WINDOW != s->window) {
        s->window = s->steps / BEATS_WINDOW;
        s->gap_us[1] = s->gap_us[0];
        s->gap_us[0] = 0;
    }
    if (took_us / steps > s->gap_us[0])
        s->gap_us[0] = took_us / steps;
}

int64_t beats_gap_us(const struct beats_seen *s)
{
    return s->gap_us[0] > s->gap_us[1] ? s->gap_us[0] : s->gap_us[1];
}
