/* frame - the head of everything that goes from one rank to another
 *
 *   magic crc | generation | group | seq | call_bytes | length | offset | number | sum |
 *   source step part | kind op type extra
 *
 * crc is the CRC-32C of all that follows it. A message of length bytes goes as one or more frames that carry part
 * bytes each, from offset on; messages between two ranks never mix. number counts the frames of a sender to one
 * receiver from 0, so a lost or doubled one is noticed. sum is the XXH3 of what the frame carries to another node, past
 * memories and links whose own checks miss one error in some; within a node it is 0.
 */
#ifndef MUSTER_WORKER_COMM_FRAME_H
#define MUSTER_WORKER_COMM_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

enum frame_kind {
    FRAME_CALL = 1, /* part of a collective call: group, seq, step */
    FRAME_MESSAGE,  /* of comm_isend: group, step is the tag */
    FRAME_READY,    /* who receives a message between GPUs can: as FRAME_MESSAGE (direct.h) */
    FRAME_TURN,     /* who sends it has started: as FRAME_MESSAGE */
    FRAME_CREDIT,   /* length is how much of the receiver's window has been used up and freed, in all time */
    FRAME_BYE,      /* nothing comes after this one */
    FRAME_WRONG,    /* what the receiver sent does not go with this call of the sender */
};

struct frame {
    uint32_t magic, crc;
    uint64_t generation, group, seq, call_bytes, length, offset, number, sum;
    uint32_t source, step, part;
    uint8_t kind, op, type, extra; /* of a call: enum comm_call, enum comm_type, root or enum comm_op */
};
static_assert(sizeof(struct frame) == 88, "frames have no holes");

const char *frame_call_name(unsigned op); /* "all_reduce", …; "unknown" */

/* Set sum, of the payload (NULL: it stays in the node, or there is none), then magic and crc. */
void frame_seal(struct frame *f, const void *payload);

/* 0, or -EPROTO when f is damaged or no frame of Muster's, of this size. */
int frame_check(const struct frame *f, uint32_t part, struct merr *err);

/* Whether the payload of a frame from another node is what its sender had. */
bool frame_holds(const struct frame *f, const void *payload);

#endif
