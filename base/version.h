/* version - the one place that names Muster's version */
#ifndef MUSTER_BASE_VERSION_H
#define MUSTER_BASE_VERSION_H

#define MUSTER_VERSION "0.1.0"

#endif
