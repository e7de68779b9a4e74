/* split - the words that byte-level BPE merges within: the published regular expressions, matched by hand
 *
 *   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
 *           |\s+(?!\S)|\s+
 *   qwen2   as llama3, numbers one at a time
 *   digits  a number alone, or everything up to the next number
 *   whole   no cut at all
 */
#ifndef MUSTER_WORKER_TEXT_SPLIT_H
#define MUSTER_WORKER_TEXT_SPLIT_H

#include <stddef.h>

enum split { SPLIT_WHOLE, SPLIT_GPT2, SPLIT_LLAMA3, SPLIT_QWEN2, SPLIT_DIGITS };

/* The regular expression of a rule, as tokenizer.json has it; NULL for whole and digits. */
const char *split_pattern(enum split rule);

/* Bytes of the first word of text[len], len > 0: 1 to len. The text is UTF-8. */
size_t split_word(enum split rule, const char *text, size_t len);

#endif
