/* try - leave the function with a call's code when it failed; the callee has put the words into err */
#ifndef MUSTER_BASE_TRY_H
#define MUSTER_BASE_TRY_H

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int try_code_ = (call);                                                                                        \
        if (try_code_ != 0)                                                                                            \
            return try_code_;                                                                                          \
    } while (0)

#endif
