#define LOOPS_TABLE cpu_loops_generic
#define LOOPS_NAME "generic"
#include "worker/kernels/cpu/loops_body.h"
