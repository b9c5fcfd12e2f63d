/* failing_malloc.c within a test, which says from where on requests are counted: no others may happen meanwhile. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the request with this number (from 1; 0: none) fails, and where on is true all that follow. */
void failing_malloc_begin(unsigned long at, bool on);

/* None fails any more. Returns how many there were. */
unsigned long failing_malloc_end(void);

#ifdef __cplusplus
}
#endif
