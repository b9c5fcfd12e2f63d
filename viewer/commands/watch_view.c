/* Prints what `watch` shows of a run. */
#include "commands/watch_view.h"

#include "output/units.h"
#include "storage/rank_ranges.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  SLOWEST = 4,
  LINES = 8,  /* of trouble, so that it does not hide the rest */
  RANKS = 16, /* rows of ranks that are shown; of more, alike ones share a row */
  RANGES = 6, /* of ranks, in one row */
  WHERE_CHARS = 320
};

/* "forward blocks.2": what is known of a place. */
static const char *place_words(char buffer[WHERE_CHARS], const char *phase, const char *module) {
  snprintf(buffer, WHERE_CHARS, "%s%s%s", phase && *phase ? phase : "", module && *module ? " " : "",
           module ? module : "");
  return buffer;
}

/* "step 3", "setup (load_state_dict)", "between, after step 4 (evaluation)" */
static int period_words(char buffer[WHERE_CHARS], const struct sl_live_peak *peak) {
  int used = peak->step >= 0    ? snprintf(buffer, WHERE_CHARS, "step %" PRId64, peak->step)
             : peak->after >= 0 ? snprintf(buffer, WHERE_CHARS, "between, after step %" PRId64, peak->after)
                                : snprintf(buffer, WHERE_CHARS, "setup");
  if (peak->step < 0 && *peak->period)
    used += snprintf(buffer + used, WHERE_CHARS - (size_t)used, " (%s)", peak->period);
  return used;
}

/* "step 3, backward blocks.2" */
static const char *peak_words(char buffer[WHERE_CHARS], const struct sl_live_peak *peak) {
  const int used = period_words(buffer, peak);
  const bool named = strcmp(peak->phase, "step") == 0 || strcmp(peak->phase, peak->period) == 0;
  const char *phase = named ? "" : peak->phase;
  if (*phase || *peak->module)
    snprintf(buffer + used, WHERE_CHARS - (size_t)used, ", %s%s%s", phase, *phase && *peak->module ? " " : "",
             peak->module);
  return buffer;
}

/* The user's own ranges say more by their name than by being the user's. */
static const char *range_word(const struct sl_live_place *place) {
  return strcmp(place->phase, "user") == 0 && place->name && *place->name ? place->name : place->phase;
}

/* What the rank is doing: the phase with a module that is nearest, and the range inside of it that says more. */
static const char *doing_words(char buffer[WHERE_CHARS], const struct sl_live_state *state) {
  const struct sl_live_place *inner = state->frame_count ? &state->frames[0] : NULL, *outer = NULL;
  for (size_t i = 0; i < state->frame_count && !outer; i++)
    if (state->frames[i].module && *state->frames[i].module)
      outer = &state->frames[i];
  if (!inner)
    return place_words(buffer,
                       state->step >= 0 ? "step"
                       : state->steps   ? "between steps"
                                        : "before the first step",
                       NULL);
  if (!outer && state->frame_count > 1 && strcmp(inner->phase, "user") == 0)
    outer = &state->frames[1];
  place_words(buffer, range_word(outer ? outer : inner), outer ? outer->module : inner->module);
  if (outer && outer != inner) {
    size_t used = strlen(buffer);
    snprintf(buffer + used, WHERE_CHARS - used, ", %s", range_word(inner));
  }
  return buffer;
}

/* Roughly: a column that changes every second needs no more. */
static const char *age_words(char buffer[SL_UNIT_CHARS], uint64_t ns) {
  uint64_t seconds = ns / 1000000000u;
  if (seconds < 100)
    snprintf(buffer, SL_UNIT_CHARS, "%" PRIu64 " s", seconds);
  else if (seconds < 100 * 60)
    snprintf(buffer, SL_UNIT_CHARS, "%" PRIu64 " min", seconds / 60);
  else
    snprintf(buffer, SL_UNIT_CHARS, "%" PRIu64 " h", seconds / 3600);
  return buffer;
}

static const char *status_words(char buffer[WHERE_CHARS], const struct sl_live_process *process,
                                const struct sl_live_state *state, uint64_t now_ns) {
  char time[SL_UNIT_CHARS];
  uint64_t age = now_ns > process->news_ns ? now_ns - process->news_ns : 0;
  if (state->ended)
    return "ended";
  if (!state->last_ns)
    return "starting";
  if (process->more)
    snprintf(buffer, WHERE_CHARS, "%s behind", age_words(time, now_ns > state->last_ns ? now_ns - state->last_ns : 0));
  else if (age > SL_WATCH_SILENT_NS)
    snprintf(buffer, WHERE_CHARS, "silent %s", age_words(time, age));
  else
    return "running";
  return buffer;
}

static void cell_bytes(struct sl_table *table, uint64_t bytes, bool known) {
  if (known)
    sl_cell_int(table, (int64_t)bytes);
  else
    sl_cell_null(table);
}

static void cell_step(struct sl_table *table, int64_t step) {
  if (step >= 0)
    sl_cell_int(table, step);
  else
    sl_cell_null(table);
}

static bool is_silent(const struct sl_live_process *process, const struct sl_live_state *state, uint64_t now_ns) {
  return !state->ended && !process->more && state->last_ns && now_ns > process->news_ns + 2 * SL_WATCH_SILENT_NS;
}

/* What a rank has to say for itself where not all fit: trouble first, then the highest peaks. */
static uint64_t importance(const struct sl_live_process *process, const struct sl_live_state *state, uint64_t now_ns) {
  bool trouble = state->refusals || state->lost || is_silent(process, state, now_ns);
  return (uint64_t)trouble << 63 | state->peak.bytes;
}

/* ---- ranks that say the same in one row ---- */

struct row {
  size_t first; /* whose figures it has */
  struct sl_rank_ranges ranks;
  uint64_t importance;
};

struct rows {
  struct row *list;
  size_t count, all; /* that are shown, and that there are */
  bool joined;       /* of alike ranks there is one */
};

static bool are_alike(const struct sl_live_state *a, const struct sl_live_state *b) {
  return a->peak.bytes == b->peak.bytes && a->ended == b->ended && !a->refusals == !b->refusals && a->lost == b->lost &&
         a->peak.step == b->peak.step && a->peak.after == b->peak.after && strcmp(a->peak.module, b->peak.module) == 0;
}

static int most_important_first(const void *left, const void *right) {
  const struct row *a = left, *b = right;
  if (a->importance != b->importance)
    return a->importance > b->importance ? -1 : 1;
  return a->first < b->first ? -1 : a->first > b->first;
}

/* Of many ranks those in trouble, the highest and the lowest, each with all that are like it. 0 or -ENOMEM. */
static int rows_make(const struct sl_live_run *run, const struct sl_live_state *states, const struct sl_output *out,
                     const struct sl_watch_view *view, struct rows *rows) {
  const size_t limit = view->limit ? view->limit : RANKS;
  rows->joined = out->format == SL_FORMAT_text && !out->limit && run->count > limit;
  rows->list = calloc(run->count, sizeof *rows->list);
  int r = rows->list ? 0 : -ENOMEM;
  for (size_t i = 0; i < run->count && r == 0; i++) {
    const uint64_t own = importance(&run->processes[i], &states[i], view->now_ns);
    size_t at = rows->joined ? 0 : rows->count;
    while (at < rows->count &&
           (rows->list[at].importance != own || !are_alike(&states[rows->list[at].first], &states[i])))
      at++;
    if (at == rows->count)
      rows->list[rows->count++] = (struct row){.first = i, .importance = own};
    r = sl_rank_ranges_add(&rows->list[at].ranks, run->processes[i].rank, run->processes[i].rank);
  }
  rows->all = rows->count;
  if (rows->joined && r == 0) {
    qsort(rows->list, rows->count, sizeof *rows->list, most_important_first);
    if (rows->count > limit) {
      const struct row lowest = rows->list[rows->count - 1];
      rows->list[rows->count - 1] = rows->list[limit - 1];
      rows->list[limit - 1] = lowest;
      rows->count = limit;
    }
  }
  return r;
}

static void rows_free(struct rows *rows) {
  for (size_t i = 0; i < rows->all && rows->list; i++)
    free(rows->list[i].ranks.list);
  free(rows->list);
}

static void print_ranks(struct sl_output *out, const struct sl_live_run *run, const struct sl_live_state *states,
                        const struct sl_watch_view *view) {
  struct rows rows = {0};
  if (rows_make(run, states, out, view, &rows) < 0)
    out->failed = -ENOMEM;
  const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, rows.joined ? SL_COLUMN_DATA_ONLY : 0},
      {"ranks", "Ranks", SL_UNIT_text, SL_COLUMN_TEXT_ONLY | (rows.joined ? 0 : SL_COLUMN_DATA_ONLY)},
      {"status", "Status", SL_UNIT_text, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"steps_ended", "Steps ended", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"active_bytes", "Active", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"requested_bytes", "Requested", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"device_bytes", "Device", SL_UNIT_bytes, 0},
      {"peak_allocated_bytes", "Peak", SL_UNIT_bytes, 0},
      {"last_step_ns", "Last took", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
      {"doing", "Doing", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"peak_reserved_bytes", "Peak reserved", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"peak_device_bytes", "Peak device", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"peak_step", "Peak step", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"peak_phase", "Peak phase", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"peak_module", "Peak module", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"peak_at", "Peak at", SL_UNIT_text, SL_COLUMN_TEXT_ONLY},
      {"events", "Events", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"events_lost", "Lost", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"gaps", "Gaps", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"steps_agreed", "Agreed", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"steps_differed", "Differed", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"refused_requests", "Refused", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"last_event_ns", "Last event", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"peak_place", "Peak in", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"last_step", "Last step", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"last_peak_allocated_bytes", "Its peak", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"last_peak_phase", "Its peak's phase", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"last_peak_module", "Its peak's module", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
  };
  char words[WHERE_CHARS];
  struct sl_table *table = sl_table_begin(out, "ranks", columns, sizeof columns / sizeof columns[0]);
  for (size_t row = 0; row < rows.count; row++) {
    const size_t i = rows.list[row].first;
    const struct sl_live_state *s = &states[i];
    const bool cache = s->recorded && !s->drivers_pool;
    char *ranks = sl_rank_ranges_text(&rows.list[row].ranks, RANGES);
    sl_cell_int(table, run->processes[i].rank);
    sl_cell_text(table, ranks ? ranks : "");
    free(ranks);
    sl_cell_text(table, status_words(words, &run->processes[i], s, view->now_ns));
    cell_step(table, s->step >= 0 ? s->step : s->last.step);
    sl_cell_int(table, (int64_t)s->steps);
    cell_bytes(table, s->now.allocated_bytes, s->recorded);
    cell_bytes(table, s->now.active_bytes, s->recorded);
    cell_bytes(table, s->now.requested_bytes, cache);
    cell_bytes(table, s->now.reserved_bytes, cache);
    cell_bytes(table, s->device_used, s->device_used != 0);
    cell_bytes(table, s->peak.bytes, s->recorded);
    cell_bytes(table, s->last.end_ns - s->last.start_ns, s->last.step >= 0);
    sl_cell_text(table, s->ended ? "" : doing_words(words, s));
    cell_bytes(table, s->peak_reserved, cache);
    cell_bytes(table, s->peak_device, s->peak_device != 0);
    cell_step(table, s->peak.bytes ? s->peak.step : -1);
    sl_cell_text(table, *s->peak.phase ? s->peak.phase : NULL);
    sl_cell_text(table, *s->peak.module ? s->peak.module : NULL);
    sl_cell_text(table, s->peak.bytes ? peak_words(words, &s->peak) : "");
    sl_cell_int(table, (int64_t)s->events);
    sl_cell_int(table, (int64_t)s->lost);
    sl_cell_int(table, (int64_t)s->gaps);
    sl_cell_int(table, (int64_t)s->steps_agreed);
    sl_cell_int(table, (int64_t)s->steps_differed);
    sl_cell_int(table, (int64_t)s->refusals);
    sl_cell_int(table, (int64_t)s->last_ns);
    period_words(words, &s->peak);
    sl_cell_text(table, s->peak.bytes ? words : NULL);
    cell_step(table, s->last.step);
    cell_bytes(table, s->last.peak.allocated_bytes, s->last.step >= 0 && s->last.recorded);
    sl_cell_text(table, *s->last_peak.phase ? s->last_peak.phase : NULL);
    sl_cell_text(table, *s->last_peak.module ? s->last_peak.module : NULL);
  }
  sl_table_end(table);
  if (rows.joined)
    sl_output_styled(out, SL_STYLE_dim,
                     "%zu ranks, alike in status and peak in %zu row%s%s; figures are of the first rank; --limit all: "
                     "each",
                     run->count, rows.all, rows.all == 1 ? "" : "s",
                     rows.count < rows.all ? ", of which the highest and the lowest are here" : "");
  rows_free(&rows);
}

static const struct sl_live_share *share_of(const struct sl_live_state *state, const char *category) {
  for (size_t i = 0; i < state->share_count; i++)
    if (strcmp(state->shares[i].category, category) == 0)
      return &state->shares[i];
  return NULL;
}

static bool is_alive(const struct sl_live_state *state, const char *category) {
  for (size_t i = 0; i < state->category_count; i++)
    if (state->categories[i].decided && strcmp(state->categories[i].name, category) == 0)
      return true;
  return false;
}

static void category_row(struct sl_table *table, uint32_t rank, const struct sl_live_state *s, const char *name,
                         bool decided, uint64_t bytes, const struct sl_live_share *share) {
  char words[SL_LIVE_CATEGORY_CHARS + 4];
  snprintf(words, sizeof words, "%s%s", name, decided ? "" : " ~");
  sl_cell_int(table, rank);
  sl_cell_text(table, words);
  sl_cell_text(table, name);
  sl_cell_int(table, decided);
  cell_bytes(table, bytes, bytes || !share);
  if (bytes)
    sl_cell_double(table, sl_share((int64_t)bytes, (int64_t)s->now.allocated_bytes));
  else
    sl_cell_null(table);
  sl_cell_bar(table, sl_share((int64_t)bytes, (int64_t)s->now.allocated_bytes), SL_STYLE_blue);
  cell_bytes(table, share ? share->bytes : 0, share != NULL);
}

/* Data have every rank, text has the one in detail. */
static void print_categories(struct sl_output *out, const struct sl_live_run *run, const struct sl_live_state *states,
                             size_t detail) {
  char alive[64], peak[64];
  snprintf(alive, sizeof alive, "Alive on rank %u", run->processes[detail].rank);
  snprintf(peak, sizeof peak, "Peak of step %" PRId64, states[detail].last.step);
  const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"alive", alive, SL_UNIT_text, SL_COLUMN_TEXT_ONLY},
      {"category", "", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"decided", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"bytes", "Now", SL_UNIT_bytes, 0},
      {"share", "Share", SL_UNIT_share, SL_COLUMN_TEXT_ONLY},
      {"bar", "", SL_UNIT_bar, 0},
      {"peak_bytes", peak, SL_UNIT_bytes, states[detail].last.step < 0 ? SL_COLUMN_DATA_ONLY : 0},
  };
  struct sl_table *table = sl_table_begin(out, "categories", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < run->count; i++) {
    const struct sl_live_state *s = &states[i];
    if (out->format == SL_FORMAT_text && i != detail)
      continue;
    for (size_t c = 0; c < s->category_count; c++)
      category_row(table, run->processes[i].rank, s, s->categories[c].name, s->categories[c].decided,
                   s->categories[c].bytes, s->categories[c].decided ? share_of(s, s->categories[c].name) : NULL);
    for (size_t c = 0; c < s->share_count; c++)
      if (!is_alive(s, s->shares[c].category))
        category_row(table, run->processes[i].rank, s, s->shares[c].category, true, 0, &s->shares[c]);
  }
  sl_table_end(table);
  for (size_t c = 0; c < states[detail].category_count; c++)
    if (!states[detail].categories[c].decided) {
      sl_output_styled(out, SL_STYLE_dim, "~ provisional: the step's end decides. The peak's categories are final.");
      break;
    }
}

static void print_collectives(struct sl_output *out, const struct sl_live_run *run) {
  static const struct sl_column columns[] = {
      {"operation", "Slowest collectives", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"step", "Step", SL_UNIT_number, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"transfer_ns", "Transfer", SL_UNIT_duration, 0},
      {"spread_ns", "Spread", SL_UNIT_duration, 0},
      {"last_rank", "Last rank", SL_UNIT_number, 0},
      {"ranks", "Ranks", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
  };
  struct sl_live_slow slow[SLOWEST];
  struct sl_live_late *late = calloc(run->count, sizeof *late);
  size_t count = late ? sl_live_run_collectives(run, slow, SLOWEST, late) : SIZE_MAX, worst = 0;
  if (count == SIZE_MAX) {
    out->failed = -ENOMEM;
    count = 0;
  }
  if (count || out->format != SL_FORMAT_text) {
    sl_output_line(out, "%s", "");
    struct sl_table *table = sl_table_begin(out, "collectives", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < count; i++) {
      sl_cell_text(table, slow[i].operation);
      sl_cell_text(table, slow[i].module);
      cell_step(table, slow[i].step);
      sl_cell_int(table, (int64_t)slow[i].bytes);
      sl_cell_int(table, (int64_t)slow[i].transfer_ns);
      cell_bytes(table, slow[i].spread_ns, slow[i].ranks > 1);
      cell_step(table, slow[i].last_rank);
      sl_cell_int(table, slow[i].ranks);
    }
    sl_table_end(table);
  }
  for (size_t i = 1; i < run->count && late; i++)
    if (late[i].late_ns > late[worst].late_ns)
      worst = i;
  if (count && late[worst].last) {
    char time[SL_UNIT_CHARS];
    sl_output_line(out,
                   "Behind: rank %u came last in %" PRIu64 " of the last %" PRIu64
                   " collectives, %s after the first on average.",
                   run->processes[worst].rank, late[worst].last, late[worst].collectives,
                   sl_format_duration(time, (int64_t)(late[worst].late_ns / late[worst].last)));
  }
  free(late);
}

/* "15 of 16 ranks, missing: 5; ", of up to eight ranges; "" where all are there. Of a rehearsal none is missing. */
static void missing_words(const struct sl_live_run *run, char *words, size_t size) {
  struct sl_rank_ranges missing = {0};
  int64_t next = 0, world_size = 0;
  *words = 0;
  for (size_t i = 0; i < run->count; i++) {
    if (run->processes[i].world_size > world_size)
      world_size = run->processes[i].world_size;
    if (sl_rank_ranges_add(&missing, next, (int64_t)run->processes[i].rank - 1) < 0)
      break;
    next = (int64_t)run->processes[i].rank + 1;
  }
  char *text = sl_rank_ranges_add(&missing, next, world_size - 1) < 0 ? NULL : sl_rank_ranges_text(&missing, 8);
  if (run->count > 0 && run->processes[0].is_rehearsal)
    snprintf(words, size, "rehearsal, a rank of %" PRId64 " at a time; ", world_size);
  else if (text && *text)
    snprintf(words, size, "%zu of %" PRId64 " ranks, missing: %s; ", run->count, world_size, text);
  free(text);
  free(missing.list);
}

static void print_coverage(struct sl_output *out, const struct sl_live_run *run, const struct sl_live_state *states,
                           size_t detail) {
  uint64_t lost = 0, gaps = 0, agreed = 0, differed = 0, unattributed = 0;
  for (size_t i = 0; i < run->count; i++) {
    lost += states[i].lost;
    gaps += states[i].gaps;
    agreed += states[i].steps_agreed;
    differed += states[i].steps_differed;
    for (size_t s = 0; s < states[i].share_count; s++)
      if (strcmp(states[i].shares[s].category, "unattributed") == 0)
        unattributed += states[i].shares[s].bytes;
  }
  char bytes[SL_UNIT_CHARS], missing[256], of[64] = "the last peaks";
  missing_words(run, missing, sizeof missing);
  for (size_t i = 0; i < run->count; i++)
    if (states[i].figures_only)
      snprintf(of, sizeof of, "the last peak of rank %u", run->processes[detail].rank);
  sl_output_styled(out, lost || gaps || differed || *missing ? SL_STYLE_yellow : SL_STYLE_plain,
                   "%s%" PRIu64 " events lost, %" PRIu64 " gap%s; %s unattributed at %s; %" PRIu64 " of %" PRIu64
                   " checked steps exact",
                   missing, lost, gaps, gaps == 1 ? "" : "s", sl_format_bytes(bytes, (int64_t)unattributed, false), of,
                   agreed, agreed + differed);
}

/* Ranks that recorded nothing for a while, in one line. */
static void print_silent(struct sl_output *out, const struct sl_live_run *run, const struct sl_live_state *states,
                         uint64_t now_ns) {
  struct sl_rank_ranges silent = {0};
  for (size_t i = 0; i < run->count; i++)
    if (is_silent(&run->processes[i], &states[i], now_ns) &&
        sl_rank_ranges_add(&silent, run->processes[i].rank, run->processes[i].rank) < 0)
      out->failed = -ENOMEM;
  char *ranks = silent.count ? sl_rank_ranges_text(&silent, RANGES) : NULL;
  if (ranks)
    sl_output_styled(out, SL_STYLE_yellow, "No news from rank%s %s: killed, stopped, or the machine is gone.",
                     strpbrk(ranks, ",-") ? "s" : "", ranks);
  free(ranks);
  free(silent.list);
}

/* What is wrong with one rank, in a sentence that goes on after its name. false: nothing. */
static bool trouble_words(char buffer[2 * WHERE_CHARS], const struct sl_live_run *run, const struct sl_live_state *s,
                          enum sl_style *style) {
  char words[WHERE_CHARS], bytes[SL_UNIT_CHARS];
  *style = s->refusals ? SL_STYLE_red : SL_STYLE_yellow;
  if (s->refusals)
    snprintf(buffer, 2 * WHERE_CHARS, "out of memory, %s, %s did not fit; 'shardledger oom %s' tells more.",
             peak_words(words, &s->refused_at), sl_format_bytes(bytes, (int64_t)s->refused_bytes, false),
             run->directory);
  else if (s->gap)
    snprintf(buffer, 2 * WHERE_CHARS, "%" PRIu64 " gap%s, the last: %s", s->gaps, s->gaps == 1 ? "" : "s", s->gap);
  else if (!s->recorded && s->steps)
    snprintf(buffer, 2 * WHERE_CHARS, "PyTorch's allocations are not recorded; see 'shardledger doctor'.");
  else
    return false;
  return true;
}

/* Ranks with the same trouble in one line. */
static void print_trouble(struct sl_output *out, const struct sl_live_run *run, const struct sl_live_state *states,
                          uint64_t now_ns) {
  struct {
    char words[2 * WHERE_CHARS];
    enum sl_style style;
    struct sl_rank_ranges ranks;
  } lines[LINES] = {0};
  char words[2 * WHERE_CHARS];
  enum sl_style style;
  size_t count = 0, more = 0;
  for (size_t i = 0; i < run->count; i++) {
    if (!trouble_words(words, run, &states[i], &style))
      continue;
    size_t at = 0;
    while (at < count && strcmp(lines[at].words, words) != 0)
      at++;
    more += at == LINES;
    if (at == LINES)
      continue;
    if (at == count) {
      strcpy(lines[count].words, words);
      lines[count++].style = style;
    }
    if (sl_rank_ranges_add(&lines[at].ranks, run->processes[i].rank, run->processes[i].rank) < 0)
      out->failed = -ENOMEM;
  }
  for (size_t i = 0; i < count; i++) {
    char *ranks = sl_rank_ranges_text(&lines[i].ranks, RANGES);
    sl_output_styled(out, lines[i].style, "Rank%s %s: %s", ranks && strpbrk(ranks, ",-") ? "s" : "", ranks ? ranks : "",
                     lines[i].words);
    free(ranks);
    free(lines[i].ranks.list);
  }
  if (more)
    sl_output_line(out, "%zu rank%s more with other trouble: --csv", more, more == 1 ? "" : "s");
  print_silent(out, run, states, now_ns);
  if (run->note.text[0])
    sl_output_line(out, "%s", run->note.text);
}

size_t sl_watch_detail(const struct sl_live_run *run, const struct sl_watch_view *view) {
  struct sl_live_state *state = malloc(sizeof *state);
  size_t detail = run->count;
  uint64_t highest = 0;
  for (size_t i = 0; i < run->count && state; i++) {
    if (!sl_rank_ranges_has(view->ranks, run->processes[i].rank))
      continue;
    sl_live_rank_state(run->processes[i].live, state);
    if (detail == run->count || state->peak.bytes > highest) {
      detail = i;
      highest = state->peak.bytes;
    }
  }
  free(state);
  return detail;
}

int sl_watch_print(struct sl_output *out, const struct sl_live_run *run, const struct sl_watch_view *view) {
  struct sl_live_state *states = calloc(run->count ? run->count : 1, sizeof *states);
  if (!states) {
    out->failed = -ENOMEM;
    return 0;
  }
  const size_t detail = sl_watch_detail(run, view);
  if (detail == run->count) {
    free(states);
    return -ENOENT;
  }
  for (size_t i = 0; i < run->count; i++)
    sl_live_rank_state(run->processes[i].live, &states[i]);
  sl_output_document(out);
  print_coverage(out, run, states, detail);
  print_trouble(out, run, states, view->now_ns);
  sl_output_line(out, "%s", "");
  print_ranks(out, run, states, view);
  sl_output_line(out, "%s", "");
  for (size_t i = 0; i < run->count; i++)
    if ((i == detail || out->format == SL_FORMAT_json) &&
        sl_live_rank_categories(run->processes[i].live, &states[i]) < 0)
      out->failed = -ENOMEM;
  if (states[detail].recorded || out->format != SL_FORMAT_text)
    print_categories(out, run, states, detail);
  print_collectives(out, run);
  free(states);
  return 0;
}

bool sl_watch_ended(const struct sl_live_run *run) {
  bool ended = run->count > 0;
  for (size_t i = 0; i < run->count && ended; i++) {
    const struct sl_live_rank *live = run->processes[i].live;
    ended = sl_live_rank_ended(live) && !run->processes[i].more && (int64_t)run->count >= sl_live_rank_world_size(live);
  }
  return ended;
}
