/*
 * torch.profiler's JSON, one gzipped file a rank: what Kineto writes, as far as HTA and Perfetto read it.
 * Times are microseconds on the run's one clock, with baseTimeNanoseconds as its zero.
 */
#include "exports/demangle.h"
#include "exports/export.h"
#include "exports/kineto_sites.h"
#include "output/text.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 64 }; /* of one process; more than any host has */

struct writer {
  struct sl_export *export;
  FILE *file;
  int64_t rank, pid, zero;
};

static void begin(struct writer *w, const char *phase, const char *category, const char *name) {
  fprintf(w->file, ",\n  {\"ph\": \"%s\", \"cat\": \"%s\", \"name\": ", phase, category);
  sl_json_text(w->file, name);
}

static void microseconds(struct writer *w, const char *key, int64_t ns) {
  fprintf(w->file, ", \"%s\": %s%" PRId64 ".%03d", key, ns < 0 ? "-" : "", (ns < 0 ? -ns : ns) / 1000,
          (int)((ns < 0 ? -ns : ns) % 1000));
}

static void place(struct writer *w, int64_t pid, int64_t tid, int64_t at_ns) {
  fprintf(w->file, ", \"pid\": %" PRId64 ", \"tid\": %" PRId64, pid, tid);
  microseconds(w, "ts", at_ns - w->zero);
}

static void text_argument(struct writer *w, const char *key, const char *value) {
  fprintf(w->file, ", \"%s\": ", key);
  sl_json_text(w->file, value);
}

/* NCCL's calls as torch.distributed names them: in record_param_comms, and the range around a call. TensorBoard's
 * plugin finds collectives by the ranges. */
static const struct operation {
  const char *nccl, *torch, *range;
} operations[] = {
    {"AllGather", "_allgather_base", "nccl:all_gather"},
    {"ReduceScatter", "_reduce_scatter_base", "nccl:reduce_scatter"},
    {"AllReduce", "allreduce", "nccl:all_reduce"},
    {"Broadcast", "broadcast", "nccl:broadcast"},
    {"Reduce", "reduce", "nccl:reduce"},
    {"AlltoAll", "all_to_all", "nccl:all_to_all"},
    {"Gather", "gather", "nccl:gather"},
    {"Scatter", "scatter", "nccl:scatter"},
    {"Send", "send", "nccl:send"},
    {"Recv", "recv", "nccl:recv"},
};

static const struct operation *find_operation(const char *nccl) {
  for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
    if (strcmp(operations[i].nccl, nccl) == 0)
      return &operations[i];
  return NULL;
}

static bool is_call_range(const char *name) {
  for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
    if (strcmp(operations[i].range, name) == 0)
      return true;
  return false;
}

/* Element sizes of NCCL's types, and torch's names for them, in collectives and in inputs of operators. What is not
 * told counts in bytes. */
static const struct datatype {
  const char *nccl, *torch, *input;
  int bytes;
} datatypes[] = {
    {"ncclInt8", "Char", "unsigned char", 1}, {"ncclUint8", "Byte", "unsigned char", 1},
    {"ncclInt32", "Int", "int", 4},           {"ncclUint32", "UInt32", "unsigned int", 4},
    {"ncclInt64", "Long", "long int", 8},     {"ncclUint64", "UInt64", "unsigned long", 8},
    {"ncclFloat16", "Half", "c10::Half", 2},  {"ncclFloat32", "Float", "float", 4},
    {"ncclFloat64", "Double", "double", 8},   {"ncclBfloat16", "BFloat16", "c10::BFloat16", 2},
    {"", "Byte", "unsigned char", 1},
};

/* The ranks of communicator :comm, in its order. */
static int write_group(struct writer *w, struct sl_statement *group, int64_t comm, struct sl_error *error) {
  int r = 0, count = 0;
  sl_bind_named_int(group, ":comm", comm);
  fputc('[', w->file);
  while ((r = sl_statement_step(group, error)) > 0)
    fprintf(w->file, "%s%" PRId64, count++ ? ", " : "", sl_column_int(group, 0));
  fputc(']', w->file);
  return r;
}

struct collective {
  const char *operation, *datatype;
  int64_t bytes, comm, seq, nranks; /* comm, seq: 0 where NCCL does not say */
};

/* NCCL makes elements of any type int8 where it only moves them, as in an all-gather: these are bytes. */
static bool only_moves(const char *operation) {
  return strcmp(operation, "AllReduce") != 0 && strcmp(operation, "Reduce") != 0 &&
         strcmp(operation, "ReduceScatter") != 0;
}

static const struct datatype *find_datatype(const struct collective *c) {
  const struct datatype *found = datatypes;
  const char *nccl = strcmp(c->datatype, "ncclInt8") == 0 && only_moves(c->operation) ? "" : c->datatype;
  while (found->nccl[0] && strcmp(found->nccl, nccl) != 0)
    found++;
  return found;
}

/* What Kineto numbers through all operators: phases have the even ones, NCCL's calls the odd ones. */
static int64_t phase_external_id(int64_t id) {
  return 2 * id;
}

static int64_t call_external_id(int64_t id) {
  return 2 * id + 1;
}

/* A rank's part of the data is told; what is spread over ranks, or comes from all, is as many times that. */
static int64_t ranks_if(const struct collective *c, const char *operation, const char *other) {
  bool is = strcmp(c->operation, operation) == 0 || strcmp(c->operation, other) == 0;
  return is && c->nranks > 0 ? c->nranks : 1;
}

static int64_t inward_elements(const struct collective *c) {
  return c->bytes / find_datatype(c)->bytes * ranks_if(c, "ReduceScatter", "Scatter");
}

static int64_t outward_elements(const struct collective *c) {
  return c->bytes / find_datatype(c)->bytes * ranks_if(c, "AllGather", "Gather");
}

static int write_collective(struct writer *w, struct sl_statement *group, const struct collective *c,
                            struct sl_error *error) {
  const struct operation *operation = find_operation(c->operation);
  text_argument(w, "Collective name", operation ? operation->torch : c->operation);
  fprintf(w->file,
          ", \"In msg nelems\": %" PRId64 ", \"Out msg nelems\": %" PRId64 ", \"Group size\": %" PRId64
          ", \"dtype\": \"%s\", \"In split size\": \"[]\", \"Out split size\": \"[]\", \"Seq\": %" PRId64
          ", \"Process Group Name\": \"%" PRId64 "\", \"Process Group Description\": \"\", \"Process Group Ranks\": \"",
          inward_elements(c), outward_elements(c), c->nranks, find_datatype(c)->torch, c->seq, c->comm);
  int r = write_group(w, group, c->comm, error);
  fputc('"', w->file);
  return r;
}

static int write_phases(struct writer *w, struct sl_error *error) {
  struct sl_statement *phases = NULL;
  struct sl_nesting nesting = {.depth = 0};
  int64_t thread = -1;
  char step_name[48];
  int r = sl_db_ask(w->export->db, sl_sql_export_phases, SL_WITH(SL_NUMBER(":rank", w->rank)), &phases, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(phases, error)) > 0) {
    int64_t id = sl_column_int(phases, SL_PHASE_id), tid = sl_column_int(phases, SL_PHASE_tid);
    int64_t start = sl_column_int(phases, SL_PHASE_start), end = sl_column_int(phases, SL_PHASE_end);
    const char *name = sl_column_text(phases, SL_PHASE_name), *kind = sl_column_text(phases, SL_PHASE_kind);
    if (strcmp(kind, "step") == 0 && !sl_column_is_null(phases, SL_PHASE_step)) {
      /* What readers of these files take for an iteration. */
      snprintf(step_name, sizeof(step_name), "ProfilerStep#%" PRId64, sl_column_int(phases, SL_PHASE_step));
      name = step_name;
    }
    if (tid != thread)
      nesting.depth = 0;
    thread = tid;
    /* Slices of a thread have to nest; those that don't are asynchronous ones. So are torch's own ranges of calls that
     * are written with each call: readers of slices would count such a call twice. */
    bool nests = !is_call_range(name) && sl_nesting_fits(&nesting, start, end);
    begin(w, nests ? "X" : "b", "user_annotation", name);
    place(w, w->pid, tid, start);
    if (nests)
      microseconds(w, "dur", end - start);
    else
      fprintf(w->file, ", \"id\": %" PRId64, id);
    fprintf(w->file, ", \"args\": {\"External id\": %" PRId64, phase_external_id(id));
    text_argument(w, "Kind", kind);
    if (!sl_column_is_null(phases, SL_PHASE_module))
      text_argument(w, "Module", sl_column_text(phases, SL_PHASE_module));
    if (!sl_column_is_null(phases, SL_PHASE_step))
      fprintf(w->file, ", \"Step\": %" PRId64, sl_column_int(phases, SL_PHASE_step));
    fputs("}}", w->file);
    if (!nests) {
      begin(w, "e", "user_annotation", name);
      place(w, w->pid, tid, end);
      fprintf(w->file, ", \"id\": %" PRId64 "}", id);
    }
    sl_export_progress(w->export);
  }
  phases = sl_statement_close(phases);
  return r;
}

/* The arrow from a launch to what it launched. */
static void write_flow(struct writer *w, int64_t tid, int64_t at_ns, int64_t correlation, int64_t device,
                       int64_t stream, int64_t start_ns) {
  begin(w, "s", "ac2g", "ac2g");
  place(w, w->pid, tid, at_ns);
  fprintf(w->file, ", \"id\": %" PRId64 "}", correlation);
  begin(w, "f", "ac2g", "ac2g");
  place(w, device, stream, start_ns);
  fprintf(w->file, ", \"id\": %" PRId64 ", \"bp\": \"e\"}", correlation);
}

enum { LAUNCH_NS = 1000 }; /* how long a launch is drawn: only its instant is known */

/* It is before the kernel's start, whatever the clocks say. */
static void write_launch(struct writer *w, int64_t tid, int64_t at_ns, int64_t correlation, int64_t device,
                         int64_t stream, int64_t start_ns) {
  if (at_ns > start_ns - LAUNCH_NS)
    at_ns = start_ns - LAUNCH_NS;
  begin(w, "X", "cuda_runtime", "cudaLaunchKernelExC"); /* the name by which HTA knows launches */
  place(w, w->pid, tid, at_ns);
  fprintf(w->file, ", \"dur\": %d, \"args\": {\"cbid\": 430, \"correlation\": %" PRId64 "}}", LAUNCH_NS / 1000,
          correlation);
  write_flow(w, tid, at_ns, correlation, device, stream, start_ns);
}

/*
 * HTA drops kernels and copies that nothing in the iterations launched, and all that it says of them; TraceLens those
 * without an arrow. When such a one was launched is not recorded: no name of a launch, so that nobody takes the instant
 * for one.
 */
static void write_unknown_launch(struct writer *w, int64_t correlation, int64_t device, int64_t stream,
                                 int64_t start_ns) {
  begin(w, "X", "cuda_runtime", "launch not recorded");
  place(w, w->pid, 0, start_ns);
  fprintf(w->file, ", \"dur\": 0, \"args\": {\"correlation\": %" PRId64 "}}", correlation);
  write_flow(w, 0, start_ns, correlation, device, stream, start_ns);
}

static int write_kernels(struct writer *w, struct sl_statement *group, struct sl_error *error) {
  struct sl_statement *kernels = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_export_kernels, SL_WITH(SL_NUMBER(":rank", w->rank)), &kernels, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(kernels, error)) > 0) {
    int64_t device = sl_column_int(kernels, SL_KERNEL_device), stream = sl_column_int(kernels, SL_KERNEL_stream);
    int64_t start = sl_column_int(kernels, SL_KERNEL_start), end = sl_column_int(kernels, SL_KERNEL_end);
    int64_t correlation = sl_column_int(kernels, SL_KERNEL_correlation);
    bool joined = !sl_column_is_null(kernels, SL_KERNEL_collective);
    char *name = sl_demangle(sl_column_text(kernels, SL_KERNEL_name));
    if (!name) {
      r = sl_no_memory(error);
      break;
    }
    begin(w, "X", "kernel", name);
    free(name);
    place(w, device, stream, start);
    microseconds(w, "dur", end - start);
    fprintf(w->file,
            ", \"args\": {\"device\": %" PRId64 ", \"context\": %" PRId64 ", \"stream\": %" PRId64
            ", \"correlation\": %" PRId64,
            device, device + 1, stream, correlation);
    if (joined) {
      fprintf(w->file, ", \"External id\": %" PRId64, call_external_id(sl_column_int(kernels, SL_KERNEL_collective)));
      struct collective c = {.operation = sl_column_text(kernels, SL_KERNEL_operation),
                             .datatype = sl_column_text(kernels, SL_KERNEL_datatype),
                             .bytes = sl_column_int(kernels, SL_KERNEL_bytes),
                             .comm = sl_column_int(kernels, SL_KERNEL_comm),
                             .seq = sl_column_int(kernels, SL_KERNEL_seq),
                             .nranks = sl_column_int(kernels, SL_KERNEL_nranks)};
      r = write_collective(w, group, &c, error);
      if (r < 0)
        break;
    }
    fputs("}}", w->file);
    if (joined)
      write_launch(w, sl_column_int(kernels, SL_KERNEL_tid), sl_column_int(kernels, SL_KERNEL_enqueue), correlation,
                   device, stream, start);
    else if (correlation)
      write_unknown_launch(w, correlation, device, stream, start);
    sl_export_progress(w->export);
  }
  kernels = sl_statement_close(kernels);
  return r;
}

/* The range that torch.distributed puts around a call. How long the call took is not known. */
static void write_range(struct writer *w, const struct collective *c, int64_t id, int64_t tid, int64_t at_ns) {
  const struct operation *operation = find_operation(c->operation);
  if (!operation)
    return;
  begin(w, "X", "user_annotation", operation->range);
  place(w, w->pid, tid, at_ns);
  fprintf(w->file,
          ", \"dur\": 0, \"args\": {\"External id\": %" PRId64 ", \"Input Dims\": [[%" PRId64
          "]], \"Input type\": [\"%s\"]}}",
          call_external_id(id), inward_elements(c), find_datatype(c)->input);
}

static int write_calls(struct writer *w, struct sl_statement *group, struct sl_error *error) {
  struct sl_statement *calls = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_kineto_calls, SL_WITH(SL_NUMBER(":rank", w->rank)), &calls, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(calls, error)) > 0) {
    struct collective c = {.operation = sl_column_text(calls, 3),
                           .datatype = sl_column_text(calls, 7),
                           .bytes = sl_column_int(calls, 4),
                           .comm = sl_column_int(calls, 5),
                           .seq = sl_column_int(calls, 6),
                           .nranks = sl_column_int(calls, 8)};
    begin(w, "X", "cpu_op", "record_param_comms");
    place(w, w->pid, sl_column_int(calls, 1), sl_column_int(calls, 2));
    fprintf(w->file, ", \"dur\": 1, \"args\": {\"External id\": %" PRId64, call_external_id(sl_column_int(calls, 0)));
    r = write_collective(w, group, &c, error);
    if (r < 0)
      break;
    fputs("}}", w->file);
    write_range(w, &c, sl_column_int(calls, 0), sl_column_int(calls, 1), sl_column_int(calls, 2));
    sl_export_progress(w->export);
  }
  calls = sl_statement_close(calls);
  return r;
}

static int write_copies(struct writer *w, struct sl_error *error) {
  struct sl_statement *copies = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_kineto_copies, SL_WITH(SL_NUMBER(":rank", w->rank)), &copies, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(copies, error)) > 0) {
    int64_t device = sl_column_int(copies, 0), stream = sl_column_int(copies, 1);
    begin(w, "X", sl_column_text(copies, 7), sl_column_text(copies, 2));
    place(w, device, stream, sl_column_int(copies, 5));
    microseconds(w, "dur", sl_column_int(copies, 6) - sl_column_int(copies, 5));
    fprintf(w->file,
            ", \"args\": {\"device\": %" PRId64 ", \"context\": %" PRId64 ", \"stream\": %" PRId64
            ", \"correlation\": %" PRId64 ", \"bytes\": %" PRId64 "}}",
            device, device + 1, stream, sl_column_int(copies, 4), sl_column_int(copies, 3));
    if (sl_column_int(copies, 4))
      write_unknown_launch(w, sl_column_int(copies, 4), device, stream, sl_column_int(copies, 5));
    sl_export_progress(w->export);
  }
  copies = sl_statement_close(copies);
  return r;
}

static void number_argument(struct writer *w, const char *key, struct sl_statement *row, int column) {
  if (!sl_column_is_null(row, column))
    fprintf(w->file, ", \"%s\": %" PRId64, key, sl_column_int(row, column));
}

/* Instants, as those of the allocator; readers know the latter by their name, "[memory]". */
static int write_marks(struct writer *w, struct sl_error *error) {
  struct sl_statement *marks = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_export_marks, SL_WITH(SL_NUMBER(":rank", w->rank)), &marks, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(marks, error)) > 0) {
    begin(w, "i", "cpu_instant_event", sl_column_text(marks, SL_MARK_name));
    place(w, w->pid, sl_column_int(marks, SL_MARK_tid), sl_column_int(marks, SL_MARK_at));
    fputs(", \"s\": \"t\", \"args\": {\"domain\": ", w->file);
    sl_json_text(w->file, sl_column_text(marks, SL_MARK_domain));
    number_argument(w, "value", marks, SL_MARK_value);
    number_argument(w, "step", marks, SL_MARK_step);
    if (!sl_column_is_null(marks, SL_MARK_module))
      text_argument(w, "module", sl_column_text(marks, SL_MARK_module));
    fputs("}}", w->file);
    sl_export_progress(w->export);
  }
  marks = sl_statement_close(marks);
  return r;
}

/* Where in the code the block of a memory event was made. */
static int write_site(struct writer *w, struct sl_kineto_sites *sites, struct sl_statement *memory,
                      struct sl_error *error) {
  const char *arguments = "";
  if (sl_column_is_null(memory, SL_MEMORY_site))
    return 0;
  int r = sl_kineto_site(sites, sl_column_int(memory, SL_MEMORY_site), &arguments, error);
  fputs(arguments, w->file);
  return r;
}

/* torch.profiler's "[memory]" events: each block with what is then allocated and reserved on its device. */
static int write_memory(struct writer *w, struct sl_error *error) {
  int64_t allocated[DEVICES] = {0}, reserved[DEVICES] = {0};
  struct sl_kineto_sites *sites = sl_kineto_sites_new(w->export->db);
  struct sl_statement *memory = NULL;
  int r = sites ? sl_db_ask(w->export->db, sl_sql_export_memory, SL_WITH(SL_NUMBER(":rank", w->rank)), &memory, error)
                : sl_no_memory(error);
  while (r >= 0 && (r = sl_statement_step(memory, error)) > 0) {
    int64_t kind = sl_column_int(memory, SL_MEMORY_kind), device = sl_column_int(memory, SL_MEMORY_device);
    int64_t bytes = sl_column_int(memory, SL_MEMORY_bytes);
    sl_export_progress(w->export);
    if (device < 0 || device >= DEVICES)
      continue;
    bytes = kind == SL_BLOCK_FREED || kind == SL_SEGMENT_GIVEN_BACK ? -bytes : bytes;
    if (kind == SL_SEGMENT_TAKEN || kind == SL_SEGMENT_GIVEN_BACK) {
      reserved[device] += bytes;
      continue;
    }
    allocated[device] += bytes;
    begin(w, "i", "cpu_instant_event", "[memory]");
    place(w, w->pid, sl_column_int(memory, SL_MEMORY_tid), sl_column_int(memory, SL_MEMORY_at));
    fprintf(w->file,
            ", \"s\": \"t\", \"args\": {\"Total Reserved\": %" PRId64 ", \"Total Allocated\": %" PRId64
            ", \"Bytes\": %" PRId64 ", \"Addr\": %" PRId64 ", \"Device Id\": %" PRId64 ", \"Device Type\": 1",
            reserved[device], allocated[device], bytes, sl_column_int(memory, SL_MEMORY_address), device);
    text_argument(w, "Category", sl_column_text(memory, SL_MEMORY_category));
    r = write_site(w, sites, memory, error);
    fputs("}}", w->file);
  }
  memory = sl_statement_close(memory);
  sites = sl_kineto_sites_free(sites);
  return r;
}

static void write_name(struct writer *w, const char *what, int64_t pid, int64_t tid, const char *key,
                       const char *value) {
  fprintf(w->file,
          ",\n  {\"ph\": \"M\", \"name\": \"%s\", \"pid\": %" PRId64 ", \"tid\": %" PRId64
          ", \"ts\": 0, \"args\": {\"%s\": ",
          what, pid, tid, key);
  sl_json_text(w->file, value);
  fputs("}}", w->file);
}

/* Names of the process, its threads, the GPUs and their streams. */
static int write_names(struct writer *w, struct sl_error *error) {
  struct sl_statement *streams = NULL, *threads = NULL;
  char text[64];
  int64_t known = -1;
  int r = sl_db_prepare(w->export->db, sl_sql_kineto_streams, &streams, error);
  if (r < 0)
    return r;
  /* The first event has no comma before it. */
  fprintf(w->file,
          "\n  {\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %" PRId64
          ", \"tid\": 0, \"ts\": 0, \"args\": {\"name\": \"python\"}}",
          w->pid);
  write_name(w, "process_labels", w->pid, 0, "labels", "CPU");
  write_name(w, "thread_name", w->pid, 0, "name", "launch not recorded");
  r = sl_db_ask(w->export->db, sl_sql_export_threads, SL_WITH(SL_NUMBER(":rank", w->rank)), &threads, error);
  while (r == 0 && (r = sl_statement_step(threads, error)) > 0) {
    write_name(w, "thread_name", w->pid, sl_column_int(threads, 0), "name", sl_column_text(threads, 1));
    r = 0;
  }
  threads = sl_statement_close(threads);
  if (r < 0)
    goto finish;
  sl_bind_named_int(streams, ":rank", w->rank);
  while ((r = sl_statement_step(streams, error)) > 0) {
    int64_t device = sl_column_int(streams, 0), stream = sl_column_int(streams, 1);
    if (device != known) {
      snprintf(text, sizeof(text), "GPU %" PRId64, device);
      write_name(w, "process_name", device, 0, "name", "python");
      write_name(w, "process_labels", device, 0, "labels", text);
      known = device;
    }
    snprintf(text, sizeof(text), "stream %" PRId64, stream);
    write_name(w, "thread_name", device, stream, "name", text);
  }

finish:
  streams = sl_statement_close(streams);
  return r;
}

/* The communicators as torch.distributed's process groups. */
static int write_groups(struct writer *w, struct sl_statement *group, struct sl_error *error) {
  struct sl_statement *communicators = NULL;
  int count = 0;
  int r = sl_db_ask(w->export->db, sl_sql_kineto_communicators, SL_WITH(SL_NUMBER(":rank", w->rank)), &communicators,
                    error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(communicators, error)) > 0) {
    int64_t comm = sl_column_int(communicators, 0);
    fprintf(w->file, "%s{\"pg_name\": \"%" PRId64 "\", \"pg_desc\": ", count++ ? ", " : "", comm);
    sl_json_text(w->file, sl_column_text(communicators, 1));
    fprintf(w->file, ", \"backend_config\": \"cuda:nccl\", \"pg_size\": %" PRId64 ", \"ranks\": ",
            sl_column_int(communicators, 2));
    r = write_group(w, group, comm, error);
    if (r < 0)
      break;
    fputc('}', w->file);
  }
  communicators = sl_statement_close(communicators);
  return r;
}

/* Readers look a device up by its place in this list, and count a host's GPUs by it. */
static int write_devices(struct writer *w, struct sl_error *error) {
  struct sl_statement *devices = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_kineto_devices, SL_WITH(SL_NUMBER(":rank", w->rank)), &devices, error);
  if (r < 0)
    return r;
  fputs("\"deviceProperties\": [", w->file);
  for (int64_t place = 0; place < DEVICES && (r = sl_statement_step(devices, error)) > 0; place++) {
    fprintf(w->file, "%s{\"id\": %" PRId64, place ? ", " : "", place);
    if (!sl_column_is_null(devices, 1))
      text_argument(w, "name", sl_column_text(devices, 1));
    number_argument(w, "totalGlobalMem", devices, 2);
    fputc('}', w->file);
  }
  fputs("]", w->file);
  devices = sl_statement_close(devices);
  return r < 0 ? r : 0;
}

/* HTA finds a file's rank by the first `"rank": N` in it. */
static int write_header(struct writer *w, struct sl_statement *ranks, struct sl_statement *group,
                        struct sl_error *error) {
  fputs("{\n\"schemaVersion\": 1,\n", w->file);
  int r = write_devices(w, error);
  if (r < 0)
    return r;
  fprintf(w->file,
          ",\n\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %" PRId64 ", \"world_size\": %" PRId64
          ", \"nccl_version\": ",
          w->rank, sl_column_int(ranks, SL_RANK_world_size));
  sl_json_text(w->file, sl_column_text(ranks, SL_RANK_nccl_version));
  fputs(", \"pg_config\": [", w->file);
  r = write_groups(w, group, error);
  fprintf(w->file, "]},\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": %" PRId64 ",\n\"traceEvents\": [",
          w->zero - sl_column_int(ranks, SL_RANK_offset));
  return r;
}

static int write_rank(struct sl_export *export, struct sl_statement *ranks, struct sl_error *error) {
  struct writer w = {.export = export,
                     .rank = sl_column_int(ranks, SL_RANK_rank),
                     .pid = sl_column_int(ranks, SL_RANK_pid),
                     .zero = sl_column_int(ranks, SL_RANK_zero)};
  struct sl_statement *group = NULL;
  struct sl_export_file file;
  char *path = NULL;
  if (asprintf(&path, "%s/rank%" PRId64 ".pt.trace.json.gz", export->output, w.rank) < 0)
    return sl_no_memory(error);
  int r = sl_export_begin(path, true, &file, error);
  free(path);
  if (r < 0)
    return r;
  w.file = file.stream;
  r = sl_db_prepare(export->db, sl_sql_kineto_group, &group, error);
  if (r == 0)
    r = write_header(&w, ranks, group, error);
  if (r == 0)
    r = write_names(&w, error);
  if (r == 0)
    r = write_phases(&w, error);
  if (r == 0)
    r = write_marks(&w, error);
  if (r == 0)
    r = write_calls(&w, group, error);
  if (r == 0)
    r = write_kernels(&w, group, error);
  if (r == 0)
    r = write_copies(&w, error);
  if (r == 0)
    r = write_memory(&w, error);
  fputs("\n]\n}\n", w.file);
  group = sl_statement_close(group);
  return sl_export_end(&file, r, error);
}

int sl_export_kineto(struct sl_export *export, struct sl_error *error) {
  return sl_export_each_rank(export, write_rank, error);
}
