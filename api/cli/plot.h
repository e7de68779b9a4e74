/* plot - curves in a terminal, in the dots of braille characters */
#ifndef MUSTER_API_CLI_PLOT_H
#define MUSTER_API_CLI_PLOT_H

#include <stddef.h>

struct plot_line {
    const char *name;    /* printed in the colour of its curve */
    const double *x, *y; /* NAN: no point */
    size_t n;
};

enum plot_axis { PLOT_STEPS, PLOT_TIMES }; /* of x; times: Unix seconds, shown as they are here */

/* Print curves over common axes: in one picture where the terminal has colours, else in one for each. Nothing where no
 * line has a point. */
void plot_print(const struct plot_line *lines, size_t n, enum plot_axis axis);

#endif
