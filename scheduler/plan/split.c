#include "scheduler/plan/split.h"

#include <assert.h>
#include <stddef.h>

void plan_split_layers(const struct plan_split *m, int s, int *ret_begin, int *ret_end)
{
    int n = m->stages, last, rest;

    assert(n >= 1 && m->layers >= n && s >= 0 && s < n && m->head_cost >= 0);
    if (m->given) {
        *ret_begin = 0;
        for (int i = 0; i < s; i++)
            *ret_begin += m->given[i];
        *ret_end = *ret_begin + m->given[s];
        return;
    }
    last = (int)((m->layers + m->head_cost) / n - m->head_cost + 0.5);
    if (last < 1)
        last = 1;
    if (last > m->layers - (n - 1))
        last = m->layers - (n - 1);
    if (n == 1)
        last = m->layers;
    rest = m->layers - last;
    *ret_begin = s == n - 1 ? rest : s * rest / (n - 1);
    *ret_end = s == n - 1 ? m->layers : (s + 1) * rest / (n - 1);
}
