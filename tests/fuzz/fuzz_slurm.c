/* Any text as a batch script of Slurm: a spec with a command, or a refusal with words and without a trace. */
#include "api/cli/slurm.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    json_t *spec = NULL, *notes = NULL, *argv;
    struct merr err = {""};
    const char *body;
    struct buf out;

    assert(text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (slurm_read(text, &spec, &notes, &err) < 0) {
        assert(!spec && !notes && err.text[0]);
    } else {
        argv = json_object_get(json_object_get(spec, "command"), "argv");
        body = json_string_value(json_array_get(argv, json_array_size(argv) - 1));
        assert(json_array_size(argv) >= 3 && body && strlen(body) < SLURM_SCRIPT_MAX && json_is_array(notes));
        json_decref(spec);
        json_decref(notes);
    }
    buf_init(&out, 4 * size + 64);
    (void)slurm_unwrap(text, strlen(text), &out);
    assert(!buf_failed(&out) && out.len <= strlen(text) + 16);
    buf_clear(&out);
    free(text);
    return 0;
}
