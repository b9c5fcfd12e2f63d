/*
 * The phases of a rank that are open, as the parts of phases.h share them. Nobody outside of these includes this:
 *
 *   phases.c          what each event does
 *   range_meaning.c   what a range means
 *   unit_backwards.c  the backward of FSDP's units
 *   phase_jump.c      what goes on behind a gap
 *   open_phases.c     where something belongs now, and how a phase begins and ends
 */
#ifndef SHARDLEDGER_OPEN_PHASES_H
#define SHARDLEDGER_OPEN_PHASES_H

#include "module_backwards.h"
#include "open_ranges.h"
#include "phase_list.h"
#include "phases.h"
#include "storage/hash_table.h"

enum { DOMAIN_LIMIT = 256, KNOWN_MEANINGS = 256 };

struct call_count { /* (kind, module) → phases so far in the step that had this era */
  uint64_t key, era;
  uint32_t count;
  UT_hash_handle hh;
};

/* What a range means: its kind, and the module that it serves. */
struct meaning {
  enum sl_kind kind;
  enum sl_phase_point point;
  uint32_t module;
  bool by_user;
};

struct known_meaning { /* of a name (owned by the log), as long as these are the same */
  const char *name;
  uint32_t root;
  uint64_t modules;
  struct meaning meaning;
};

enum step_origin { STEPS_unknown, STEPS_of_companion, STEPS_of_user };

struct sl_phases {
  const struct sl_log *log;
  const struct sl_user_rules *rules; /* NULL: none */
  struct sl_user_rule_cache *names;  /* NULL: none */
  enum step_origin steps;            /* who says where steps are: the first to do so */
  int64_t next_user_step;
  int64_t highest_step; /* number given so far; -1: none */
  struct sl_phase_listener listener;
  struct sl_phase_list list;
  /* These know open phases only: phase_end takes one out of all of them. */
  struct sl_open_ranges ranges;
  struct sl_module_backwards module_backwards;
  struct sl_phase *whole_backward, *step;
  struct call_count *calls;
  uint64_t calls_era; /* another one: calls count from 0 */
  struct sl_module_table *modules;
  uint32_t current_root;                               /* of the last forward */
  uint16_t shardledger_domain;                         /* 0: not seen */
  const char *domains[DOMAIN_LIMIT];                   /* their names; NULL: not said */
  bool ignored_domain[DOMAIN_LIMIT];                   /* NCCL's calls are collectives, not phases */
  struct known_meaning known_meanings[KNOWN_MEANINGS]; /* by name */
  uint64_t unbalanced;
  int r; /* the listener's failure */
};

/* Opens a phase within its parent (NULL: in none). NULL: no memory. */
struct sl_phase *sl_phase_open(struct sl_phases *phases, const struct sl_event *event, uint64_t at, enum sl_kind kind,
                               const char *name, uint32_t module, struct sl_phase *parent);

/*
 * From here on nothing in phases points to the phase but the list of those that are to be pruned, and phases within it.
 */
void sl_phase_end(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at);

/* The same, and tells the listener, which may prune: any phase that was closed may be gone afterwards. */
void sl_phase_close(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at);

/* Tells the listener of a phase that is open. */
void sl_phase_tell(struct sl_phases *phases, struct sl_phase *phase);

/* The phase is a module's backward. 0 or -ENOMEM. */
int sl_phases_backward_begins(struct sl_phases *phases, struct sl_phase *phase);

#endif
