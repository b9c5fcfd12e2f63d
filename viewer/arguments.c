/* Reads a command's options, and prints its help from the same table. */
#include "command.h"
#include "output/units.h"
#include "storage/words.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 30
#define HELP_WIDTH 100

/* Prints text from HELP_COLUMN on, broken at blanks. */
static void print_wrapped(const char *text) {
  int column = HELP_COLUMN;
  while (*text) {
    int word = (int)strcspn(text, " ");
    if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
      printf("\n%*s", HELP_COLUMN, "");
      column = HELP_COLUMN;
    } else if (column > HELP_COLUMN) {
      putchar(' ');
      column++;
    }
    printf("%.*s", word, text);
    column += word;
    text += word;
    text += strspn(text, " ");
  }
  putchar('\n');
}

static void print_help(const struct sl_command *command, const struct sl_argument *arguments, int count) {
  printf("shardledger %s: %s\n\nUsage: shardledger %s %s\n", command->name, command->line, command->name,
         command->usage);
  if (command->details)
    printf("\n%s\n", command->details);
  printf("\nOptions:\n");
  for (int i = 0; i < count; i++) {
    const struct sl_argument *a = &arguments[i];
    char left[96];
    char letter[8] = "";
    if (a->letter)
      snprintf(letter, sizeof(letter), "-%c, ", a->letter);
    snprintf(left, sizeof(left), "%s--%s%s%s", letter, a->name, a->value ? " " : "", a->value ? a->value : "");
    printf("  %-*s", HELP_COLUMN - 2, left);
    if (strlen(left) > HELP_COLUMN - 4)
      printf("\n%*s", HELP_COLUMN, "");
    print_wrapped(a->help);
  }
  printf("  %-*sprint this\n\nExample:\n", HELP_COLUMN - 2, "-h, --help");
  for (const char *line = command->example; *line;) {
    int length = (int)strcspn(line, "\n");
    printf("  %.*s\n", length, line);
    line += length + (line[length] == '\n');
  }
}

static const struct sl_argument *find(const struct sl_argument *arguments, int count, const char *name, size_t length) {
  for (int i = 0; i < count; i++)
    if (strlen(arguments[i].name) == length && strncmp(arguments[i].name, name, length) == 0)
      return &arguments[i];
  /* Several ranks may be called so. */
  for (int i = 0; i < count && length == strlen("ranks") && strncmp(name, "ranks", length) == 0; i++)
    if (arguments[i].kind == SL_ARGUMENT_RANKS && strcmp(arguments[i].name, "rank") == 0)
      return &arguments[i];
  return NULL;
}

static int unknown_option(const struct sl_command *command, const struct sl_argument *arguments, int count,
                          const char *word) {
  const char *nearest = NULL;
  int least = sl_word_slip(word + 2) + 1;
  for (int i = 0; i < count && word[1] == '-'; i++) {
    int distance = sl_word_distance(word + 2, arguments[i].name);
    if (distance < least) {
      least = distance;
      nearest = arguments[i].name;
    }
  }
  if (nearest)
    sl_complain("%s: there is no option %s; did you mean --%s?", command->name, word, nearest);
  else
    sl_complain("%s: there is no option %s; 'shardledger %s --help' lists them", command->name, word, command->name);
  return -EINVAL;
}

static int read_choice(const char *words, const char *text) {
  int index = 0;
  for (const char *word = words; *word; index++) {
    size_t length = strcspn(word, "|");
    if (strlen(text) == length && strncmp(word, text, length) == 0)
      return index;
    word += length + (word[length] == '|');
  }
  return -1;
}

/* "0-3,7": numbers and ranges, the lower end first. */
static bool are_ranks(const char *text) {
  for (;; text++) {
    char *end = NULL;
    errno = 0;
    if (*text < '0' || *text > '9')
      return false;
    const long long first = strtoll(text, &end, 10);
    if (*end == '-') {
      text = end + 1;
      if (*text < '0' || *text > '9' || strtoll(text, &end, 10) < first)
        return false;
    }
    if (errno)
      return false;
    text = end;
    if (*text != ',')
      return *text == '\0';
  }
}

static int set_value(const struct sl_command *command, const struct sl_argument *a, const char *text) {
  struct sl_text_list *list = a->target; /* of a list only */
  char *end = NULL;
  int index = 0;
  switch (a->kind) {
  case SL_ARGUMENT_FLAG: *(bool *)a->target = true; return 0;
  case SL_ARGUMENT_TEXT: *(const char **)a->target = text; return 0;
  case SL_ARGUMENT_NUMBER:
    errno = 0;
    if (*text >= '0' && *text <= '9') {
      *(int64_t *)a->target = strtoll(text, &end, 10);
      if (*end == '\0' && errno == 0)
        return 0;
    }
    sl_complain("%s: --%s takes a number from 0, not '%s'", command->name, a->name, text);
    return -EINVAL;
  case SL_ARGUMENT_CHOICE:
    index = read_choice(a->value, text);
    if (index >= 0) {
      *(int *)a->target = index;
      return 0;
    }
    sl_complain("%s: --%s takes one of %s, not '%s'", command->name, a->name, a->value, text);
    return -EINVAL;
  case SL_ARGUMENT_SIZE:
    if (sl_parse_bytes(text, a->target) == 0)
      return 0;
    sl_complain("%s: --%s takes a size such as 40GiB, 512MiB or 4096, not '%s'", command->name, a->name, text);
    return -EINVAL;
  case SL_ARGUMENT_LIMIT:
    errno = 0;
    *(int64_t *)a->target = strcmp(text, "all") == 0 ? SL_ALL_ROWS : strtoll(text, &end, 10);
    if (!end || (*text >= '1' && *text <= '9' && *end == '\0' && errno == 0))
      return 0;
    sl_complain("%s: --%s takes a number from 1, or all, not '%s'", command->name, a->name, text);
    return -EINVAL;
  case SL_ARGUMENT_RANKS:
    if (are_ranks(text)) {
      *(const char **)a->target = text;
      return 0;
    }
    sl_complain("%s: --%s takes ranks such as 7 or 0-3,7, not '%s'", command->name, a->name, text);
    return -EINVAL;
  case SL_ARGUMENT_LIST:
    if (list->count == (int)(sizeof(list->items) / sizeof(list->items[0]))) {
      sl_complain("%s: --%s is given too often", command->name, a->name);
      return -EINVAL;
    }
    list->items[list->count++] = text;
    return 0;
  }
  return -EINVAL;
}

/* Reads the option at argv[*i] and its value, and moves *i past them. */
static int read_option(const struct sl_command *command, const struct sl_argument *arguments, int count, int argc,
                       char **argv, int *i) {
  const char *word = argv[*i];
  const struct sl_argument *a = NULL;
  const char *value = NULL;

  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
    print_help(command, arguments, count);
    return -ECANCELED;
  }
  if (word[1] == '-') {
    size_t length = strcspn(word + 2, "=");
    a = find(arguments, count, word + 2, length);
    value = word[2 + length] == '=' ? word + 3 + length : NULL;
  } else {
    for (int n = 0; n < count; n++)
      if (arguments[n].letter == word[1])
        a = &arguments[n];
    value = word[2] ? word + 2 : NULL;
  }
  if (!a)
    return unknown_option(command, arguments, count, word);
  (*i)++;
  if (a->kind == SL_ARGUMENT_FLAG && value) {
    sl_complain("%s: --%s takes no value", command->name, a->name);
    return -EINVAL;
  }
  if (a->kind != SL_ARGUMENT_FLAG && !value) {
    if (*i == argc) {
      sl_complain("%s: --%s needs a value: %s", command->name, a->name, a->value);
      return -EINVAL;
    }
    value = argv[(*i)++];
  }
  return set_value(command, a, value);
}

/* SQL may begin with a comment; no option has a blank after its dashes. */
static bool is_sql_comment(const char *word) {
  return strncmp(word, "--", 2) == 0 && isspace((unsigned char)word[2]);
}

/* Set while a command is asked for its options. */
static struct {
  sl_arguments_visitor *visit;
  void *context;
} asked;

void sl_visit_arguments(const struct sl_command *command, sl_arguments_visitor *visit, void *context) {
  char *argv[] = {(char *)command->name, NULL};
  asked.visit = visit;
  asked.context = context;
  command->run(command, 1, argv);
  asked.visit = NULL;
}

int sl_parse(const struct sl_command *command, const struct sl_argument *arguments, int count, int argc, char **argv,
             const char **words, int limit) {
  bool options = true;
  int found = 0;
  if (asked.visit) {
    asked.visit(asked.context, arguments, count);
    return -ECANCELED;
  }
  for (int i = 1; i < argc;) {
    const char *word = argv[i];
    if (options && strcmp(word, "--") == 0) {
      options = false;
      i++;
    } else if (options && word[0] == '-' && word[1] && !is_sql_comment(word)) {
      int r = read_option(command, arguments, count, argc, argv, &i);
      if (r < 0)
        return r;
    } else if (found == limit) {
      sl_complain("%s: '%s' is one argument too many; usage: shardledger %s %s", command->name, word, command->name,
                  command->usage);
      return -EINVAL;
    } else {
      words[found++] = word;
      i++;
    }
  }
  return found;
}

int sl_parse_until_word(const struct sl_command *command, const struct sl_argument *arguments, int count, int argc,
                        char **argv, int *rest) {
  int i = 1;
  if (asked.visit) {
    asked.visit(asked.context, arguments, count);
    return -ECANCELED;
  }
  while (i < argc && argv[i][0] == '-' && argv[i][1]) {
    if (strcmp(argv[i], "--") == 0) {
      i++;
      break;
    }
    int r = read_option(command, arguments, count, argc, argv, &i);
    if (r < 0)
      return r;
  }
  *rest = i;
  return 0;
}

int sl_parse_exit(int r) {
  return r == -ECANCELED ? SL_EXIT_OK : SL_EXIT_USAGE;
}

int sl_output_begin(struct sl_output *out, const struct sl_output_arguments *arguments) {
  if (arguments->csv && arguments->json) {
    sl_complain("--csv and --json exclude each other");
    return -EINVAL;
  }
  if (arguments->sort && (arguments->csv || arguments->json)) {
    sl_complain("--sort is for text: CSV and JSON come in the ledger's order");
    return -EINVAL;
  }
  if (arguments->only && !arguments->csv && !arguments->json) {
    sl_complain("--table needs --csv or --json: text shows all tables");
    return -EINVAL;
  }
  sl_output_open(out,
                 arguments->csv    ? SL_FORMAT_csv
                 : arguments->json ? SL_FORMAT_json
                                   : SL_FORMAT_text,
                 arguments->bytes);
  out->limit = arguments->limit;
  out->sort = arguments->sort;
  out->only = arguments->only;
  return 0;
}
