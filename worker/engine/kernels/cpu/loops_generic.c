#define LOOPS_TABLE cpu_loops_generic
#define LOOPS_NAME "generic"
#include "worker/engine/kernels/cpu/loops_body.h"
