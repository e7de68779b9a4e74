/* nccl - the fabric of NVIDIA's GPUs: libnccl.so.2 of version 2.14 or newer, loaded at run time */
#ifndef MUSTER_WORKER_COMM_TRANSPORT_NCCL_H
#define MUSTER_WORKER_COMM_TRANSPORT_NCCL_H

#include "worker/engine/comm/transport/fabric.h"

extern const struct fabric_ops nccl_fabric;

#endif
