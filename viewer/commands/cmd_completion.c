/* `shardledger completion`: scripts for bash, zsh and fish, from the command table. */
#include "command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* What can follow an option. */
enum value { VALUE_none, VALUE_words, VALUE_directory, VALUE_file, VALUE_other };

/* The words of a choice "a|b|N", separated by blanks; placeholders, in capitals, are left out. "" when it is none. */
static const char *words_of(const char *choice, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  if (!strchr(choice, '|'))
    return out;
  for (const char *word = choice; *word;) {
    size_t length = strcspn(word, "|");
    if (islower((unsigned char)*word) && used + length + 2 < size)
      used += (size_t)snprintf(out + used, size - used, "%s%.*s", used ? " " : "", (int)length, word);
    word += length + (word[length] == '|');
  }
  return out;
}

static enum value value_of(const struct sl_argument *a, char *words, size_t size) {
  words[0] = '\0';
  if (!a->value)
    return VALUE_none;
  if (*words_of(a->value, words, size))
    return VALUE_words;
  return strcmp(a->value, "DIR") == 0 ? VALUE_directory : strstr(a->value, "FILE") ? VALUE_file : VALUE_other;
}

/* Words that stand where other commands take a run: the names of commands, or those of the usage. */
static const char *positional_words(const struct sl_command *command, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  if (strcmp(command->usage, "[COMMAND]") != 0)
    return islower((unsigned char)command->usage[0]) ? words_of(command->usage, out, size) : out;
  for (int i = 0; i < sl_command_count && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", sl_commands[i].name);
  return out;
}

/* Takes a command of its own behind its options. */
static bool runs_others(const struct sl_command *command) {
  return strstr(command->usage, "-- CMD") != NULL;
}

/* Text inside of single quotes; `escaped` are characters that get a backslash, and a quote becomes `quote`. */
static void print_quoted(const char *text, const char *escaped, const char *quote) {
  for (; *text; text++) {
    if (*text == '\'')
      fputs(quote, stdout);
    else
      printf("%s%c", strchr(escaped, *text) ? "\\" : "", *text);
  }
}

/* ---- bash ---- */

static void bash_names(void *context, const struct sl_argument *arguments, int count) {
  for (int i = 0; i < count; i++)
    printf("--%s ", arguments[i].name);
}

static void bash_values(void *context, const struct sl_argument *arguments, int count) {
  char words[256];
  for (int i = 0; i < count; i++) {
    const struct sl_argument *a = &arguments[i];
    enum value value = value_of(a, words, sizeof(words));
    if (value == VALUE_none)
      continue;
    if (a->letter)
      printf("    -%c | --%s) ", a->letter, a->name);
    else
      printf("    --%s) ", a->name);
    if (value == VALUE_words)
      printf("words='%s' ;;\n", words);
    else
      printf("value=%s ;;\n", value == VALUE_directory ? "directory" : value == VALUE_file ? "file" : "other");
  }
}

static void print_bash(void) {
  char words[512];
  puts("# Completion of shardledger in bash. For one shell: source <(shardledger completion bash)\n"
       "_shardledger() {\n"
       "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words= value= options= i\n"
       "  COMPREPLY=()\n"
       "  if [ \"$current\" = = ]; then # bash takes --by=module for three words\n"
       "    current=\n"
       "  elif [ \"$previous\" = = ]; then\n"
       "    previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
       "  fi\n"
       "  case ${COMP_WORDS[1]} in");
  for (int i = 0; i < sl_command_count; i++) {
    const struct sl_command *command = &sl_commands[i];
    printf("  %s)\n", command->name);
    if (runs_others(command))
      puts("    for ((i = 2; i < COMP_CWORD; i++)); do\n"
           "      if [ \"${COMP_WORDS[i]}\" = -- ]; then # what follows is a command of its own\n"
           "        if declare -F _command_offset >/dev/null; then\n"
           "          _command_offset $((i + 1))\n"
           "        elif [ $((i + 1)) -eq \"$COMP_CWORD\" ]; then\n"
           "          mapfile -t COMPREPLY < <(compgen -c -- \"$current\")\n"
           "        fi\n"
           "        return\n"
           "      fi\n"
           "    done");
    printf("    options='");
    sl_visit_arguments(command, bash_names, NULL);
    printf("--help'\n");
    if (*positional_words(command, words, sizeof(words)))
      printf("    words='%s'\n", words);
    puts("    case $previous in");
    sl_visit_arguments(command, bash_values, NULL);
    puts("    esac\n    ;;");
  }
  printf("  esac\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    words='");
  for (int i = 0; i < sl_command_count; i++)
    printf("%s ", sl_commands[i].name);
  puts("--help --version'\n"
       "  fi\n"
       "  if [ -z \"$value\" ] && [[ $current == -* ]] && [ \"$COMP_CWORD\" -gt 1 ]; then\n"
       "    words=$options\n"
       "  fi\n"
       "  case $value in\n"
       "  directory)\n"
       "    compopt -o filenames\n"
       "    mapfile -t COMPREPLY < <(compgen -d -- \"$current\")\n"
       "    ;;\n"
       "  other) compopt +o default ;;\n"
       "  '') [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\") ;;\n"
       "  esac # a file, or a run: bash completes the names of files by itself\n"
       "}\n"
       "complete -o default -F _shardledger shardledger");
}

/* ---- zsh ---- */

static void zsh_options(void *context, const struct sl_argument *arguments, int count) {
  char words[256];
  for (int i = 0; i < count; i++) {
    const struct sl_argument *a = &arguments[i];
    enum value value = value_of(a, words, sizeof(words));
    const char *sign = value == VALUE_none ? "" : "=";
    if (a->kind == SL_ARGUMENT_LIST)
      printf("      '*--%s%s[", a->name, sign);
    else if (a->letter)
      printf("      '(-%c --%s)'{-%c%s,--%s%s}'[", a->letter, a->name, a->letter, *sign ? "+" : "", a->name, sign);
    else
      printf("      '--%s%s[", a->name, sign);
    print_quoted(a->help, "\\[]:", "'\\''");
    putchar(']');
    if (value != VALUE_none) {
      putchar(':');
      print_quoted(a->value, "\\:", "'\\''");
      if (value == VALUE_words)
        printf(":(%s)", words);
      else
        fputs(value == VALUE_directory ? ":_files -/" : value == VALUE_file ? ":_files" : ": ", stdout);
    }
    puts("' \\");
  }
}

static void print_zsh(void) {
  char words[512];
  puts("#compdef shardledger\n"
       "# Completion of shardledger in zsh. For one shell, after compinit: source <(shardledger completion zsh)\n"
       "_shardledger() {\n"
       "  local -a commands=(");
  for (int i = 0; i < sl_command_count; i++) {
    printf("    '%s:", sl_commands[i].name);
    print_quoted(sl_commands[i].line, "\\:", "'\\''");
    puts("'");
  }
  puts("  )\n"
       "  if ((CURRENT == 2)); then\n"
       "    _describe -t commands command commands\n"
       "    return\n"
       "  fi\n"
       "  shift words\n"
       "  ((CURRENT--))\n"
       "  case $words[1] in");
  for (int i = 0; i < sl_command_count; i++) {
    const struct sl_command *command = &sl_commands[i];
    printf("  %s)\n    _arguments -s -S \\\n", command->name);
    sl_visit_arguments(command, zsh_options, NULL);
    puts("      '(-h --help)'{-h,--help}'[print this]' \\");
    if (runs_others(command))
      puts("      '*::command:_normal'");
    else if (*positional_words(command, words, sizeof(words)))
      printf("      '*:word:(%s)'\n", words);
    else
      puts("      '*:run:_files'");
    puts("    ;;");
  }
  puts("  esac\n"
       "}\n"
       "if [[ $funcstack[1] == _shardledger ]]; then # found on fpath\n"
       "  _shardledger \"$@\"\n"
       "else\n"
       "  compdef _shardledger shardledger\n"
       "fi");
}

/* ---- fish ---- */

static void fish_options(void *context, const struct sl_argument *arguments, int count) {
  const struct sl_command *command = context;
  char words[256];
  for (int i = 0; i < count; i++) {
    const struct sl_argument *a = &arguments[i];
    printf("complete -c shardledger -n '__fish_seen_subcommand_from %s'", command->name);
    if (a->letter)
      printf(" -s %c", a->letter);
    printf(" -l %s", a->name);
    switch (value_of(a, words, sizeof(words))) {
    case VALUE_none: break;
    case VALUE_words: printf(" -x -a '%s'", words); break;
    case VALUE_directory: fputs(" -x -a '(__fish_complete_directories)'", stdout); break;
    case VALUE_file: fputs(" -r -F", stdout); break;
    case VALUE_other: fputs(" -x", stdout); break;
    }
    fputs(" -d '", stdout);
    print_quoted(a->help, "\\", "\\'");
    puts("'");
  }
}

static void print_fish(void) {
  char words[512];
  puts("# Completion of shardledger in fish. For one shell: shardledger completion fish | source");
  for (int i = 0; i < sl_command_count; i++) {
    const struct sl_command *command = &sl_commands[i];
    printf("complete -c shardledger -n __fish_use_subcommand -f -a %s -d '", command->name);
    print_quoted(command->line, "\\", "\\'");
    puts("'");
    sl_visit_arguments(command, fish_options, (void *)command);
    printf("complete -c shardledger -n '__fish_seen_subcommand_from %s' -s h -l help -d 'print this'\n", command->name);
    if (*positional_words(command, words, sizeof(words)))
      printf("complete -c shardledger -n '__fish_seen_subcommand_from %s' -f -a '%s'\n", command->name, words);
    if (runs_others(command))
      printf("complete -c shardledger -n '__fish_seen_subcommand_from %s; and contains -- -- (commandline -opc)' -x"
             " -a '(__fish_complete_subcommand --fcs-skip=3)'\n",
             command->name);
  }
}

int sl_cmd_completion(const struct sl_command *command, int argc, char **argv) {
  static const struct {
    const char *shell;
    void (*print)(void);
  } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  const char *name = NULL;
  int r = sl_parse(command, NULL, 0, argc, argv, &name, 1);
  if (r < 0)
    return sl_parse_exit(r);
  for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]) && r == 1; i++)
    if (strcmp(name, shells[i].shell) == 0) {
      shells[i].print();
      return SL_EXIT_OK;
    }
  sl_complain("completion: name your shell: bash, zsh or fish");
  return SL_EXIT_USAGE;
}
