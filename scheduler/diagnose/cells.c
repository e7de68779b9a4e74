#include "scheduler/diagnose/cells.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define SLOW 0.2231 /* ln 1/0.8: what measurements of two nodes differ by is noise */
#define SIGMAS 4
#define SIGMA_LEAST 0.03
#define VOTE 0.6      /* of a node's cells */
#define KNOWN_LEAST 4 /* of which a median says what is usual */
#define OTHERS 3      /* more than one of so many hot cells that a node does not explain: it is not that node alone */

struct matrix {
    size_t n;
    double *x;           /* ln of how many times as long; NAN: not known */
    bool *hot;           /* by cell */
    size_t *row, *col;   /* known cells of each, */
    size_t *hrow, *hcol; /* and hot ones */
    double *v;           /* room for all cells */
};

static int up(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), up);
    return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static bool is_known(const double *rate, size_t n, size_t at)
{
    return at / n != at % n && rate[at] > 0 && isfinite(rate[at]);
}

static void compare(struct matrix *m, const double *rate, const double *usual)
{
    size_t cells = 0;
    double mid;

    for (size_t at = 0; at < m->n * m->n; at++)
        if (is_known(rate, m->n, at))
            m->v[cells++] = rate[at];
    mid = cells >= KNOWN_LEAST ? median(m->v, cells) : 0;
    for (size_t at = 0; at < m->n * m->n; at++) {
        double should = usual[at] > 0 && isfinite(usual[at]) ? usual[at] : mid;

        m->x[at] = is_known(rate, m->n, at) && should > 0 ? log(should / rate[at]) : NAN;
    }
}

/* Where most cells are well, a hot one stands out of what they vary by. */
static size_t find_hot(struct matrix *m, size_t *ret_known)
{
    size_t known = 0, hot = 0;
    double mid, least = SLOW;

    for (size_t at = 0; at < m->n * m->n; at++)
        if (!isnan(m->x[at]))
            m->v[known++] = m->x[at];
    mid = median(m->v, known);
    if (mid <= SLOW) {
        double sigma;

        for (size_t i = 0; i < known; i++)
            m->v[i] = fabs(m->v[i] - mid);
        sigma = 1.4826 * median(m->v, known);
        least = fmax(SLOW, mid + SIGMAS * fmax(sigma, SIGMA_LEAST));
    }
    for (size_t at = 0; at < m->n * m->n; at++) {
        m->hot[at] = m->x[at] > least;
        m->row[at / m->n] += !isnan(m->x[at]);
        m->col[at % m->n] += !isnan(m->x[at]);
        m->hrow[at / m->n] += m->hot[at];
        m->hcol[at % m->n] += m->hot[at];
        hot += m->hot[at];
    }
    *ret_known = known;
    return hot;
}

static bool votes(size_t hot, size_t of)
{
    return of > 1 && (double)hot >= VOTE * (double)of;
}

/* The node that explains the most hot cells. Returns how many. */
static size_t find_node(const struct matrix *m, struct cells_finding *f)
{
    size_t most = 0;

    for (size_t i = 0; i < m->n; i++) {
        bool sends = votes(m->hrow[i], m->row[i]), receives = votes(m->hcol[i], m->col[i]);
        size_t of = (sends ? m->hrow[i] : 0) + (receives ? m->hcol[i] : 0);

        if (of <= most)
            continue;
        most = of;
        f->class_ = !receives ? CELLS_ROW : sends ? CELLS_NODE : CELLS_COLUMN;
        f->from = f->to = (uint32_t)i;
    }
    return most;
}

static void find_cell(const struct matrix *m, struct cells_finding *f)
{
    size_t worst = 0;

    for (size_t at = 0; at < m->n * m->n; at++)
        if (m->hot[at] && (!m->hot[worst] || m->x[at] > m->x[worst]))
            worst = at;
    f->class_ = CELLS_CELL;
    f->from = (uint32_t)(worst / m->n);
    f->to = (uint32_t)(worst % m->n);
}

static bool is_of(const struct cells_finding *f, size_t i, size_t j)
{
    switch (f->class_) {
    case CELLS_CELL:
        return i == f->from && j == f->to;
    case CELLS_ROW:
        return i == f->from;
    case CELLS_COLUMN:
        return j == f->to;
    case CELLS_NODE:
        return i == f->from || j == f->to;
    default:
        return true;
    }
}

static void judge(struct matrix *m, struct cells_finding *f)
{
    size_t own, both, n = 0;

    f->hot = find_hot(m, &f->known);
    if (f->hot == 0)
        return;
    own = find_node(m, f);
    both = f->class_ == CELLS_WELL ? 0 : OTHERS * (f->hot - own);
    if (f->class_ == CELLS_WELL || both > f->hot) {
        find_cell(m, f);
        own = 1 + m->hot[(size_t)f->to * m->n + f->from]; /* and back */
        if (f->hot > own && 3 * f->hot >= f->known) {
            f->class_ = CELLS_FABRIC;
            f->from = f->to = 0;
        }
    }
    for (size_t at = 0; at < m->n * m->n; at++)
        if (m->hot[at] && is_of(f, at / m->n, at % m->n))
            m->v[n++] = m->x[at];
    f->factor = exp(median(m->v, n));
}

void cells_judge(const double *rate, const double *usual, size_t n, struct cells_finding *ret)
{
    size_t cells = n * n;
    struct matrix m = {.n = n};

    *ret = (struct cells_finding){.class_ = CELLS_WELL, .factor = 1};
    if (n < 2 || n > CELLS_NODES_MAX)
        return;
    m.x = calloc(2 * cells, sizeof(*m.x));
    m.hot = calloc(cells, sizeof(*m.hot));
    m.row = calloc(4 * n, sizeof(*m.row));
    if (m.x && m.hot && m.row) {
        m.v = m.x + cells;
        m.col = m.row + n;
        m.hrow = m.col + n;
        m.hcol = m.hrow + n;
        compare(&m, rate, usual);
        judge(&m, ret);
    }
    free(m.x);
    free(m.hot);
    free(m.row);
}

const char *cells_class_name(enum cells_class class_)
{
    static const char *const name[CELLS_CLASSES] = {"well", "link", "sends", "receives", "node", "fabric"};

    return name[class_];
}
