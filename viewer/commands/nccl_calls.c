#include "commands/nccl_calls.h"

#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct communicator { /* of a rank */
  int64_t rank, comm, nranks, members;
};

struct reader {
  struct sl_nccl_calls *calls;
  size_t capacity;
  struct communicator *communicators; /* by rank and id */
  size_t communicator_count;
};

static int64_t number(struct sl_statement *statement, int column) {
  return sl_column_is_null(statement, column) ? SL_NO_NUMBER : sl_column_int(statement, column);
}

/* Makes room for one more element; the array keeps its place while it is large enough. */
static void *grown(void *array, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity)
    return array;
  size_t wanted = *capacity ? 2 * *capacity : 64;
  void *larger = realloc(array, wanted * size);
  if (larger)
    *capacity = wanted;
  return larger;
}

/* Rows of `sql` into an array of `size` bytes each, through `fill`. */
static int read_rows(struct sl_db *db, const char *sql, size_t size, void (*fill)(void *, struct sl_statement *),
                     void **array, size_t *count, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  size_t capacity = 0;
  int r = sl_db_prepare(db, sql, &statement, error);
  while (r >= 0 && (r = sl_statement_step(statement, error)) > 0) {
    void *larger = grown(*array, *count, &capacity, size);
    if (!larger) {
      r = sl_no_memory(error);
      break;
    }
    *array = larger;
    fill((char *)larger + size * (*count)++, statement);
  }
  statement = sl_statement_close(statement);
  return r;
}

static void fill_communicator(void *row, struct sl_statement *statement) {
  *(struct communicator *)row =
      (struct communicator){number(statement, 0), number(statement, 1), number(statement, 2), number(statement, 3)};
}

static void fill_rank(void *row, struct sl_statement *statement) {
  *(struct sl_nccl_rank *)row = (struct sl_nccl_rank){
      sl_column_int(statement, 0),
      strdup(sl_column_text(statement, 1)),
      0,
      SL_NO_NUMBER,
  };
}

static void fill_module(void *row, struct sl_statement *statement) {
  *(struct sl_nccl_module *)row =
      (struct sl_nccl_module){sl_column_int(statement, 0), strdup(sl_column_text(statement, 1)),
                              strdup(sl_column_text(statement, 2)), strdup(sl_column_text(statement, 3))};
}

static int read_names(struct reader *reader, struct sl_db *db, struct sl_error *error) {
  struct sl_nccl_calls *calls = reader->calls;
  size_t modules = 0, ranks = 0;
  /* A communicator's size where it is not known: the ranks that have it, if all of the job are there. */
  int r = read_rows(db,
                    "SELECT rank, comm, coalesce(nranks, iif((SELECT count(*) = max(world_size) FROM rank),"
                    " (SELECT count(DISTINCT rank) FROM communicator AS o WHERE o.comm = c.comm), NULL)),"
                    " (SELECT count(DISTINCT rank) FROM communicator AS o WHERE o.comm = c.comm)"
                    " FROM communicator AS c WHERE comm IS NOT NULL ORDER BY rank, comm",
                    sizeof *reader->communicators, fill_communicator, (void **)&reader->communicators,
                    &reader->communicator_count, error);
  if (r == 0)
    r = read_rows(db, "SELECT rank, host FROM rank ORDER BY rank", sizeof *calls->ranks, fill_rank,
                  (void **)&calls->ranks, &ranks, error);
  if (r == 0)
    r = read_rows(db,
                  "SELECT id, fqn || '|' || coalesce(class, ''), fqn,"
                  " iif(fqn = '', coalesce(class, '(root)'), fqn) FROM module ORDER BY id",
                  sizeof *calls->modules, fill_module, (void **)&calls->modules, &modules, error);
  calls->rank_count = (int)ranks;
  calls->module_count = (int)modules;
  for (size_t i = 0; i < ranks && r == 0; i++)
    if (!calls->ranks[i].host)
      r = sl_no_memory(error);
  for (size_t i = 0; i < modules && r == 0; i++)
    if (!calls->modules[i].key || !calls->modules[i].fqn || !calls->modules[i].text)
      r = sl_no_memory(error);
  return r;
}

static int operation_of(struct sl_nccl_calls *calls, const char *name) {
  for (int i = calls->operation_count; i-- > 0;)
    if (strcmp(calls->operations[i], name) == 0)
      return i;
  char **larger = sl_list_grow(calls->operations, (size_t)calls->operation_count, sizeof *larger);
  if (!larger)
    return -1;
  calls->operations = larger;
  calls->operations[calls->operation_count] = strdup(name);
  return calls->operations[calls->operation_count] ? calls->operation_count++ : -1;
}

static int module_of(const struct sl_nccl_calls *calls, int64_t id) {
  int low = 0, high = calls->module_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (calls->modules[middle].id < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low < calls->module_count && calls->modules[low].id == id ? low : -1;
}

static const struct communicator *communicator_of(const struct reader *reader, int64_t rank, int64_t comm) {
  size_t low = 0, high = reader->communicator_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const struct communicator *c = &reader->communicators[middle];
    if (c->rank < rank || (c->rank == rank && c->comm < comm))
      low = middle + 1;
    else
      high = middle;
  }
  const struct communicator *c = &reader->communicators[low];
  return low < reader->communicator_count && c->rank == rank && c->comm == comm ? c : NULL;
}

static int place_of(const struct sl_nccl_calls *calls, int64_t rank) {
  for (int i = 0; i < calls->rank_count; i++)
    if (calls->ranks[i].rank == rank)
      return i;
  return -1;
}

static int read_calls(struct reader *reader, struct sl_db *db, struct sl_error *error) {
  struct sl_nccl_calls *calls = reader->calls;
  struct sl_statement *statement = NULL;
  int64_t last_rank = SL_NO_NUMBER;
  int place = -1;
  int r = sl_db_prepare(db,
                        "SELECT id, rank, comm, seq, operation, bytes, module_id, step, enqueue_ns, start_ns, end_ns,"
                        " kernel_calls, exposed_ns FROM collective ORDER BY id",
                        &statement, error);
  while (r >= 0 && (r = sl_statement_step(statement, error)) > 0) {
    void *larger = grown(calls->calls, calls->count, &reader->capacity, sizeof *calls->calls);
    if (!larger) {
      r = sl_no_memory(error);
      break;
    }
    calls->calls = larger;
    struct sl_nccl_call *call = &calls->calls[calls->count++];
    *call = (struct sl_nccl_call){
        .id = sl_column_int(statement, 0),
        .rank = sl_column_int(statement, 1),
        .comm = number(statement, 2),
        .seq = number(statement, 3),
        .operation = operation_of(calls, sl_column_text(statement, 4)),
        .bytes = number(statement, 5),
        .module = sl_column_is_null(statement, 6) ? -1 : module_of(calls, sl_column_int(statement, 6)),
        .step = number(statement, 7),
        .enqueue_ns = number(statement, 8),
        .start_ns = number(statement, 9),
        .end_ns = number(statement, 10),
        .kernel_calls = (uint32_t)sl_column_int(statement, 11),
        .exposed_ns = number(statement, 12),
        .arrival_ns = SL_NO_NUMBER,
        .nranks = SL_NO_NUMBER,
    };
    if (call->operation < 0) {
      r = sl_no_memory(error);
      break;
    }
    if (call->rank != last_rank) {
      last_rank = call->rank;
      place = place_of(calls, call->rank);
    }
    call->place = place;
    const struct communicator *communicator =
        call->comm == SL_NO_NUMBER ? NULL : communicator_of(reader, call->rank, call->comm);
    if (communicator) {
      call->nranks = communicator->nranks;
      call->members = (uint32_t)communicator->members;
    }
  }
  statement = sl_statement_close(statement);
  return r;
}

/* ---- meetings ---- */

/* Sends and receives meet a call of another name; what has no number can't be found on other ranks. */
static bool is_alone(const struct sl_nccl_calls *calls, const struct sl_nccl_call *call) {
  const char *operation = calls->operations[call->operation];
  return call->comm == SL_NO_NUMBER || call->seq == SL_NO_NUMBER || strcmp(operation, "Send") == 0 ||
         strcmp(operation, "Recv") == 0;
}

static int compare_meeting(const struct sl_nccl_call *a, const struct sl_nccl_call *b) {
  if (a->comm != b->comm)
    return a->comm < b->comm ? -1 : 1;
  if (a->seq != b->seq)
    return a->seq < b->seq ? -1 : 1;
  if (a->operation != b->operation)
    return a->operation < b->operation ? -1 : 1;
  return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_calls(const void *a, const void *b) {
  const struct sl_nccl_call *one = a, *other = b;
  int order = compare_meeting(one, other);
  if (order == 0)
    order = (one->rank > other->rank) - (one->rank < other->rank);
  return order ? order : (one->id > other->id) - (one->id < other->id);
}

static void meeting_add(struct sl_nccl_meeting *meeting, const struct sl_nccl_call *call) {
  double share = sl_nccl_share(call);
  if (share >= 0 && (meeting->transfer_ns < 0 || share < meeting->transfer_ns))
    meeting->transfer_ns = share;
  if (call->arrival_ns == SL_NO_NUMBER)
    return;
  if (!meeting->arrivals++)
    meeting->first_ns = meeting->last_ns = call->arrival_ns;
  if (call->arrival_ns < meeting->first_ns)
    meeting->first_ns = call->arrival_ns;
  if (call->arrival_ns > meeting->last_ns)
    meeting->last_ns = call->arrival_ns;
}

/* Who waited least can be told only where everybody's time is known: of one rank alone it may be all waiting. */
static bool all_timed(const struct sl_nccl_call *calls, size_t count) {
  size_t timed = 0;
  for (size_t i = 0; i < count; i++)
    timed += sl_nccl_share(&calls[i]) >= 0;
  return timed >= (calls->nranks == SL_NO_NUMBER ? count : (size_t)calls->nranks);
}

static void meeting_close(struct sl_nccl_meeting *meeting, const struct sl_nccl_call *calls, size_t count) {
  if (sl_nccl_spread(meeting) == SL_NO_NUMBER || meeting->first_ns == meeting->last_ns)
    return;
  for (size_t i = 0; i < count; i++) {
    if (calls[i].arrival_ns == SL_NO_NUMBER)
      continue;
    meeting->others_waited_ns += meeting->last_ns - calls[i].arrival_ns;
    if (calls[i].arrival_ns == meeting->last_ns && meeting->last_rank == SL_NO_NUMBER)
      meeting->last_rank = calls[i].rank;
  }
}

/* The end of the meeting that begins with a call. */
static size_t meeting_end(const struct sl_nccl_calls *calls, size_t begin) {
  size_t end = begin + 1;
  if (!is_alone(calls, &calls->calls[begin]))
    while (end < calls->count && compare_meeting(&calls->calls[end], &calls->calls[begin]) == 0)
      end++;
  return end;
}

static int meet(struct sl_nccl_calls *calls, struct sl_error *error) {
  calls->meetings = malloc((calls->count + 1) * sizeof *calls->meetings);
  if (!calls->meetings)
    return sl_no_memory(error);
  for (size_t i = 0, end; i < calls->count; i = end) {
    struct sl_nccl_meeting *meeting = &calls->meetings[calls->meeting_count];
    *meeting = (struct sl_nccl_meeting){SL_NO_NUMBER, SL_NO_NUMBER, -1, 0, SL_NO_NUMBER, 0, calls->calls[i].members};
    end = meeting_end(calls, i);
    for (size_t j = i; j < end; j++) {
      struct sl_nccl_call *call = &calls->calls[j];
      int64_t offset_ns = call->place < 0 ? SL_NO_NUMBER : calls->ranks[call->place].offset_ns;
      if (call->start_ns != SL_NO_NUMBER && offset_ns != SL_NO_NUMBER)
        call->arrival_ns = call->start_ns - offset_ns;
      call->meeting = calls->meeting_count;
      meeting_add(meeting, call);
    }
    if (!is_alone(calls, &calls->calls[i]) && !all_timed(&calls->calls[i], end - i))
      meeting->transfer_ns = -1;
    meeting_close(meeting, &calls->calls[i], end - i);
    calls->meeting_count++;
  }
  return 0;
}

/* ---- clocks of hosts ---- */

struct difference { /* of a collective's end on a host and on the first one */
  int host;
  int64_t ns;
};

static int compare_differences(const void *a, const void *b) {
  const struct difference *one = a, *other = b;
  if (one->host != other->host)
    return one->host < other->host ? -1 : 1;
  return (one->ns > other->ns) - (one->ns < other->ns);
}

static void number_hosts(struct sl_nccl_calls *calls) {
  for (int i = 0; i < calls->rank_count; i++) {
    int same = 0;
    while (strcmp(calls->ranks[same].host, calls->ranks[i].host) != 0)
      same++;
    calls->ranks[i].host_number = same == i ? calls->host_count++ : calls->ranks[same].host_number;
    calls->ranks[i].offset_ns = calls->ranks[i].host_number == 0 ? 0 : SL_NO_NUMBER;
  }
}

/* The last end on each host; SL_NO_NUMBER: none. */
static void ends_of(const struct sl_nccl_calls *calls, size_t begin, size_t end, int64_t *ends) {
  for (int i = 0; i < calls->host_count; i++)
    ends[i] = SL_NO_NUMBER;
  for (size_t i = begin; i < end; i++) {
    const struct sl_nccl_call *call = &calls->calls[i];
    if (call->place >= 0 && call->end_ns > ends[calls->ranks[call->place].host_number])
      ends[calls->ranks[call->place].host_number] = call->end_ns;
  }
}

/*
 * A collective ends on all its ranks at nearly the same time, so the median difference of ends is the difference of two
 * hosts' clocks.
 */
static int align_hosts(struct sl_nccl_calls *calls, struct sl_error *error) {
  number_hosts(calls);
  if (calls->host_count < 2)
    return 0;
  struct difference *differences = malloc((calls->count + 1) * sizeof *differences);
  int64_t *ends = malloc((size_t)calls->host_count * sizeof *ends);
  size_t count = 0;
  int r = differences && ends ? 0 : sl_no_memory(error);
  for (size_t i = 0, end; r == 0 && i < calls->count; i = end) {
    end = meeting_end(calls, i);
    ends_of(calls, i, end, ends);
    for (int host = 1; host < calls->host_count && end - i > 1 && ends[0] != SL_NO_NUMBER; host++)
      if (ends[host] != SL_NO_NUMBER)
        differences[count++] = (struct difference){host, ends[host] - ends[0]};
  }
  if (count)
    qsort(differences, count, sizeof *differences, compare_differences);
  for (size_t i = 0, end; r == 0 && i < count; i = end) {
    for (end = i; end < count && differences[end].host == differences[i].host;)
      end++;
    for (int rank = 0; rank < calls->rank_count; rank++)
      if (calls->ranks[rank].host_number == differences[i].host)
        calls->ranks[rank].offset_ns = differences[i + (end - i - 1) / 2].ns;
  }
  free(differences);
  free(ends);
  return r;
}

int sl_nccl_calls_read(struct sl_db *db, struct sl_nccl_calls **out, struct sl_error *error) {
  struct reader reader = {.calls = calloc(1, sizeof *reader.calls)};
  int r = reader.calls ? 0 : sl_no_memory(error);
  if (r == 0)
    r = read_names(&reader, db, error);
  if (r == 0)
    r = read_calls(&reader, db, error);
  if (r == 0 && reader.calls->count)
    qsort(reader.calls->calls, reader.calls->count, sizeof *reader.calls->calls, compare_calls);
  if (r == 0)
    r = align_hosts(reader.calls, error);
  if (r == 0)
    r = meet(reader.calls, error);
  free(reader.communicators);
  *out = r < 0 ? sl_nccl_calls_free(reader.calls) : reader.calls;
  return r;
}

struct sl_nccl_calls *sl_nccl_calls_free(struct sl_nccl_calls *calls) {
  if (!calls)
    return NULL;
  for (int i = 0; i < calls->operation_count; i++)
    free(calls->operations[i]);
  for (int i = 0; i < calls->module_count; i++) {
    free(calls->modules[i].key);
    free(calls->modules[i].fqn);
    free(calls->modules[i].text);
  }
  for (int i = 0; i < calls->rank_count; i++)
    free(calls->ranks[i].host);
  free(calls->operations);
  free(calls->ranks);
  free(calls->modules);
  free(calls->meetings);
  free(calls->calls);
  free(calls);
  return NULL;
}

/* ---- what a call cost ---- */

int64_t sl_nccl_duration(const struct sl_nccl_call *call) {
  bool known = call->start_ns != SL_NO_NUMBER && call->end_ns != SL_NO_NUMBER;
  return known ? call->end_ns - call->start_ns : SL_NO_NUMBER;
}

double sl_nccl_share(const struct sl_nccl_call *call) {
  int64_t duration = sl_nccl_duration(call);
  return duration == SL_NO_NUMBER || !call->kernel_calls ? -1 : (double)duration / call->kernel_calls;
}

double sl_nccl_exposed_share(const struct sl_nccl_call *call) {
  return call->exposed_ns == SL_NO_NUMBER || !call->kernel_calls ? -1 : (double)call->exposed_ns / call->kernel_calls;
}

int64_t sl_nccl_spread(const struct sl_nccl_meeting *meeting) {
  bool all = meeting->arrivals > 1 && meeting->arrivals >= meeting->members;
  return all ? meeting->last_ns - meeting->first_ns : SL_NO_NUMBER;
}

bool sl_nccl_is_last(const struct sl_nccl_meeting *meeting, const struct sl_nccl_call *call) {
  return meeting->last_rank != SL_NO_NUMBER && call->arrival_ns == meeting->last_ns;
}

static bool moves_a_share(const char *operation) {
  static const char *const names[] = {"AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(operation, names[i]) == 0)
      return true;
  return false;
}

double sl_nccl_algorithm_bytes(const struct sl_nccl_calls *calls, const struct sl_nccl_call *call) {
  if (call->bytes == SL_NO_NUMBER)
    return -1;
  if (!moves_a_share(calls->operations[call->operation]))
    return (double)call->bytes;
  return call->nranks == SL_NO_NUMBER ? -1 : (double)call->bytes * (double)call->nranks;
}

double sl_nccl_bus_bytes(const struct sl_nccl_calls *calls, const struct sl_nccl_call *call) {
  const char *operation = calls->operations[call->operation];
  bool all_reduce = strcmp(operation, "AllReduce") == 0, share = moves_a_share(operation);
  if (call->bytes == SL_NO_NUMBER || ((all_reduce || share) && call->nranks <= 0))
    return -1;
  double bytes = (double)call->bytes, ranks = (double)call->nranks;
  return all_reduce ? bytes * 2 * (ranks - 1) / ranks : share ? bytes * (ranks - 1) : bytes;
}
