/* profile - what was measured of a class of devices, and how long the parts of a step take by it
 *
 * Tables of times by size, of which any may be empty. Between two sizes times are interpolated, and beyond the
 * measured ones rates stay what they are at the edge. Pure; times are seconds. Its file: api/profile.h.
 */
#ifndef MUSTER_SCHEDULER_PLAN_PROFILE_H
#define MUSTER_SCHEDULER_PLAN_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#define PROFILE_PRODUCTS_MAX 256
#define PROFILE_ATTENTIONS_MAX 64
#define PROFILE_CURVE_MAX 8
#define PROFILE_MESSAGES_MAX 64

/* Work on all elements of arrays. */
enum profile_op {
    PROFILE_LAYERNORM,
    PROFILE_LAYERNORM_BACK,
    PROFILE_RMSNORM,
    PROFILE_RMSNORM_BACK,
    PROFILE_GELU,
    PROFILE_GELU_BACK,
    PROFILE_SWIGLU,
    PROFILE_SWIGLU_BACK,
    PROFILE_ROPE,
    PROFILE_RESIDUAL,
    PROFILE_BIAS_BACK,
    PROFILE_EMBED,
    PROFILE_EMBED_BACK,
    PROFILE_LOSS,    /* of logits, with their gradient */
    PROFILE_FILL,    /* of gradients at the begin of a leaf */
    PROFILE_ADD,     /* of a leaf's gradients to another's */
    PROFILE_SQUARES, /* for the norm of the gradient */
    PROFILE_ADAMW,
    PROFILE_TO_BF16, /* of weights after a step, of gradients before products */
    PROFILE_OPS
};

const char *profile_op_name(enum profile_op op);

/* The three products of a layer with so many rows, outputs and inputs. */
enum profile_form { PROFILE_FORWARD, PROFILE_INPUT, PROFILE_WEIGHTS, PROFILE_FORMS };

struct profile_product {
    int rows, outputs, inputs;
    double flops[PROFILE_FORMS];         /* a second */
    double size[3], rate[PROFILE_FORMS]; /* the same as logarithms: profile_settle() */
};

struct profile_attention { /* of one head over one sequence */
    int length, dim;
    double s[2]; /* forward, backward */
};

struct profile_curve { /* by growing size */
    int n;
    struct {
        double size, s;
    } at[PROFILE_CURVE_MAX];
};

struct profile_rates { /* of one precision */
    int products, attentions;
    double low[3], high[3], least[PROFILE_FORMS], most[PROFILE_FORMS]; /* of products: profile_settle() */
    struct profile_product product[PROFILE_PRODUCTS_MAX];
    struct profile_attention attention[PROFILE_ATTENTIONS_MAX];
    struct profile_curve op[PROFILE_OPS];
};

struct profile_message { /* an all-reduce of so many bytes among ranks of a node, or a message (ranks 2) */
    int ranks;
    double bytes, s;
};

struct plan_profile {
    int threads, side_by_side; /* of a rank; ranks that measured at the same time. 0: not told */
    struct profile_rates f32, bf16;
    struct profile_rates far_f32,
        far_bf16;            /* of arrays that are in no cache; where nothing was measured as the others */
    double cache_bytes;      /* that a rank has; 0: not told */
    double call_s, step_s;   /* of a pass of a block; of a step besides all else; 0: not told */
    double copy_bytes_per_s; /* 0: not told */
    uint64_t memory_bytes;   /* 0: not told */
    uint64_t program_bytes;  /* of a rank of no model; 0: not told */
    uint64_t context_bytes;  /* that it takes of a GPU; 0: not told */
    int all_reduces, messages;
    struct profile_message all_reduce[PROFILE_MESSAGES_MAX], message[PROFILE_MESSAGES_MAX];
};

/* Fill in what follows from the tables: before anything else is asked. */
void profile_settle(struct plan_profile *p);

/* Of the precision, or where nothing was measured in it of f32. */
const struct profile_rates *profile_rates(const struct plan_profile *p, bool bf16);

/* The same of arrays in no cache; NULL: nothing was measured. */
const struct profile_rates *profile_far(const struct plan_profile *p, bool bf16);

/* Seconds of a product; the rates have one at least. */
double profile_product_s(const struct profile_rates *r, enum profile_form form, double rows, double outputs,
                         double inputs);

/* The middle one of the rates of products, forward. 0: there are none. */
double profile_flops(const struct profile_rates *r);

/* Seconds of attention of one head over one sequence. False: nothing was measured. */
bool profile_attention_s(const struct profile_rates *r, bool back, double length, double dim, double *ret);

/* Seconds of work on so many elements. False: it was not measured. */
bool profile_op_s(const struct profile_rates *r, enum profile_op op, double elements, double *ret);

/* Seconds of an all-reduce; of a message. False: none was measured. */
bool profile_all_reduce_s(const struct plan_profile *p, int ranks, double bytes, double *ret);
bool profile_message_s(const struct plan_profile *p, double bytes, double *ret);

#endif
