/*
 * Frames and sites are kept by their numbers, which count from 1; a caller comes before the frames that it calls. The
 * line of a stack is found when its frame is added, from its caller's.
 */
#include "sites.h"

#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_MAX = 1 << 24 }; /* more than a process writes; a damaged number is above */

struct frame {
  bool known;
  uint32_t caller, depth, line_number;
  const char *file, *function;
  enum sl_code_of code_of;
  uint32_t line; /* frame that names the stack; its own number at most */
};

struct site {
  bool known;
  uint32_t frame, stack_of;
  const char *operator_name;
};

struct sl_sites {
  const struct sl_log *log;
  struct frame *frames; /* by number; [0] is not used */
  struct site *sites;
  uint32_t frame_count, site_count; /* with [0] */
};

struct sl_sites *sl_sites_new(const struct sl_log *log) {
  struct sl_sites *sites = calloc(1, sizeof *sites);
  if (sites)
    sites->log = log;
  return sites;
}

struct sl_sites *sl_sites_free(struct sl_sites *sites) {
  if (sites) {
    free(sites->frames);
    free(sites->sites);
  }
  free(sites);
  return NULL;
}

/* Room for element `number` of a list; what lies between is zero. NULL: no memory, and the list is as it was. */
static void *list_reach(void *list, uint32_t *count, uint32_t number, size_t size) {
  if (number < *count)
    return list;
  const uint32_t wanted = number + 1 > 2 * *count ? number + 1 : 2 * *count;
  char *grown = reallocarray(list, wanted, size);
  if (!grown)
    return NULL;
  memset(grown + *count * size, 0, (wanted - *count) * size);
  *count = wanted;
  return grown;
}

/* C and C++, as PyTorch's own stacks have it: "??" or nothing where there is no debug information. */
static bool is_native(const char *file) {
  static const char *const ends[] = {".cpp", ".cc", ".cxx", ".c", ".cu", ".cuh", ".h", ".hpp", ".S"};
  const char *dot = strrchr(file, '.');
  if (!*file || strcmp(file, "??") == 0 || strstr(file, ".so.") || (dot && strcmp(dot, ".so") == 0))
    return true;
  for (size_t i = 0; dot && i < sizeof ends / sizeof ends[0]; i++)
    if (strcmp(dot, ends[i]) == 0)
      return true;
  return false;
}

/* Below a directory, which is named without a slash at its end. */
static bool is_below(const char *file, const char *directory) {
  const size_t length = directory ? strlen(directory) : 0;
  return length && strncmp(file, directory, length) == 0 && file[length] == '/';
}

enum sl_code_of sl_code_of(const char *file, const char *torch_directory) {
  static const struct {
    const char *part;
    enum sl_code_of code_of;
  } parts[] = {
      {"/site-packages/torch/", SL_CODE_OF_PYTORCH}, {"/dist-packages/torch/", SL_CODE_OF_PYTORCH},
      {"torchinductor_", SL_CODE_OF_PYTORCH}, /* code that torch.compile wrote */
      {"/site-packages/", SL_CODE_OF_LIBRARY},       {"/dist-packages/", SL_CODE_OF_LIBRARY},
      {"/lib/python3", SL_CODE_OF_PYTHON},           {"/lib64/python3", SL_CODE_OF_PYTHON},
  };
  if (strncmp(file, "<frozen", 7) == 0)
    return SL_CODE_OF_PYTHON;
  if (is_native(file))
    return SL_CODE_OF_NATIVE;
  if (is_below(file, torch_directory))
    return SL_CODE_OF_PYTORCH;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (strstr(file, parts[i].part))
      return parts[i].code_of;
  return SL_CODE_OF_USER;
}

/* Of the line that its caller's stack has, and its own, the one that names it. */
static bool names_better(const struct frame *frame, const struct frame *before) {
  if (!before || before->code_of == SL_CODE_OF_NATIVE || frame->code_of == SL_CODE_OF_NATIVE)
    return !before || before->code_of == SL_CODE_OF_NATIVE;
  return frame->code_of == SL_CODE_OF_USER ||
         (before->code_of != SL_CODE_OF_USER &&
          (frame->code_of == SL_CODE_OF_LIBRARY || before->code_of != SL_CODE_OF_LIBRARY));
}

int sl_sites_frame(struct sl_sites *sites, const struct sl_event_frame *frame, struct sl_error *error) {
  if (!frame->id || frame->id > NUMBERS_MAX || (frame->id < sites->frame_count && sites->frames[frame->id].known))
    return 0;
  struct frame *grown = list_reach(sites->frames, &sites->frame_count, frame->id, sizeof *grown);
  if (!grown)
    return sl_no_memory(error);
  sites->frames = grown;
  const bool has_caller = frame->caller && frame->caller < frame->id && grown[frame->caller].known;
  const struct frame *caller = has_caller ? &grown[frame->caller] : NULL;
  struct frame *made = &grown[frame->id];
  *made = (struct frame){
      .known = true,
      .caller = caller ? frame->caller : 0,
      .depth = caller ? caller->depth + 1 : 0,
      .line_number = frame->line,
      .file = sl_log_string(sites->log, frame->file),
      .function = sl_log_string(sites->log, frame->function),
  };
  made->code_of = sl_code_of(made->file, sl_log_info(sites->log, "torch_directory"));
  made->line = names_better(made, caller ? &grown[caller->line] : NULL) ? frame->id : caller->line;
  return 0;
}

int sl_sites_site(struct sl_sites *sites, const struct sl_event_site *site, struct sl_error *error) {
  if (!site->id || site->id > NUMBERS_MAX || (site->id < sites->site_count && sites->sites[site->id].known))
    return 0;
  struct site *grown = list_reach(sites->sites, &sites->site_count, site->id, sizeof *grown);
  if (!grown)
    return sl_no_memory(error);
  sites->sites = grown;
  grown[site->id] = (struct site){
      .known = true,
      .frame = site->frame < sites->frame_count && sites->frames[site->frame].known ? site->frame : 0,
      .stack_of = site->stack_of,
      .operator_name = sl_log_string(sites->log, site->operator_name),
  };
  return 0;
}

uint32_t sl_sites_known(const struct sl_sites *sites, uint32_t site) {
  return site < sites->site_count && sites->sites[site].known ? site : 0;
}

static const char *stack_word(uint32_t stack_of) {
  switch (stack_of) {
  case SL_STACK_OF_CALLER: return "caller";
  case SL_STACK_OF_FORWARD: return "forward";
  case SL_STACK_OF_WAITING: return "waiting";
  default: return "other";
  }
}

static const char *code_word(enum sl_code_of code_of) {
  static const char *const words[] = {"user", "library", "pytorch", "python", "native"};
  return words[code_of];
}

int sl_sites_write(const struct sl_sites *sites, struct sl_ledger_writer *writer, struct sl_error *error) {
  int r = 0;
  for (uint32_t i = 1; i < sites->frame_count && r == 0; i++) {
    const struct frame *frame = &sites->frames[i];
    const struct sl_frame_cells cells = {
        .id = i,
        .caller_id = frame->caller,
        .depth = frame->depth,
        .file = frame->file,
        .line = sl_known(frame->line_number, 0),
        .function = frame->function,
        .code_of = code_word(frame->code_of),
    };
    r = frame->known ? sl_put_frame(writer, &cells, error) : 0;
  }
  for (uint32_t i = 1; i < sites->site_count && r == 0; i++) {
    const struct site *site = &sites->sites[i];
    const uint32_t line = site->frame ? sites->frames[site->frame].line : 0;
    const struct sl_site_cells cells = {
        .id = i,
        .frame_id = site->frame,
        .line_id = sites->frames && sites->frames[line].code_of != SL_CODE_OF_NATIVE ? line : 0,
        .operator_name = site->operator_name,
        .stack_of = site->frame ? stack_word(site->stack_of) : NULL,
    };
    r = site->known ? sl_put_site(writer, &cells, error) : 0;
  }
  return r;
}
