/*
 * Driving fake_libcupti.c: a libcupti.so.13 without a GPU. A test sets what its functions return, plays driver calls
 * and activity records through it against the real plugin, and looks at what the plugin asked for.
 *
 * The struct lives in the library; get it with fake_cupti(). The plugin's helper thread flushes while a test runs:
 * what the functions return is set before the plugin attaches or with fake_cupti_set, what it did is read with
 * fake_cupti_get.
 */
#ifndef SHARDLEDGER_TESTS_FAKE_CUPTI_H
#define SHARDLEDGER_TESTS_FAKE_CUPTI_H

#include <cupti.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_KINDS 64
#define FAKE_CBIDS 1024

struct fake_cupti {
  /* what the functions return; 0 is success */
  uint32_t version;
  CUptiResult subscribe;
  const char *holder; /* of the seat, told by cuptiSubscribe_v2 */
  CUptiResult enable_callback;
  uint32_t unknown_cbid; /* enabling this driver callback answers "invalid parameter"; 0: none */
  CUptiResult activity_enable[FAKE_KINDS];
  CUptiResult flush;
  CUptiResult next_record;           /* what cuptiActivityGetNextRecord says after the last record; 0: the usual end */
  uint32_t record_bytes[FAKE_KINDS]; /* size of each kind's records in buffers: versions differ in it */
  uint32_t device;                   /* of every context */
  size_t dropped;                    /* records dropped, told once */
  uint64_t counter_start;            /* CUPTI's clock counts twice a nanosecond from here; 0: it is CLOCK_REALTIME */
  int clock_stalls;                  /* so many readings of that clock, from now on, return 20 ms late */
  void (*at_exit)(void);             /* called when the library is torn down, after the plugin's end; NULL: nothing */

  /* what the plugin did */
  int subscribed;
  char subscriber[64];
  int buffers_registered;
  int active[FAKE_KINDS];
  int driver_enabled[FAKE_CBIDS];
  int resource_enabled[FAKE_KINDS];
  int others_enabled; /* callbacks of other domains, or whole domains */
  int flushes;
  int forced_flushes;
  int buffers_taken;
  int buffers_out;   /* taken and not completed */
  int buffers_dirty; /* came with something else than zeros in them */
  size_t device_buffer_bytes;
  size_t device_buffer_limit;
  int attributes_after_enable; /* set too late to count */
};

struct fake_cupti *fake_cupti(void);

static inline int fake_cupti_get(const int *field) {
  return __atomic_load_n(field, __ATOMIC_SEQ_CST);
}

static inline void fake_cupti_set(CUptiResult *field, CUptiResult value) {
  __atomic_store_n(field, value, __ATOMIC_SEQ_CST);
}

/* Delivers a callback, if the plugin is subscribed and has enabled it. */
void fake_cupti_play(CUpti_CallbackDomain domain, uint32_t cbid, const void *data);

/* Appends a record, in a buffer that is requested from the plugin as needed. It comes back with a flush. */
void fake_cupti_record(const void *record, size_t bytes);

/* A single buffer, outside of what records fill: asked from the plugin, and given back with its first bytes valid. */
void fake_cupti_request(uint8_t **buffer, size_t *size);
void fake_cupti_complete(uint8_t *buffer, size_t size, size_t valid);

#ifdef __cplusplus
}
#endif

#endif
