/* One command of `shardledger`: an entry of the table in main.c, a function in commands/cmd_<name>.c. */
#ifndef SHARDLEDGER_COMMAND_H
#define SHARDLEDGER_COMMAND_H

#include "output/table.h"

#include <stdbool.h>
#include <stdint.h>

enum sl_exit {
  SL_EXIT_OK = 0,
  SL_EXIT_CHECK_FAILED = 1,
  SL_EXIT_USAGE = 2, /* wrong arguments, or input that can't be read */
};

struct sl_command {
  const char *name;
  const char *line;    /* what it does, in one line */
  const char *usage;   /* what follows "shardledger <name>" */
  const char *details; /* more for --help, or NULL */
  const char *example; /* command lines that work as they stand */
  /* argv[0] is the command's name. Returns the exit status. */
  int (*run)(const struct sl_command *command, int argc, char **argv);
};

extern const struct sl_command sl_commands[];
extern const int sl_command_count;

int sl_cmd_run(const struct sl_command *command, int argc, char **argv);
int sl_cmd_rehearse(const struct sl_command *command, int argc, char **argv);
int sl_cmd_ingest(const struct sl_command *command, int argc, char **argv);
int sl_cmd_merge(const struct sl_command *command, int argc, char **argv);
int sl_cmd_info(const struct sl_command *command, int argc, char **argv);
int sl_cmd_peaks(const struct sl_command *command, int argc, char **argv);
int sl_cmd_ranks(const struct sl_command *command, int argc, char **argv);
int sl_cmd_snapshots(const struct sl_command *command, int argc, char **argv);
int sl_cmd_nccl(const struct sl_command *command, int argc, char **argv);
int sl_cmd_device(const struct sl_command *command, int argc, char **argv);
int sl_cmd_oom(const struct sl_command *command, int argc, char **argv);
int sl_cmd_survivors(const struct sl_command *command, int argc, char **argv);
int sl_cmd_diff(const struct sl_command *command, int argc, char **argv);
int sl_cmd_report(const struct sl_command *command, int argc, char **argv);
int sl_cmd_export(const struct sl_command *command, int argc, char **argv);
int sl_cmd_check(const struct sl_command *command, int argc, char **argv);
int sl_cmd_explain(const struct sl_command *command, int argc, char **argv);
int sl_cmd_rules(const struct sl_command *command, int argc, char **argv);
int sl_cmd_whatif(const struct sl_command *command, int argc, char **argv);
int sl_cmd_advise(const struct sl_command *command, int argc, char **argv);
int sl_cmd_watch(const struct sl_command *command, int argc, char **argv);
int sl_cmd_trim(const struct sl_command *command, int argc, char **argv);
int sl_cmd_query(const struct sl_command *command, int argc, char **argv);
int sl_cmd_mcp(const struct sl_command *command, int argc, char **argv);
int sl_cmd_dump(const struct sl_command *command, int argc, char **argv);
int sl_cmd_doctor(const struct sl_command *command, int argc, char **argv);
int sl_cmd_completion(const struct sl_command *command, int argc, char **argv);
int sl_cmd_help(const struct sl_command *command, int argc, char **argv);

enum sl_argument_kind {
  SL_ARGUMENT_FLAG,   /* target: bool */
  SL_ARGUMENT_TEXT,   /* target: const char *, which points into argv afterwards */
  SL_ARGUMENT_NUMBER, /* target: int64_t, 0 or more */
  SL_ARGUMENT_CHOICE, /* target: int, the index in value, "a|b|c" */
  SL_ARGUMENT_SIZE,   /* target: int64_t, bytes: 40GiB */
  SL_ARGUMENT_LIST,   /* target: struct sl_text_list; may be given several times */
  SL_ARGUMENT_LIMIT,  /* target: int64_t, 1 or more, or "all": SL_ALL_ROWS */
  SL_ARGUMENT_RANKS,  /* target: const char *, such as 0-3,7: for rank_in in SQL */
};

struct sl_text_list {
  const char *items[32]; /* point into argv */
  int count;
};

struct sl_argument {
  const char *name;  /* without its dashes */
  char letter;       /* short form, or 0 */
  const char *value; /* how help calls the value; the words of a choice */
  const char *help;
  enum sl_argument_kind kind;
  void *target; /* keeps what it has when the option is not given */
};

/* Whose rows go into a ledger: those of steps that differ from earlier ones, or of all. target is an int. */
enum sl_keep { SL_KEEP_changes, SL_KEEP_all };
#define SL_KEEP_ARGUMENT(target)                                                                                       \
  {                                                                                                                    \
    "keep", 0, "changes|all", "rows of the steps that differ from earlier ones (default), or of all steps",            \
        SL_ARGUMENT_CHOICE, &(target)                                                                                  \
  }

/* How many ranks are ingested at once. target is an int64_t, 0 by default: storage decides. */
#define SL_JOBS_ARGUMENT(target)                                                                                       \
  { "jobs", 'j', "N", "ranks to ingest at once; default: one a processor, 16 at most", SL_ARGUMENT_NUMBER, &(target) }

/* Which run of a run directory. target is a const char *. */
#define SL_RUN_ARGUMENT(target)                                                                                        \
  {                                                                                                                    \
    "run", 0, "RUN", "of several runs in DIR: its number, or an id that its launcher gave; default: the newest",       \
        SL_ARGUMENT_TEXT, &(target)                                                                                    \
  }

/* How tables are printed; and with the choice of the run, the options of every command that asks a ledger. */
struct sl_output_arguments {
  bool csv, json, bytes;
  int64_t limit;    /* 0: not given, as in struct sl_output */
  const char *sort; /* NULL: not given */
  const char *only; /* the table that is printed; NULL: not given */
  const char *run;  /* of several in a run directory: a number or an id; NULL: the newest */
};
#define SL_LIMIT_ARGUMENT(out)                                                                                         \
  {                                                                                                                    \
    "limit", 0, "N|all", "rows of a table that text shows (default: a screen of them)", SL_ARGUMENT_LIMIT,             \
        &(out).limit                                                                                                   \
  }
#define SL_FORMAT_ARGUMENTS(out)                                                                                       \
  SL_LIMIT_ARGUMENT(out),                                                                                              \
      {"sort", 0, "COLUMN", "text: rows by this column, the largest first", SL_ARGUMENT_TEXT, &(out).sort},            \
      {"csv", 0, NULL, "print CSV: all tables and rows", SL_ARGUMENT_FLAG, &(out).csv},                                \
      {"json", 0, NULL, "print JSON: all tables and rows", SL_ARGUMENT_FLAG, &(out).json},                             \
      {"table", 0, "NAME", "with --csv or --json: this table alone", SL_ARGUMENT_TEXT, &(out).only}, {                 \
    "bytes", 0, NULL, "print sizes exactly, in bytes", SL_ARGUMENT_FLAG, &(out).bytes                                  \
  }
#define SL_OUTPUT_ARGUMENTS(out) SL_RUN_ARGUMENT((out).run), SL_FORMAT_ARGUMENTS(out)

/*
 * Reads options and at most `limit` other words, which may come in any order; "--" ends the options. Returns the number
 * of the other words, put into words; -ECANCELED when --help was asked for and printed: exit 0; -EINVAL when the
 * command line is wrong, which was said: exit 2.
 */
int sl_parse(const struct sl_command *command, const struct sl_argument *arguments, int count, int argc, char **argv,
             const char **words, int limit);

/* The same, but the first other word ends the options: *rest is its index in argv. 0 or a negative errno. */
int sl_parse_until_word(const struct sl_command *command, const struct sl_argument *arguments, int count, int argc,
                        char **argv, int *rest);

/*
 * Has a command tell its options instead of doing anything, for what is generated from them. Every command parses
 * before it acts, so this costs nothing and prints nothing. The options live during the visit only.
 */
typedef void sl_arguments_visitor(void *context, const struct sl_argument *arguments, int count);
void sl_visit_arguments(const struct sl_command *command, sl_arguments_visitor *visit, void *context);

/* The exit status for what sl_parse returned below 0. */
int sl_parse_exit(int r);

/* --csv and --json together are refused. Returns 0 or -EINVAL after saying so. */
int sl_output_begin(struct sl_output *out, const struct sl_output_arguments *arguments);

#endif
