/* log - one line a fact, to standard error, for programs
 *
 * Libraries do not log; the caller who knows the job and the node does, once. A line reads
 * "2026-11-21T06:05:17.123Z info  musterd: text". Lines of several threads never mix.
 */
#ifndef MUSTER_BASE_LOG_H
#define MUSTER_BASE_LOG_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* Name the program (borrowed, kept) and the least level that is printed. Before it: "muster", info. */
void log_init(const char *program, enum log_level least);

/* "debug", "info", "warn", "error" by level, then NULL. */
extern const char *const log_level_names[];

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)

#endif
