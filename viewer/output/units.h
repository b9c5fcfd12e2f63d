/* Quantities as people read them. Every function writes into the caller's buffer and returns it. */
#ifndef SHARDLEDGER_UNITS_H
#define SHARDLEDGER_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define SL_UNIT_CHARS 40

/* 512 B, 1.5 KiB, 812.0 MiB, 1.91 GiB; exact: 2050293760. */
const char *sl_format_bytes(char buffer[SL_UNIT_CHARS], int64_t bytes, bool exact);

/* A length of time: 640 ns, 12.3 us, 38.2 ms, 1.24 s, 2 min 05 s. */
const char *sl_format_duration(char buffer[SL_UNIT_CHARS], int64_t ns);

/* An instant: 2026-11-27 21:40:03.123 UTC. */
const char *sl_format_instant(char buffer[SL_UNIT_CHARS], int64_t ns);

/* 0.446 as 44.6%; what would round to 0.0% without being 0 is <0.1%. */
const char *sl_format_share(char buffer[SL_UNIT_CHARS], double share);

/*
 * The other way round, strictly: digits, at most one point, then a unit: B, KiB, MiB, GiB, TiB, PiB, or the decimal KB,
 * MB, GB, TB, PB; bytes need none. "40GiB", "1.5 MiB", "4096". 0, -EINVAL when that is no size, -ERANGE when it is too
 * large.
 */
int sl_parse_bytes(const char *text, int64_t *out);

/* "1%" and "0.5 %" as shares: 0.01 and 0.005. 0 or -EINVAL. */
int sl_parse_percent(const char *text, double *out);

/* part / whole, and 0 of nothing. */
double sl_share(int64_t part, int64_t whole);

#endif
