/*
 * The stack is walked first and its addresses are looked up afterwards, all in one pass over the loaded libraries:
 * dladdr would search each library's symbols, milliseconds in libtorch, only to tell what is not asked here.
 */
#include "caller.h"
#include "plugin/log/event_log.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#define FRAMES_MAX 32u /* CUPTI, the driver and the runtime take about 10 */

struct stack {
  uintptr_t frames[FRAMES_MAX];  /* innermost first */
  const char *files[FRAMES_MAX]; /* path of the library that a frame is in; NULL while unknown. The loader's: valid
                                    because a library on the stack is not unloaded */
  unsigned count;
  unsigned known;
};

static const char own_file[] = ""; /* stands for this library; its address is what counts */

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *argument) {
  struct stack *stack = argument;
  uintptr_t address = _Unwind_GetIP(context);
  if (address == 0 || stack->count == FRAMES_MAX)
    return _URC_END_OF_STACK;
  /* A return address may lie just behind its function: one less is inside the call. */
  stack->frames[stack->count++] = address - 1;
  return _URC_NO_REASON;
}

static int add_files(struct dl_phdr_info *library, size_t size, void *argument) {
  struct stack *stack = argument;
  uintptr_t start = UINTPTR_MAX;
  uintptr_t end = 0;
  for (unsigned i = 0; i < library->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &library->dlpi_phdr[i];
    if (header->p_type != PT_LOAD)
      continue;
    uintptr_t from = library->dlpi_addr + header->p_vaddr;
    if (from < start)
      start = from;
    if (from + header->p_memsz > end)
      end = from + header->p_memsz;
  }
  bool own = (uintptr_t)own_file >= start && (uintptr_t)own_file < end;
  for (unsigned i = 0; i < stack->count; i++) {
    if (stack->frames[i] >= start && stack->frames[i] < end && !stack->files[i]) {
      stack->files[i] = own ? own_file : library->dlpi_name;
      stack->known++;
    }
  }
  return stack->known == stack->count;
}

static bool starts_with(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

uint32_t sl_caller(void) {
  struct stack stack = {.count = 0};
  _Unwind_Backtrace(add_frame, &stack);
  dl_iterate_phdr(add_files, &stack);
  for (unsigned i = 0; i < stack.count; i++) {
    const char *path = stack.files[i];
    if (!path || path == own_file)
      continue;
    const char *file = basename(path);
    if (*file == '\0')
      return sl_log_name(program_invocation_short_name); /* the loader has no name for the program */
    if (!starts_with(file, "libcuda.so") && !starts_with(file, "libcudart.so") && !starts_with(file, "libcupti.so"))
      return sl_log_name(file);
  }
  return 0;
}
