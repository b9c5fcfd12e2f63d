/*
 * Samples wait for their step's end, since whose an allocation is is decided there; then each is taken apart, the
 * surest part first, and what is left has no owner.
 */
#include "device_balance.h"

#include "plugin/format/events.h"

#include "storage/grow.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  DEVICES = SL_DEVICES_MAX,
  OWNERS = 32, /* libraries kept apart at one sample; further ones count together */
};

/*
 * An image takes more on the device than its own size: kernels are loaded into pages of 2 MiB, and their stacks and
 * tables come on top. In all clean records it was below three times its size; what goes beyond this is somebody else's.
 */
static const uint64_t code_page_bytes = 2u << 20;
enum { CODE_FACTOR = 4 };

struct held {
  const char *owner;
  uint64_t bytes;
};

struct sample {
  uint32_t device;
  uint64_t at, at_ns, total_bytes, used_bytes;
  bool by_nvml;
  bool apart; /* by NVML, and not the first: calls of the program may have been under way */
  struct sl_allocator_memory allocator;
  struct held held[OWNERS];
  int held_count;
  uint64_t code_limit; /* most that the GPU code loaded since the sample before can have added; 0: none was */
  bool unloaded;       /* GPU code was unloaded since */
  int64_t pool_room;   /* most that the driver's pools can have kept of what was freed */
  bool asked;          /* NVML answered just before it */
  uint64_t own_bytes, other_bytes;
};

struct device {
  /* until the next sample */
  uint64_t code_limit;
  bool unloaded, asked;
  uint64_t own_bytes, other_bytes;
  bool late;  /* recording began in the middle */
  bool begun; /* a sample was taken */
  /* so far, of the samples that are settled */
  bool sampled, others_known;
  const char *context_owner;
  int64_t rest, context, code, unexplained, others;
};

struct sl_device_balance {
  struct sl_ledger_writer *writer;
  const struct sl_driver_segments *segments;
  struct device devices[DEVICES];
  struct sample *samples; /* not yet settled */
  size_t count;
};

struct sl_device_balance *sl_device_balance_new(struct sl_ledger_writer *writer,
                                                const struct sl_driver_segments *segments) {
  struct sl_device_balance *balance = calloc(1, sizeof *balance);
  if (balance) {
    balance->writer = writer;
    balance->segments = segments;
  }
  return balance;
}

struct sl_device_balance *sl_device_balance_free(struct sl_device_balance *balance) {
  if (balance)
    free(balance->samples);
  free(balance);
  return NULL;
}

void sl_device_balance_late(struct sl_device_balance *balance, uint32_t device) {
  if (device < DEVICES)
    balance->devices[device].late = true;
}

void sl_device_balance_event(struct sl_device_balance *balance, const struct sl_event *event) {
  if (event->type == SL_EVENT_gpu_module) {
    const struct sl_event_gpu_module *code = event->payload;
    if (code->device >= DEVICES)
      return;
    if (code->loaded)
      balance->devices[code->device].code_limit += CODE_FACTOR * code->bytes + code_page_bytes;
    else
      balance->devices[code->device].unloaded = true;
  } else if (event->type == SL_EVENT_process_memory) {
    const struct sl_event_process_memory *memory = event->payload;
    if (memory->device >= DEVICES)
      return;
    struct device *device = &balance->devices[memory->device];
    device->asked = true;
    device->own_bytes = memory->own_bytes;
    device->other_bytes = memory->other_bytes;
  }
}

/* The words of the balance: libraries by what they are, others by their file's name. */
static const char *owner_word(const char *owner) {
  static const struct {
    const char *prefix, *word;
  } words[] = {{"libnccl", "nccl"}, {"libcublas", "cublas"}, {"libcudnn", "cudnn"}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strncmp(owner, words[i].prefix, strlen(words[i].prefix)) == 0)
      return words[i].word;
  return owner;
}

static void hold(struct sample *sample, const char *owner, uint64_t bytes) {
  int i = 0;
  while (i < sample->held_count && strcmp(sample->held[i].owner, owner) != 0)
    i++;
  if (i == OWNERS) {
    sample->held[OWNERS - 1].owner = "other libraries";
    i = OWNERS - 1;
  } else if (i == sample->held_count) {
    sample->held[sample->held_count++] = (struct held){owner, 0};
  }
  sample->held[i].bytes += bytes;
}

int sl_device_balance_sample(struct sl_device_balance *balance, const struct sl_device_use *use,
                             const struct sl_allocator_memory *allocator, struct sl_error *error) {
  const uint32_t device = use->device;
  if (device >= DEVICES)
    return 0;
  struct sample *sample = SL_LIST_ADD(balance->samples, balance->count);
  if (!sample)
    return sl_no_memory(error);
  struct device *d = &balance->devices[device];
  *sample = (struct sample){.device = device,
                            .at = use->at,
                            .at_ns = use->at_ns,
                            .total_bytes = use->total_bytes,
                            .used_bytes = use->used_bytes,
                            .by_nvml = use->by_nvml,
                            .apart = use->by_nvml && d->begun,
                            .allocator = *allocator,
                            .code_limit = d->code_limit,
                            .unloaded = d->unloaded,
                            .asked = d->asked,
                            .own_bytes = d->own_bytes,
                            .other_bytes = d->other_bytes};
  if (!sample->apart) {
    d->code_limit = 0;
    d->unloaded = false;
  }
  d->asked = false;
  d->begun = true;
  size_t count;
  const struct sl_owner_total *totals = sl_driver_segments_totals(balance->segments, &count);
  for (size_t i = 0; i < count; i++)
    if (totals[i].device == device && totals[i].bytes)
      hold(sample, owner_word(totals[i].owner), totals[i].bytes);
  for (size_t i = 0; i < count; i++)
    if (totals[i].device == device)
      sample->pool_room += (int64_t)(totals[i].highest_pooled_bytes - totals[i].pooled_bytes);
  return 0;
}

static int64_t take(int64_t *from, int64_t bytes) { /* as much of bytes as there is */
  int64_t taken = bytes < *from ? bytes : *from;
  *from -= taken;
  return taken;
}

/* What NVML said of the others is a fact, whoever asked it. */
static void learn_others(struct device *d, const struct sample *sample) {
  if (!d->others_known && d->sampled) {
    if ((int64_t)sample->other_bytes <= d->context) {
      /* They were there before, where nobody had told: until now the context's. */
      take(&d->context, (int64_t)sample->other_bytes);
      d->rest -= (int64_t)sample->other_bytes;
    } else {
      d->sampled = false; /* they came or grew since: only now is it known what is ours */
      d->code = 0;
    }
  }
  d->others_known = true;
  d->others = (int64_t)sample->other_bytes;
}

/* What is in use beyond everything recorded: whose is it? */
static void explain_rest(struct device *d, const struct sample *sample, int64_t rest) {
  rest -= d->others;
  if (!d->sampled) {
    d->sampled = true;
    d->context_owner = sample->code_limit || d->late ? "context_and_code" : "cuda_context";
    d->context = rest > 0 ? rest : 0;
    d->unexplained = rest - d->context;
    d->rest = rest;
    return;
  }
  int64_t grown = rest - d->rest;
  d->rest = rest;
  if (grown > 0 && sample->code_limit) {
    int64_t code = grown < (int64_t)sample->code_limit ? grown : (int64_t)sample->code_limit;
    d->code += code;
    grown -= code;
  } else if (grown < 0 && sample->unloaded) {
    grown += take(&d->code, -grown);
  }
  d->unexplained += grown;
  if (d->unexplained < 0 && !sample->asked) {
    /* Whoever was there when NVML was last asked may have gone since. */
    int64_t gone = take(&d->others, -d->unexplained);
    d->unexplained += gone;
    d->rest += gone;
  }
  if (d->unexplained < 0) {
    /* A context never shrinks: so what went was another process's, counted as the context's until now. */
    d->unexplained += take(&d->context, -d->unexplained);
    d->unexplained += take(&d->code, -d->unexplained);
  }
}

static int line(struct sl_device_balance *balance, const struct sample *sample, const char *owner, int64_t bytes,
                struct sl_error *error) {
  const struct sl_device_owner_cells cells = {
      .device = sample->device, .at_ns = (int64_t)sample->at_ns, .owner = owner, .bytes = bytes};
  return bytes ? sl_put_device_owner(balance->writer, &cells, error) : 0;
}

/* PyTorch's part: what its allocator hands out and what it keeps. Returns its sum in *out. */
static int write_allocator(struct sl_device_balance *balance, const struct sample *sample, uint64_t driver_bytes,
                           uint64_t workspace_bytes, uint64_t *out, struct sl_error *error) {
  const struct sl_block_totals *all = &sample->allocator.all, *own = &sample->allocator.private;
  uint64_t allocated = all->allocated_bytes - own->allocated_bytes;
  uint64_t active = all->active_bytes - own->active_bytes;
  uint64_t reserved = all->reserved_bytes - own->reserved_bytes;
  *out = driver_bytes > all->reserved_bytes ? driver_bytes : all->reserved_bytes;
  int r = line(balance, sample, "allocated", (int64_t)(allocated - workspace_bytes), error);
  if (r == 0)
    r = line(balance, sample, "cublas_workspace", (int64_t)workspace_bytes, error);
  if (r == 0)
    r = line(balance, sample, "pending", (int64_t)(active - allocated), error);
  if (r == 0)
    r = line(balance, sample, "cached", (int64_t)(reserved - active), error);
  if (r == 0)
    r = line(balance, sample, "private_pools", (int64_t)own->reserved_bytes, error);
  if (r == 0)
    r = line(balance, sample, all->reserved_bytes ? "pytorch_other" : "pytorch", (int64_t)(*out - all->reserved_bytes),
             error);
  return r;
}

static int settle(struct sl_device_balance *balance, const struct sample *sample, uint64_t workspace_bytes,
                  struct sl_error *error) {
  struct device *known = &balance->devices[sample->device];
  uint64_t pytorch = 0, recorded = 0;
  int r = 0;
  for (int i = 0; i < sample->held_count; i++)
    if (strcmp(sample->held[i].owner, "pytorch") == 0)
      pytorch = sample->held[i].bytes;
  r = write_allocator(balance, sample, pytorch, workspace_bytes, &recorded, error);
  for (int i = 0; i < sample->held_count && r == 0; i++) {
    if (strcmp(sample->held[i].owner, "pytorch") == 0)
      continue;
    recorded += sample->held[i].bytes;
    r = line(balance, sample, sample->held[i].owner, (int64_t)sample->held[i].bytes, error);
  }
  if (sample->asked)
    learn_others(known, sample);
  /* A call that was under way would be taken for a context or code for good: such a sample is explained by itself. */
  struct device apart = *known, *d = sample->apart && known->sampled ? &apart : known;
  explain_rest(d, sample, (int64_t)sample->used_bytes - (int64_t)recorded);
  if (r == 0)
    r = line(balance, sample, d->context_owner, d->context, error);
  if (r == 0)
    r = line(balance, sample, "gpu_code", d->code, error);
  if (r == 0 && d->others_known)
    r = line(balance, sample, "other_processes", d->others, error);
  int64_t unexplained = d->unexplained;
  int64_t kept = unexplained > 0 ? take(&unexplained, sample->pool_room) : 0;
  if (r == 0)
    r = line(balance, sample, "driver_pools", kept, error);
  if (r == 0)
    r = line(balance, sample, "unexplained", unexplained, error);
  const struct sl_device_sample_cells cells = {
      .device = sample->device,
      .at_ns = (int64_t)sample->at_ns,
      .total_bytes = (int64_t)sample->total_bytes,
      .used_bytes = (int64_t)sample->used_bytes,
      .own_bytes = sample->asked ? (int64_t)sample->own_bytes : SL_NONE,
      .other_bytes = sample->asked ? (int64_t)sample->other_bytes : SL_NONE,
      .sampled_by = sample->by_nvml ? "nvml" : "driver",
  };
  return r < 0 ? r : sl_put_device_sample(balance->writer, &cells, error);
}

int sl_device_balance_settle(struct sl_device_balance *balance, sl_workspace_bytes *workspaces, void *context,
                             struct sl_error *error) {
  int r = 0;
  for (size_t i = 0; i < balance->count && r == 0; i++) {
    const struct sample *sample = &balance->samples[i];
    r = settle(balance, sample, workspaces(context, sample->device, sample->at), error);
  }
  balance->count = 0;
  return r;
}
