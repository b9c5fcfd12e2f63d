/* `shardledger run`: starts a job so that it is recorded, and shows its peak. */
#include "command.h"
#include "commands/child.h"
#include "commands/recording.h"
#include "commands/trimmer.h"
#include "installation.h"
#include "open_ledger.h"
#include "plugin/process/config.h"
#include "plugin/process/placeholders.h"
#include "storage/rules/user_rules.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The options that mirror the environment: one an entry of the plugin's table, so neither can know more. */
struct mirrored {
  const char *text; /* what the user gave, or NULL */
  char name[40];    /* SHARDLEDGER_MAX_BYTES as max-bytes */
  char value[100];  /* the accepted values, without the prose behind them */
};

static const struct {
  const char *variable, *id, *values, *meaning;
} table[SL_OPTION_count] = {
#define OPTION(id, variable, fallback, values, meaning) [SL_OPTION_##id] = {variable, #id, values, meaning},
    SL_OPTIONS(OPTION)
#undef OPTION
};

/* True when the option takes one of a closed list of words; others have prose in the table. */
static bool is_choice(int option) {
  return strchr(table[option].values, '|') && !strpbrk(table[option].values, " ,");
}

static void fill_mirrored(struct mirrored *options, struct sl_argument *arguments) {
  for (int i = 0; i < SL_OPTION_count; i++) {
    options[i].text = NULL;
    snprintf(options[i].name, sizeof(options[i].name), "%s", table[i].id);
    for (char *c = options[i].name; *c; c++)
      if (*c == '_')
        *c = '-';
    snprintf(options[i].value, sizeof(options[i].value), "%.*s", (int)strcspn(table[i].values, ",;"), table[i].values);
    arguments[i] = (struct sl_argument){options[i].name, 0, options[i].value, table[i].meaning, SL_ARGUMENT_TEXT,
                                        &options[i].text};
  }
}

/* One of several tasks that srun, mpirun or a launcher above us started with the same command line. */
static bool is_one_of_many(int64_t *task) {
  static const struct {
    const char *count, *task;
  } launchers[] = {
      {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
      {"PMI_SIZE", "PMI_RANK"},
      {"WORLD_SIZE", "RANK"},
  };
  for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
    const char *count = getenv(launchers[i].count);
    const char *number = getenv(launchers[i].task);
    if (count && number && atoll(count) > 1) {
      *task = atoll(number);
      return true;
    }
  }
  return false;
}

static bool is_word_of(const char *words, const char *text) {
  size_t length = strlen(text);
  for (const char *word = words; *word;) {
    size_t size = strcspn(word, "|");
    if (size == length && strncmp(word, text, length) == 0)
      return true;
    word += size + (word[size] == '|');
  }
  return false;
}

/* What the plugin would refuse is refused here, before the job starts. */
static int check_options(const struct mirrored *options) {
  const char *said = getenv(table[SL_OPTION_log].variable);
  char *log = said ? strdup(said) : NULL;
  for (int i = 0; i < SL_OPTION_count; i++)
    if (options[i].text)
      setenv(table[i].variable, options[i].text, 1);
  /* The parser reads them all now. What it says of a wrong one is said better below, and once more in the job. */
  setenv(table[SL_OPTION_log].variable, "quiet", 1);
  (void)sl_option_text(SL_OPTION_dir);
  if (options[SL_OPTION_log].text || log)
    setenv(table[SL_OPTION_log].variable, options[SL_OPTION_log].text ? options[SL_OPTION_log].text : log, 1);
  else
    unsetenv(table[SL_OPTION_log].variable);
  free(log);
  for (int i = 0; i < SL_OPTION_count; i++) {
    const char *text = options[i].text;
    /* The parser takes the default in place of what it does not understand. */
    if (!text || (is_choice(i) ? is_word_of(table[i].values, text) : strcmp(sl_option_text(i), text) == 0))
      continue;
    sl_complain("run: --%s takes %s, not '%s'", options[i].name, table[i].values, text);
    return -EINVAL;
  }
  return 0;
}

static int read_rules(const char *path, struct sl_user_rules **out) {
  struct sl_error error = {{0}};
  int r = sl_user_rules_read(path, out, &error);
  if (r < 0)
    sl_complain("run: %s", error.text);
  return r;
}

/* Rules lie beside the logs from the start: whoever ingests them finds them, also on another machine. */
static int keep_rules(const struct sl_user_rules *rules, const char *directory) {
  struct sl_error error = {{0}};
  struct sl_part_file staged = SL_PART_FILE_NONE;
  int r = sl_user_rules_stage(rules, directory, &staged, &error);
  if (r == 0)
    r = sl_user_rules_keep(rules, &staged, &error);
  if (r < 0)
    sl_complain("run: %s", error.text);
  return r;
}

int sl_cmd_run(const struct sl_command *command, int argc, char **argv) {
  struct mirrored options[SL_OPTION_count];
  struct sl_argument arguments[SL_OPTION_count + 3];
  bool help_env = false;
  int keep = SL_KEEP_changes;
  const char *rules_path = NULL;
  struct sl_user_rules *rules = NULL;
  char plugin[PATH_MAX];
  char *directory = NULL;
  int64_t task = 0;
  int first = 0;

  fill_mirrored(options, arguments);
  /* -o is what every command calls its output. */
  arguments[SL_OPTION_dir].name = "output";
  arguments[SL_OPTION_dir].letter = 'o';
  arguments[SL_OPTION_dir].value = "DIR";
  arguments[SL_OPTION_count] =
      (struct sl_argument){"help-env", 0, NULL, "explain the options and their variables", SL_ARGUMENT_FLAG, &help_env};
  arguments[SL_OPTION_count + 1] = (struct sl_argument){
      "rules",          0,          "FILE", "what names of ranges and modules mean: see 'shardledger ingest --help'",
      SL_ARGUMENT_TEXT, &rules_path};
  arguments[SL_OPTION_count + 2] = (struct sl_argument)SL_KEEP_ARGUMENT(keep);
  int r = sl_parse_until_word(command, arguments, SL_OPTION_count + 3, argc, argv, &first);
  if (r < 0)
    return sl_parse_exit(r);
  if (help_env) {
    sl_options_print(stdout);
    return SL_EXIT_OK;
  }
  if (first == argc) {
    sl_complain("run: the command to run is missing; for example: shardledger run -- torchrun train.py");
    return SL_EXIT_USAGE;
  }
  if (check_options(options) < 0)
    return SL_EXIT_USAGE;
  if (sl_find_plugin(plugin, sizeof(plugin)) < 0) {
    sl_complain("run: %s is missing; build or install ShardLedger as a whole", plugin);
    return SL_EXIT_USAGE;
  }

  if (rules_path && read_rules(rules_path, &rules) < 0)
    return SL_EXIT_USAGE;

  bool many = is_one_of_many(&task);
  const char *wanted = options[SL_OPTION_dir].text ? options[SL_OPTION_dir].text : sl_default_directory();
  char filled[PATH_MAX];
  if (!many && strstr(wanted, "%r")) {
    sl_complain("run: %%r is one rank's, and this starts all of them: leave it out of %s", wanted);
    return SL_EXIT_USAGE;
  }
  if (sl_placeholders_fill(wanted, filled, sizeof(filled)) < 0) {
    sl_complain("run: %s is too long a path", wanted);
    return SL_EXIT_USAGE;
  }
  wanted = filled;
  int made = sl_recording_directory("run", wanted, !many, &directory);
  if (made >= 0 && rules && keep_rules(rules, directory) < 0)
    made = -EIO;
  rules = sl_user_rules_free(rules);
  if (made < 0) {
    free(directory);
    return SL_EXIT_USAGE;
  }
  sl_recording_inject(plugin, directory, argv[first]);

  bool started = false;
  const pid_t trimmer = sl_trimmer_start(directory);
  int status = sl_run_child(argv + first, &started);
  sl_trimmer_stop(trimmer);

  if (sl_holds_a_run(directory)) {
    if (!many)
      sl_recording_show(directory, keep == SL_KEEP_all, status != 0);
    else if (task == 0)
      sl_complain("recorded in %s; when all tasks have ended, go on with 'shardledger peaks %s'", directory, directory);
  } else {
    if (made)
      sl_recording_remove(directory);
    if (started && (!many || task == 0))
      sl_complain(
          "nothing was recorded: the command used no GPU, or could not be attached to; see 'shardledger doctor'");
  }
  free(directory);
  return status;
}
