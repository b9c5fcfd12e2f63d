/* Reads PyTorch's segments at an instant, and what is in them. */
#include "commands/segment_map.h"
#include "storage/rules/categories.h"

#include "storage/grow.h"
#include "viewer_sql.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_SEGMENT = 2 << 20 }; /* kSmallBuffer: segments, and pieces of expandable ones, for small requests */

struct part {
  int64_t address, bytes, stream, alloc_ns;
  bool mapped; /* a piece of an expandable segment */
};

struct block {
  int64_t id, address, bytes, gone_ns; /* gone_ns INT64_MAX: alive at the end of the log */
  int category;                        /* index; -1: pending */
  const char *pool;
};

struct private_block { /* of a private pool, any time before: such a pool keeps its free segments */
  int64_t address, alloc_ns;
  char *pool;
};

struct sl_segment_map_texts { /* each text once */
  char **texts;
  size_t count;
};

struct instant { /* the map of one instant in the making */
  int64_t at_ns;
  struct sl_segment_map *map;
  struct part *parts;
  struct block *blocks;
  size_t part_count, block_count;
};

struct reader {
  struct instant *instants; /* by time */
  size_t count;
  struct private_block *privates; /* by address */
  size_t private_count;
};

/* The map's own copy of a text; NULL: no memory. */
static const char *text_keep(struct sl_segment_map_texts *texts, const char *text) {
  for (size_t i = texts->count; i-- > 0;)
    if (strcmp(texts->texts[i], text) == 0)
      return texts->texts[i];
  return sl_text_add(&texts->texts, &texts->count, text);
}

/* ---- reading ---- */

/* The user's own words are shown as what is known, but none of the above. */
static char letter_of(const char *category) {
  int number = sl_category_find(category);
  return sl_categories[number < 0 ? SL_CATEGORY_other : number].letter;
}

static int category_of(struct sl_segment_map *map, const char *name, struct sl_error *error) {
  for (size_t i = 0; i < map->category_count; i++)
    if (strcmp(map->categories[i].name, name) == 0)
      return (int)i;
  const char *kept = text_keep(map->texts, name);
  struct sl_map_category *added = kept ? SL_LIST_ADD(map->categories, map->category_count) : NULL;
  if (!added)
    return sl_no_memory(error);
  *added = (struct sl_map_category){kept, letter_of(name), 0};
  return (int)map->category_count - 1;
}

/* The first instant at a time or later. */
static size_t instant_from(const struct reader *reader, int64_t at_ns) {
  size_t low = 0, high = reader->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (reader->instants[middle].at_ns < at_ns)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The row's first two columns are when it came and went (NULL: never): the instants [*from, *to) saw it. */
static void instants_of(const struct reader *reader, struct sl_statement *row, size_t *from, size_t *to) {
  *from = instant_from(reader, sl_column_int(row, 0));
  *to = sl_column_is_null(row, 1) ? reader->count : instant_from(reader, sl_column_int(row, 1));
}

static int add_part(struct instant *instant, struct sl_statement *row, struct sl_error *error) {
  struct part *added = SL_LIST_ADD(instant->parts, instant->part_count);
  if (!added)
    return sl_no_memory(error);
  *added = (struct part){
      .alloc_ns = sl_column_int(row, 0),
      .address = sl_column_int(row, 2),
      .bytes = sl_column_int(row, 3),
      .stream = sl_column_int(row, 4),
      .mapped = sl_column_int(row, 5),
  };
  return 0;
}

static int add_block(struct instant *instant, struct sl_statement *row, struct sl_error *error) {
  int category = category_of(instant->map, sl_column_text(row, 5), error);
  const char *pool = sl_column_is_null(row, 7) ? "" : text_keep(instant->map->texts, sl_column_text(row, 7));
  struct block *added = category < 0 || !pool ? NULL : SL_LIST_ADD(instant->blocks, instant->block_count);
  if (!added)
    return sl_no_memory(error);
  bool pending = !sl_column_is_null(row, 6) && sl_column_int(row, 6) <= instant->at_ns;
  *added = (struct block){
      .gone_ns = sl_column_is_null(row, 1) ? INT64_MAX : sl_column_int(row, 1),
      .id = sl_column_int(row, 2),
      .address = sl_column_int(row, 3),
      .bytes = sl_column_int(row, 4),
      .category = pending ? -1 : category,
      .pool = *pool ? pool : NULL,
  };
  return 0;
}

/* Gives each row to the instants that saw it. */
static int read_rows(struct reader *reader, struct sl_db *db, const char *sql, int64_t rank, int64_t device,
                     int (*add)(struct instant *, struct sl_statement *, struct sl_error *), struct sl_error *error) {
  struct sl_statement *rows = NULL;
  int r = sl_db_ask(db, sql,
                    SL_WITH(SL_NUMBER(":rank", rank), SL_NUMBER(":device", device),
                            SL_NUMBER(":last", reader->instants[reader->count - 1].at_ns)),
                    &rows, error);
  if (r < 0)
    return r;
  while (r >= 0 && (r = sl_statement_step(rows, error)) > 0) {
    size_t from, to;
    instants_of(reader, rows, &from, &to);
    for (r = 0; from < to && r == 0; from++)
      r = add(&reader->instants[from], rows, error);
  }
  rows = sl_statement_close(rows);
  return r;
}

static int read_privates(struct reader *reader, struct sl_db *db, int64_t rank, int64_t device,
                         struct sl_error *error) {
  struct sl_statement *rows = NULL;
  int r = sl_db_ask(db, sl_sql_map_private_blocks,
                    SL_WITH(SL_NUMBER(":rank", rank), SL_NUMBER(":device", device),
                            SL_NUMBER(":last", reader->instants[reader->count - 1].at_ns)),
                    &rows, error);
  if (r < 0)
    return r;
  while (r >= 0 && (r = sl_statement_step(rows, error)) > 0) {
    struct private_block *added = SL_LIST_ADD(reader->privates, reader->private_count);
    if (added)
      *added = (struct private_block){sl_column_int(rows, 0), sl_column_int(rows, 1), strdup(sl_column_text(rows, 2))};
    if (!added || !added->pool)
      r = sl_no_memory(error);
  }
  rows = sl_statement_close(rows);
  return r;
}

static int read_all(struct reader *reader, struct sl_db *db, int64_t rank, int64_t device, struct sl_error *error) {
  int r = read_rows(reader, db, sl_sql_map_segments, rank, device, add_part, error);
  if (r == 0)
    r = read_rows(reader, db, sl_sql_map_blocks, rank, device, add_block, error);
  return r < 0 ? r : read_privates(reader, db, rank, device, error);
}

/* ---- putting together ---- */

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t max_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Where a cell of a segment begins. Sizes are far from where this could overflow, but a damaged ledger may hold any. */
static int64_t cell_start(const struct sl_map_segment *s, int cell) {
  return s->address + (int64_t)((double)s->bytes * cell / SL_SEGMENT_CELLS);
}

static void segment_draw(const struct instant *instant, struct sl_map_segment *s, size_t begin, size_t end) {
  for (int cell = 0; cell < SL_SEGMENT_CELLS; cell++) {
    int64_t start = cell_start(s, cell), stop = cell_start(s, cell + 1), live = 0;
    int64_t of[128] = {0};
    char most = '.';
    for (; begin < end && instant->blocks[begin].address + instant->blocks[begin].bytes <= start;)
      begin++;
    for (size_t i = begin; i < end && instant->blocks[i].address < stop; i++) {
      const struct block *b = &instant->blocks[i];
      int64_t bytes = min_of(b->address + b->bytes, stop) - max_of(b->address, start);
      int letter = b->category < 0 ? '~' : instant->map->categories[b->category].letter;
      live += bytes;
      of[letter] += bytes;
      if (most == '.' || of[letter] > of[(int)most])
        most = (char)letter;
    }
    s->drawn[cell] = (char)(live * 2 < stop - start ? tolower(most) : most);
  }
}

/* The free and the kept bytes of a segment's parts, with its blocks begin … end. */
static void parts_count(const struct instant *instant, struct sl_map_segment *s, size_t part, size_t part_end,
                        size_t begin, size_t end) {
  for (; part < part_end; part++) {
    const struct part *p = &instant->parts[part];
    int64_t live = 0;
    while (begin < end && instant->blocks[begin].address + instant->blocks[begin].bytes <= p->address)
      begin++;
    for (size_t i = begin; i < end && instant->blocks[i].address < p->address + p->bytes; i++)
      live += min_of(instant->blocks[i].address + instant->blocks[i].bytes, p->address + p->bytes) -
              max_of(instant->blocks[i].address, p->address);
    if (!live)
      s->returnable_bytes += p->bytes;
    else
      s->kept_bytes += p->bytes - live;
    if (live && live < p->bytes / 10)
      s->thin_bytes += p->bytes - live;
  }
}

static const char *private_pool(const struct reader *reader, const struct instant *instant,
                                const struct sl_map_segment *s, int64_t alloc_ns) {
  size_t low = 0, high = reader->private_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (reader->privates[middle].address < s->address)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < reader->private_count && reader->privates[low].address < s->address + s->bytes; low++)
    if (reader->privates[low].alloc_ns >= alloc_ns && reader->privates[low].alloc_ns <= instant->at_ns)
      return text_keep(instant->map->texts, reader->privates[low].pool);
  return NULL;
}

/* Fills a segment whose place, parts and blocks are known. */
static void segment_fill(const struct reader *reader, struct instant *instant, struct sl_map_segment *s, size_t part,
                         size_t part_end, size_t begin, size_t end) {
  int64_t free_from = s->address, last_ns = INT64_MIN, last_bytes = 0;
  for (size_t i = begin; i < end; i++) {
    const struct block *b = &instant->blocks[i];
    s->blocks++;
    if (b->category < 0) {
      s->pending_bytes += b->bytes;
    } else {
      s->allocated_bytes += b->bytes;
      instant->map->categories[b->category].bytes += b->bytes;
    }
    s->largest_free_bytes = max_of(s->largest_free_bytes, b->address - free_from);
    free_from = b->address + b->bytes;
    if (b->pool)
      s->pool = b->pool;
    if (b->gone_ns > last_ns || (b->gone_ns == last_ns && b->bytes > last_bytes)) {
      last_ns = b->gone_ns;
      last_bytes = b->bytes;
      s->keeper = b->id;
    }
  }
  s->largest_free_bytes = max_of(s->largest_free_bytes, s->address + s->bytes - free_from);
  if (!s->pool)
    s->pool = private_pool(reader, instant, s, instant->parts[part].alloc_ns);
  parts_count(instant, s, part, part_end, begin, end);
  if (s->pool) { /* a private pool keeps its segments as long as it exists */
    s->kept_bytes += s->returnable_bytes;
    s->returnable_bytes = 0;
  }
  segment_draw(instant, s, begin, end);
}

/* Pieces of an expandable segment that lie side by side are one, as in PyTorch's snapshots. */
static size_t segment_end(const struct instant *instant, size_t part) {
  const struct part *first = &instant->parts[part];
  size_t end = part + 1;
  while (first->mapped && end < instant->part_count && instant->parts[end].mapped &&
         instant->parts[end].stream == first->stream &&
         (instant->parts[end].bytes == SMALL_SEGMENT) == (first->bytes == SMALL_SEGMENT) &&
         instant->parts[end].address == instant->parts[end - 1].address + instant->parts[end - 1].bytes)
    end++;
  return end;
}

static int compare_blocks(const void *a, const void *b) {
  const struct block *one = a, *other = b;
  return (one->address > other->address) - (one->address < other->address);
}

static int compare_segments(const void *a, const void *b) {
  const struct sl_map_segment *one = a, *other = b;
  if (one->kept_bytes != other->kept_bytes)
    return one->kept_bytes > other->kept_bytes ? -1 : 1;
  if (one->returnable_bytes != other->returnable_bytes)
    return one->returnable_bytes > other->returnable_bytes ? -1 : 1;
  return (one->address > other->address) - (one->address < other->address);
}

static int compare_categories(const void *a, const void *b) {
  const struct sl_map_category *one = a, *other = b;
  if (one->bytes != other->bytes)
    return one->bytes > other->bytes ? -1 : 1;
  return strcmp(one->name, other->name);
}

static void outside_add(struct instant *instant, size_t *block, int64_t before) {
  while (*block < instant->block_count && instant->blocks[*block].address < before)
    instant->map->outside_bytes += instant->blocks[(*block)++].bytes;
}

static int put_together(const struct reader *reader, struct instant *instant, struct sl_error *error) {
  struct sl_segment_map *map = instant->map;
  size_t block = 0;
  if (instant->block_count)
    qsort(instant->blocks, instant->block_count, sizeof *instant->blocks, compare_blocks);
  map->segments = calloc(instant->part_count + 1, sizeof *map->segments);
  if (!map->segments)
    return sl_no_memory(error);
  for (size_t part = 0, part_end; part < instant->part_count; part = part_end) {
    const struct part *first = &instant->parts[part];
    struct sl_map_segment *s = &map->segments[map->count++];
    part_end = segment_end(instant, part);
    *s = (struct sl_map_segment){
        .address = first->address,
        .stream = first->stream,
        .small = first->bytes == SMALL_SEGMENT,
        .expandable = first->mapped,
    };
    for (size_t i = part; i < part_end; i++)
      s->bytes += instant->parts[i].bytes;
    outside_add(instant, &block, s->address);
    size_t begin = block;
    while (block < instant->block_count &&
           instant->blocks[block].address + instant->blocks[block].bytes <= s->address + s->bytes)
      block++;
    segment_fill(reader, instant, s, part, part_end, begin, block);
    map->reserved_bytes += s->bytes;
    map->allocated_bytes += s->allocated_bytes;
    map->pending_bytes += s->pending_bytes;
  }
  outside_add(instant, &block, INT64_MAX);
  qsort(map->segments, map->count, sizeof *map->segments, compare_segments);
  if (map->category_count)
    qsort(map->categories, map->category_count, sizeof *map->categories, compare_categories);
  return 0;
}

int sl_segment_maps_read(struct sl_db *db, int64_t rank, int64_t device, const int64_t *at_ns, size_t count,
                         struct sl_segment_map **out, struct sl_error *error) {
  struct reader reader = {.instants = calloc(count + 1, sizeof *reader.instants), .count = count};
  int r = reader.instants ? 0 : sl_no_memory(error);
  for (size_t i = 0; i < count; i++)
    out[i] = NULL;
  if (r < 0 || !count)
    goto finish;
  for (size_t i = 0; i < count && r == 0; i++) {
    struct sl_segment_map *map = out[i] = calloc(1, sizeof *map);
    reader.instants[i] = (struct instant){.at_ns = at_ns[i], .map = map};
    if (!map || !(map->texts = calloc(1, sizeof *map->texts)))
      r = sl_no_memory(error);
  }
  if (r == 0)
    r = read_all(&reader, db, rank, device, error);
  for (size_t i = 0; i < count && r == 0; i++)
    r = put_together(&reader, &reader.instants[i], error);
finish:
  for (size_t i = 0; reader.instants && i < count; i++) {
    free(reader.instants[i].parts);
    free(reader.instants[i].blocks);
    if (r < 0)
      out[i] = sl_segment_map_free(out[i]);
  }
  for (size_t i = 0; i < reader.private_count; i++)
    free(reader.privates[i].pool);
  free(reader.privates);
  free(reader.instants);
  return r;
}

struct sl_segment_map *sl_segment_map_free(struct sl_segment_map *map) {
  if (!map)
    return NULL;
  for (size_t i = 0; map->texts && i < map->texts->count; i++)
    free(map->texts->texts[i]);
  if (map->texts)
    free(map->texts->texts);
  free(map->texts);
  free(map->segments);
  free(map->categories);
  free(map);
  return NULL;
}
