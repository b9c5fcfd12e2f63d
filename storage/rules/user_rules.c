/*
 * A rule that can't be read ends the command with its line and what would be right: a rule that is silently ignored
 * would make figures that nobody asked for.
 */
#include "user_rules.h"

#include "categories.h"
#include "storage/grow.h"
#include "storage/hash_table.h"
#include "storage/words.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  MAX_WORDS = 6,           /* one more than a rule can have */
  MAX_OWN_CATEGORIES = 32, /* leaves room for the tags' own */
  MAX_FILE_BYTES = 1 << 20,
  MAX_CATEGORY_CHARS = 40,
};

struct sl_user_rules {
  char *path, *text;
  char *words; /* a copy of the text, cut into the strings of the rules */
  struct sl_user_rule *rules;
  size_t count;
  const char *own[MAX_OWN_CATEGORIES];
  size_t own_count;
};

static const char *const kind_words[] = {
#define KIND(number, name, meaning) #name,
#include "nvtx_ranges/kinds.def"
#undef KIND
};
static const enum sl_kind kind_numbers[] = {
#define KIND(number, name, meaning) SL_KIND_##name,
#include "nvtx_ranges/kinds.def"
#undef KIND
};
static const char *const category_words[] = {
#define CATEGORY(name, fsdp_word, tracker_word, layer, letter, style, colour, meaning) #name,
#include "categories.def"
#undef CATEGORY
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define FORMS                                                                                                           \
  "'range GLOB kind KIND [module=FQN-GLOB]', 'range GLOB category CATEGORY', 'module GLOB category CATEGORY' or 'note " \
  "GLOB category CATEGORY'"

struct line {
  const struct sl_user_rules *rules;
  unsigned number;
  char *words[MAX_WORDS];
  int count;
  struct sl_error *error;
};

/* "; did you mean 'x'?" or "". */
static const char *suggestion(char buffer[80], const char *word, const char *const *known, size_t count) {
  const char *nearest = sl_word_nearest(word, known, count);
  buffer[0] = '\0';
  if (nearest)
    snprintf(buffer, 80, "; did you mean '%s'?", nearest);
  return buffer;
}

/* The words of a list that users may write, joined by commas. */
static const char *join(char buffer[400], const char *const *words, size_t count, const char *without) {
  size_t length = 0;
  buffer[0] = '\0';
  for (size_t i = 0; i < count; i++)
    if (strcmp(words[i], without) != 0 && length < 400)
      length += (size_t)snprintf(buffer + length, 400 - length, "%s%s", length ? ", " : "", words[i]);
  return buffer;
}

static int complain(const struct line *line, const char *what, const char *word, const char *more) {
  return sl_error_set(line->error, -EINVAL, "%s:%u: %s '%.80s'%s", line->rules->path, line->number, what, word, more);
}

/*
 * Cuts a line into words, in place: blanks part them, "…" holds them together, # at the start of one ends the line
 * (inside of one it is a character: Optimizer.step#AdamW).
 */
static int line_split(struct line *line, char *text) {
  while (line->count < MAX_WORDS) {
    text += strspn(text, " \t\r");
    if (!*text || *text == '#')
      return 0;
    char *word = text;
    if (*text == '"') {
      word++;
      text = strchr(word, '"');
      if (!text)
        return sl_error_set(line->error, -EINVAL, "%s:%u: a \" has no other that ends it", line->rules->path,
                            line->number);
      *text++ = '\0';
      if (*text && !strchr(" \t\r", *text))
        return sl_error_set(line->error, -EINVAL, "%s:%u: a blank is missing behind \"%.80s\"", line->rules->path,
                            line->number, word);
    } else {
      text += strcspn(text, " \t\r");
      if (*text)
        *text++ = '\0';
    }
    line->words[line->count++] = word;
  }
  return 0;
}

static int read_kind(const struct line *line, const char *word, enum sl_kind *out) {
  for (size_t i = 0; i < COUNT(kind_words); i++)
    if (strcmp(kind_words[i], word) == 0 && kind_numbers[i] != SL_KIND_record_function) {
      *out = kind_numbers[i];
      return 0;
    }
  char near[80], all[400], more[500];
  snprintf(more, sizeof more, "%s The kinds are: %s",
           *suggestion(near, word, kind_words, COUNT(kind_words)) ? near : ".",
           join(all, kind_words, COUNT(kind_words), "record_function"));
  return complain(line, "there is no kind", word, more);
}

static bool is_own_word(const char *word) {
  size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
  return islower((unsigned char)word[0]) && length == strlen(word) && length <= MAX_CATEGORY_CHARS;
}

/* A new word so like a built-in one is a slip of the finger, and would hide where the memory went. */
static const char *mistaken_for(const char *word) {
  const char *nearest = sl_word_nearest(word, category_words, COUNT(category_words));
  int allowed = strlen(word) >= 8 ? 2 : 1;
  return nearest && sl_word_distance(word, nearest) <= allowed ? nearest : NULL;
}

static int read_category(struct sl_user_rules *rules, const struct line *line, const char *word, int *out,
                         const char **name) {
  char all[400], more[600];
  const char *nearest = mistaken_for(word);
  *name = word;
  *out = sl_category_find(word);
  if (*out == SL_CATEGORY_unattributed)
    return complain(line, "memory can't be declared", word, ": that is what no rule covers");
  if (*out >= 0)
    return 0;
  for (size_t i = 0; i < rules->own_count; i++)
    if (strcmp(rules->own[i], word) == 0) {
      *out = SL_CATEGORY_built_in + (int)i;
      return 0;
    }
  if (nearest) {
    snprintf(more, sizeof more,
             "; did you mean '%s'? The categories are: %s, or a word of your own that can't be taken for one of them",
             nearest, join(all, category_words, COUNT(category_words), "unattributed"));
    return complain(line, "there is no category", word, more);
  }
  if (!is_own_word(word)) {
    snprintf(more, sizeof more, ". The categories are: %s, or a word of your own: up to %d of a-z, 0-9 and _",
             join(all, category_words, COUNT(category_words), "unattributed"), MAX_CATEGORY_CHARS);
    return complain(line, "there is no category", word, more);
  }
  if (rules->own_count == MAX_OWN_CATEGORIES) {
    snprintf(more, sizeof more, ": there may be %d of one's own", MAX_OWN_CATEGORIES);
    return complain(line, "one category too many:", word, more);
  }
  *out = SL_CATEGORY_built_in + (int)rules->own_count;
  rules->own[rules->own_count++] = word;
  return 0;
}

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static int rule_add(struct sl_user_rules *rules, const struct line *line, const struct sl_user_rule *rule) {
  for (size_t i = 0; i < rules->count; i++) {
    const struct sl_user_rule *other = &rules->rules[i];
    if (other->type == rule->type && same_text(other->glob, rule->glob) && same_text(other->module, rule->module))
      return sl_error_set(line->error, -EINVAL,
                          "%s:%u: '%.80s' has a rule of this sort in line %u already, which comes first: take one out",
                          rules->path, line->number, rule->glob, other->line);
  }
  struct sl_user_rule *added = SL_LIST_ADD(rules->rules, rules->count);
  if (!added)
    return sl_no_memory(line->error);
  *added = *rule;
  return 0;
}

static int line_parse(struct sl_user_rules *rules, struct line *line) {
  static const char *const subjects[] = {"range", "module", "note"}, *const verbs[] = {"kind", "category"};
  char near[80];
  char **words = line->words;
  bool of_range = strcmp(words[0], "range") == 0;
  int r = 0;
  bool of_note = strcmp(words[0], "note") == 0;
  if (!of_range && !of_note && strcmp(words[0], "module") != 0)
    return complain(line, "a rule starts with 'range', 'module' or 'note', not", words[0],
                    suggestion(near, words[0], subjects, COUNT(subjects)));
  if (line->count < 4)
    return sl_error_set(line->error, -EINVAL, "%s:%u: the rule is not complete; rules are " FORMS, rules->path,
                        line->number);
  if (!*words[1])
    return sl_error_set(line->error, -EINVAL, "%s:%u: an empty pattern matches nothing", rules->path, line->number);
  struct sl_user_rule rule = {.line = line->number, .glob = words[1]};
  bool of_kind = strcmp(words[2], "kind") == 0;
  if (!of_kind && strcmp(words[2], "category") != 0)
    return complain(line, "behind the pattern comes 'kind' or 'category', not", words[2],
                    suggestion(near, words[2], verbs, COUNT(verbs)));
  if (of_kind && !of_range)
    return sl_error_set(line->error, -EINVAL, "%s:%u: only ranges have a kind; rules are " FORMS, rules->path,
                        line->number);
  if (of_kind) {
    rule.type = SL_USER_RULE_range_kind;
    r = read_kind(line, words[3], &rule.kind);
  } else {
    rule.type = of_range  ? SL_USER_RULE_range_category
                : of_note ? SL_USER_RULE_note_category
                          : SL_USER_RULE_module_category;
    r = read_category(rules, line, words[3], &rule.category, &rule.category_name);
  }
  if (r < 0)
    return r;
  if (line->count > 4 && of_kind && strncmp(words[4], "module=", 7) == 0) {
    rule.module = words[4] + 7;
    if (!*rule.module)
      return sl_error_set(line->error, -EINVAL, "%s:%u: module= needs a module's name or a pattern", rules->path,
                          line->number);
    if (rule.kind == SL_KIND_step)
      return sl_error_set(line->error, -EINVAL, "%s:%u: a step serves no module", rules->path, line->number);
  }
  int expected = rule.module ? 5 : 4;
  if (line->count > expected)
    return complain(line, "there is one word too many:", words[expected],
                    of_kind ? "; behind the kind there may be module=FQN-GLOB" : "");
  return rule_add(rules, line, &rule);
}

int sl_user_rules_parse(const char *text, const char *path, struct sl_user_rules **out, struct sl_error *error) {
  struct sl_user_rules *rules = calloc(1, sizeof *rules);
  int r = 0;
  *out = NULL;
  if (rules) {
    rules->path = strdup(path);
    rules->text = strdup(text);
    rules->words = strdup(text);
  }
  if (!rules || !rules->path || !rules->text || !rules->words) {
    r = sl_no_memory(error);
    goto finish;
  }
  char *rest = rules->words;
  for (unsigned number = 1; rest && r == 0; number++) {
    char *text_line = strsep(&rest, "\n");
    struct line line = {.rules = rules, .number = number, .error = error};
    r = line_split(&line, text_line);
    if (r == 0 && line.count > 0)
      r = line_parse(rules, &line);
  }
finish:
  if (r < 0)
    rules = sl_user_rules_free(rules);
  *out = rules;
  return r;
}

/* Takes over the file. */
static int rules_from(int file, const char *path, struct sl_user_rules **out, struct sl_error *error) {
  char *text = NULL;
  FILE *stream = fdopen(file, "r");
  int r = 0;
  if (!stream) {
    close(file);
    return sl_no_memory(error);
  }
  text = malloc(MAX_FILE_BYTES + 1);
  if (!text) {
    r = sl_no_memory(error);
    goto finish;
  }
  size_t length = fread(text, 1, MAX_FILE_BYTES + 1, stream);
  if (ferror(stream)) {
    r = sl_error_set(error, -EINVAL, "the rules in %s can't be read: %s", path, strerror(errno));
  } else if (length > MAX_FILE_BYTES || memchr(text, '\0', length)) {
    r = sl_error_set(error, -EINVAL, "%s is no file of rules: a text of at most 1 MiB, one rule a line", path);
  } else {
    text[length] = '\0';
    r = sl_user_rules_parse(text, path, out, error);
  }
finish:
  fclose(stream);
  free(text);
  return r;
}

int sl_user_rules_read(const char *path, struct sl_user_rules **out, struct sl_error *error) {
  struct stat status;
  *out = NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return sl_error_set(error, -EINVAL, "the rules in %s can't be read: %s", path, strerror(errno));
  if (fstat(file, &status) == 0 && S_ISDIR(status.st_mode)) {
    close(file);
    return sl_error_set(error, -EINVAL, "%s is a directory, not a file of rules", path);
  }
  return rules_from(file, path, out, error);
}

/*
 * Anybody may have put something into a run that is no file: a link to another one, or a pipe that nobody writes into.
 * Returns a descriptor, -ENOENT, or another negative errno with the sentence.
 */
static int kept_open(const char *path, struct sl_error *error) {
  struct stat status;
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  int r = file < 0 ? -errno : fstat(file, &status) < 0 ? -errno : S_ISREG(status.st_mode) ? file : -ELOOP;
  if (r < 0 && file >= 0)
    close(file);
  if (r >= 0 || r == -ENOENT)
    return r;
  if (r == -ELOOP || r == -ENXIO)
    return sl_error_set(error, -EINVAL, "%s is a link or no file, and is not read; remove it", path);
  return sl_error_set(error, -EINVAL, "the rules in %s can't be read: %s", path, strerror(-r));
}

int sl_user_rules_kept(const char *directory, struct sl_user_rules **out, struct sl_error *error) {
  char *path = NULL;
  *out = NULL;
  if (asprintf(&path, "%s/" SL_USER_RULES_NAME, directory) < 0)
    return sl_no_memory(error);
  int r = kept_open(path, error);
  r = r == -ENOENT ? 0 : r < 0 ? r : rules_from(r, path, out, error);
  free(path);
  return r;
}

struct sl_user_rules *sl_user_rules_free(struct sl_user_rules *rules) {
  if (rules) {
    free(rules->path);
    free(rules->text);
    free(rules->words);
    free(rules->rules);
    free(rules);
  }
  return NULL;
}

const struct sl_user_rule *sl_user_rules_list(const struct sl_user_rules *rules, size_t *count) {
  *count = rules ? rules->count : 0;
  return rules ? rules->rules : NULL;
}

const char *const *sl_user_rules_own_categories(const struct sl_user_rules *rules, size_t *count) {
  *count = rules ? rules->own_count : 0;
  return rules ? rules->own : NULL;
}

const char *sl_user_rules_text(const struct sl_user_rules *rules) {
  return rules->text;
}

const char *sl_user_rules_path(const struct sl_user_rules *rules) {
  return rules->path;
}

const struct sl_user_rule *sl_user_rule_find(const struct sl_user_rules *rules, enum sl_user_rule_type type,
                                             const char *name, const struct sl_user_rule *after) {
  size_t first = after ? (size_t)(after - rules->rules) + 1 : 0;
  for (size_t i = first; rules && i < rules->count; i++)
    if (rules->rules[i].type == type && fnmatch(rules->rules[i].glob, name, 0) == 0)
      return &rules->rules[i];
  return NULL;
}

/* ---- the copy in the run directory ---- */

int sl_user_rules_stage(const struct sl_user_rules *rules, const char *directory, struct sl_part_file *staged,
                        struct sl_error *error) {
  char *path = NULL;
  *staged = SL_PART_FILE_NONE;
  if (asprintf(&path, "%s/" SL_USER_RULES_NAME, directory) < 0)
    return sl_no_memory(error);
  int r = sl_part_file_make(path, staged, error);
  free(path);
  const size_t length = strlen(rules->text);
  errno = 0;
  if (r == 0 &&
      (fchmod(staged->file, S_IRUSR | S_IWUSR) < 0 || write(staged->file, rules->text, length) != (ssize_t)length))
    r = errno ? -errno : -EIO;
  if (r == 0)
    return 0;
  *staged = sl_part_file_close(*staged);
  return sl_error_set(error, r, "a copy of the rules can't be kept in %s: %s", directory, strerror(-r));
}

int sl_user_rules_keep(const struct sl_user_rules *rules, struct sl_part_file *staged, struct sl_error *error) {
  int r = 0;
  if (rules->count > 0)
    r = sl_part_file_keep(staged, error);
  else if (unlinkat(staged->directory, SL_USER_RULES_NAME, 0) < 0 && errno != ENOENT)
    r = sl_error_set(error, -errno, "%s can't be removed: %s", staged->output, strerror(errno));
  *staged = sl_part_file_close(*staged);
  return r;
}

/* ---- remembered matches ---- */

struct cached {
  const char *name;
  struct sl_user_rule_match match;
  UT_hash_handle hh;
};

struct sl_user_rule_cache {
  const struct sl_user_rules *rules;
  struct cached *names;
};

struct sl_user_rule_cache *sl_user_rule_cache_new(const struct sl_user_rules *rules) {
  struct sl_user_rule_cache *cache = calloc(1, sizeof *cache);
  if (cache)
    cache->rules = rules;
  return cache;
}

struct sl_user_rule_cache *sl_user_rule_cache_free(struct sl_user_rule_cache *cache) {
  if (cache)
    SL_HASH_FREE(cache->names);
  free(cache);
  return NULL;
}

struct sl_user_rule_match sl_user_rule_cache_find(struct sl_user_rule_cache *cache, const char *name) {
  struct cached *known;
  HASH_FIND_PTR(cache->names, &name, known);
  if (known)
    return known->match;
  struct sl_user_rule_match match = {
      .kind = sl_user_rule_find(cache->rules, SL_USER_RULE_range_kind, name, NULL),
      .category = sl_user_rule_find(cache->rules, SL_USER_RULE_range_category, name, NULL),
  };
  known = calloc(1, sizeof *known);
  if (known) { /* else it is looked up again the next time */
    known->name = name;
    known->match = match;
    SL_HASH_ADD(cache->names, name, known);
  }
  return match;
}
