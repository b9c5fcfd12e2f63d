/* A library that calls the driver: here the fake libcupti, which stands for it. The plugin must find it as the owner.
 */
#include <stdint.h>

__attribute__((visibility("default"), noinline)) void play_from_library(void (*play)(int, uint32_t, const void *),
                                                                        int domain, uint32_t cbid, const void *data) {
  play(domain, cbid, data);
  __asm__ volatile(""); /* not a tail call: this frame has to stay on the stack */
}
