/* site - which use of chance a Philox key belongs to: philox_key(seed, site, layer, head) */
#ifndef MUSTER_WORKER_MODEL_SITE_H
#define MUSTER_WORKER_MODEL_SITE_H

enum { /* part of every run's meaning: never renumbered; the data's sites start at 0x100 */
       SITE_INIT = 1,
       SITE_EMBEDDING = 2,
       SITE_ATTENTION = 3,
       SITE_ATTENTION_OUT = 4,
       SITE_MLP_OUT = 5,
       SITE_SAMPLE = 6,
};

#endif
