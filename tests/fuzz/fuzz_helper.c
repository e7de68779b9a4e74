/* Any bytes as a packet to the helper that is root, and as the order that a rank reads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "worker/agent/order.h"
#include "worker/helper/helper.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct helper_call c = {.kind = 0};
    struct order o = {.argv = NULL};
    char *text = malloc(size + 1);

    memcpy(&c, data, size < sizeof(c) ? size : sizeof(c));
    if (helper_check(&c, size, (int)(size % (HELPER_FDS + 2))) &&
        (strlen(c.user) >= sizeof(c.user) || strlen(c.keep) >= sizeof(c.keep) || strstr(c.keep, "/../")))
        abort();
    if (text) {
        memcpy(text, data, size);
        if (order_read(text, size, &o, NULL) == 0) {
            size_t n = strlen(o.folder);

            for (char **v = o.argv; *v; v++)
                n += strlen(*v) + 1;
            for (char **v = o.envp; *v; v++)
                n += strlen(*v) + 1;
            if (n > size)
                abort();
        }
        order_clear(&o);
        free(text);
    }
    return 0;
}
