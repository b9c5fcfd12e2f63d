/* From likeness to rows: who is in which group, in what it differs, and what the group is. */
#include "rank_groups.h"

#include "rank_differences.h"
#include "rank_next_to.h"
#include "storage/tables/ledger_tables.h"
#include "storage/tables/schema.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <stdlib.h>

struct group {
  uint32_t representative;
  size_t number;  /* that likeness gave, by size */
  size_t next_to; /* the number of the group that it is compared with */
  uint32_t base;  /* that one's representative */
  bool is_kind;   /* half as large as the largest group, or larger: as one of several stages */
  struct sl_rank_fact facts[SL_FACT_kinds];
  int fact_count;
};

struct filling {
  struct sl_db *db;
  struct sl_error *error;
  struct sl_rank_figures figures;
  struct sl_peak_parts parts;
  struct sl_likeness *likeness;
  struct sl_noise noise;
  struct group *groups; /* by size, then in their final order */
  size_t group_count;
  size_t *place;   /* of a number in the final order */
  bool has_growth; /* the temporary table grown is there */
};

static int by_importance(const void *a, const void *b) {
  const struct group *x = a, *y = b;
  if (x->is_kind != y->is_kind)
    return x->is_kind ? 1 : -1;
  const int64_t x_bytes = llabs(x->facts[0].bytes), y_bytes = llabs(y->facts[0].bytes);
  if (x_bytes != y_bytes)
    return x_bytes > y_bytes ? -1 : 1;
  return x->representative < y->representative ? -1 : x->representative > y->representative;
}

static int choose_next_to(struct filling *f) {
  struct sl_group_size *sizes = calloc(f->group_count + 1, sizeof *sizes);
  size_t *next_to = calloc(f->group_count + 1, sizeof *next_to);
  const int r = sizes && next_to ? 0 : sl_no_memory(f->error);
  if (r == 0) {
    for (size_t i = 0; i < f->figures.count; i++) {
      sizes[f->likeness[i].group].leader = f->likeness[i].leader;
      sizes[f->likeness[i].group].ranks++;
    }
    sl_rank_next_to(&f->figures, &f->noise, sizes, f->group_count, next_to);
    for (size_t i = 0; i < f->group_count; i++)
      f->groups[i] = (struct group){.representative = f->figures.ranks[sizes[i].leader],
                                    .number = i,
                                    .next_to = next_to[i],
                                    .base = f->figures.ranks[sizes[next_to[i]].leader],
                                    .is_kind = i == 0 || (sizes[i].ranks > 1 && sizes[i].ranks * 2 >= sizes[0].ranks)};
  }
  free(sizes);
  free(next_to);
  return r;
}

/* Facts of each group but the first, and with them the groups' order. */
static int compare_groups(struct filling *f) {
  int r = choose_next_to(f);
  if (r < 0)
    return r;
  for (size_t i = 1; i < f->group_count; i++) {
    struct group *group = &f->groups[i];
    group->fact_count = sl_rank_differences_find(f->db, group->base, group->representative, &f->noise, &f->parts,
                                                 group->facts, f->error);
    if (group->fact_count < 0)
      return group->fact_count;
  }
  if (f->group_count > 2)
    qsort(f->groups + 1, f->group_count - 1, sizeof *f->groups, by_importance);
  for (size_t i = 0; i < f->group_count; i++)
    f->place[f->groups[i].number] = i;
  return 0;
}

static int write_members(struct filling *f) {
  struct sl_statement *insert = NULL;
  int r = sl_schema_insert(f->db, SL_LEDGER_rank_group, &insert, f->error);
  for (size_t i = 0; i < f->figures.count && r == 0; i++) {
    const size_t group = f->place[f->likeness[i].group];
    sl_bind_named_int(insert, ":rank", f->figures.ranks[i]);
    sl_bind_named_int(insert, ":group_number", (int64_t)group);
    sl_bind_named_int(insert, ":representative", f->groups[group].representative);
    sl_bind_named_int(insert, ":base",
                      f->groups[group].is_kind ? f->groups[group].representative : f->groups[group].base);
    r = sl_statement_run(insert, f->error);
  }
  insert = sl_statement_close(insert);
  return r;
}

/* What differs most between the two periods, or in what the two have grown. *out is at its row, if r is 1. */
static int find_owner(struct filling *f, const struct group *group, const struct sl_rank_fact *fact,
                      struct sl_statement **out) {
  int r = 0;
  if (fact->kind != SL_FACT_growth)
    return sl_db_ask_first(f->db, sl_rank_owner_peak_sql,
                           SL_WITH(SL_NUMBER(":rank", group->representative), SL_NUMBER(":base", group->base),
                                   SL_NUMBER(":period", fact->period), SL_NUMBER(":base_period", fact->base_period),
                                   SL_NUMBER(":sign", fact->bytes < 0 ? -1 : 1)),
                           out, f->error);
  if (!f->has_growth) /* of all ranks at once, which takes as long as of one */
    r = sl_db_execute(
        f->db,
        "CREATE TEMP TABLE grown AS SELECT rank, category, detail, module, phase, bytes FROM owner_growth;"
        "CREATE INDEX temp.grown_by_rank ON grown(rank)",
        f->error);
  f->has_growth = f->has_growth || r == 0;
  if (r < 0)
    return r;
  return sl_db_ask_first(f->db, sl_rank_owner_growth_sql,
                         SL_WITH(SL_NUMBER(":rank", group->representative), SL_NUMBER(":base", group->base),
                                 SL_NUMBER(":sign", fact->bytes < 0 ? -1 : 1)),
                         out, f->error);
}

static void bind_known(struct sl_statement *insert, const char *name, int64_t value, bool is_known) {
  if (is_known)
    sl_bind_named_int(insert, name, value);
  else
    sl_bind_named_null(insert, name);
}

static int write_fact(struct filling *f, struct sl_statement *insert, size_t number, const struct group *group,
                      int place) {
  const struct sl_rank_fact *fact = &group->facts[place];
  struct sl_statement *owner = NULL;
  int r = find_owner(f, group, fact, &owner);
  if (r < 0)
    goto finish;
  sl_bind_named_int(insert, ":group_number", (int64_t)number);
  sl_bind_named_int(insert, ":place", place);
  sl_bind_named_int(insert, ":next_to", (int64_t)f->place[group->next_to]);
  sl_bind_named_text(insert, ":kind", sl_fact_word(fact->kind));
  sl_bind_named_int(insert, ":bytes", fact->bytes);
  bind_known(insert, ":bytes_per_step", fact->bytes_per_step, fact->kind == SL_FACT_growth);
  const bool is_step = fact->since_step != INT64_MIN && fact->since_step != INT64_MAX;
  bind_known(insert, ":since_step", fact->since_step, is_step);
  bind_known(insert, ":last_step", fact->last_step, fact->last_step != SL_NONE && fact->last_step != INT64_MAX);
  sl_bind_named_int(insert, ":steps", fact->steps);
  sl_bind_named_int(insert, ":period", fact->period);
  static const char *const words[] = {":category", ":detail", ":module", ":phase"};
  for (int i = 0; i < 4; i++)
    if (r > 0 && !sl_column_is_null(owner, i))
      sl_bind_named_text(insert, words[i], sl_column_text(owner, i));
    else
      sl_bind_named_null(insert, words[i]);
  bind_known(insert, ":owner_bytes", r > 0 ? sl_column_int(owner, 4) : 0, r > 0);
  sl_bind_named_null(insert, ":is_all_of");
  sl_bind_named_null(insert, ":is_rest_of");
  r = sl_statement_run(insert, f->error);
finish:
  owner = sl_statement_close(owner);
  return r;
}

static int write_differences(struct filling *f) {
  struct sl_statement *insert = NULL;
  int r = sl_schema_insert(f->db, SL_LEDGER_rank_difference, &insert, f->error);
  for (size_t number = 1; number < f->group_count; number++)
    for (int place = 0; place < f->groups[number].fact_count && r == 0; place++)
      r = write_fact(f, insert, number, &f->groups[number], place);
  insert = sl_statement_close(insert);
  return r < 0 ? r : sl_db_execute(f->db, sl_rank_group_is_sql, f->error);
}

static int find_groups(struct filling *f) {
  int r = sl_rank_figures_read(f->db, &f->figures, f->error);
  if (r == 0)
    r = sl_peak_parts_read(f->db, &f->parts, f->error);
  if (r < 0 || f->figures.count == 0)
    return r;
  f->likeness = calloc(f->figures.count, sizeof *f->likeness);
  r = f->likeness ? sl_likeness_find(&f->figures, &f->parts, &f->noise, f->likeness, &f->group_count) : -ENOMEM;
  if (r == 0 && (!(f->groups = calloc(f->group_count, sizeof *f->groups)) ||
                 !(f->place = calloc(f->group_count, sizeof *f->place))))
    r = -ENOMEM;
  return r < 0 ? sl_no_memory(f->error) : compare_groups(f);
}

int sl_rank_groups_fill(struct sl_db *db, struct sl_error *error) {
  struct filling f = {.db = db, .error = error};
  int r = sl_db_execute(db, "BEGIN; DELETE FROM rank_group; DELETE FROM rank_difference", error);
  if (r == 0)
    r = find_groups(&f);
  if (r == 0)
    r = write_members(&f);
  if (r == 0)
    r = write_differences(&f);
  if (r == 0 && f.has_growth)
    r = sl_db_execute(db, "DROP TABLE temp.grown", error);
  if (r == 0)
    r = sl_db_execute(db, "COMMIT", error);
  sl_rank_figures_free(&f.figures);
  sl_peak_parts_free(&f.parts);
  free(f.likeness);
  free(f.groups);
  free(f.place);
  return r;
}
