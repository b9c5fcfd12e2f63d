/* Driving fake_libnvml.c: the four functions of libnvidia-ml.so.1 that the plugin calls. */
#ifndef SHARDLEDGER_TESTS_FAKE_NVML_H
#define SHARDLEDGER_TESTS_FAKE_NVML_H

#ifdef __cplusplus
extern "C" {
#endif

struct fake_nvml {
  int lists_us;                  /* whether this process is among those it lists */
  unsigned long long own_bytes;  /* of this process */
  unsigned long long others[2];  /* of two others */
  int result;                    /* of the list: an nvmlReturn_t */
  unsigned slow_us;              /* how long the list takes */
  int calls;                     /* of the list */
  unsigned long long free_bytes; /* of the device */
  int looks;                     /* how often that was asked for */
  int hangs;                     /* whether the next question is never answered, */
  int asked;                     /* and whether it has come */
};

struct fake_nvml *fake_nvml(void);

#ifdef __cplusplus
}
#endif

#endif
