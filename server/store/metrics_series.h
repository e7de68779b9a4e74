/* metrics_series - parts of curves as buckets: from the index where its spans are narrow enough, else from the lines */
#ifndef MUSTER_SERVER_METRICS_SERIES_H
#define MUSTER_SERVER_METRICS_SERIES_H

#include "server/store/metrics_priv.h"
#include "server/store/metrics_read.h"

/* As metrics_series() of metrics_read.h. */
char *metrics_series_new(const struct of_job *o, const struct spool *s, const struct metrics_range *range);

#endif
