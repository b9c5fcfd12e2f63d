/* A file of rules: read or refused in words; what was read matches names. */
#include "fuzz.h"

extern "C" {
#include "storage/rules/user_rules.h"
}

#include <cstdlib>

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string text((const char *)data, strnlen((const char *)data, size));
  sl_user_rules *rules = nullptr;
  sl_error error = {};
  if (sl_user_rules_parse(text.c_str(), "my.rules", &rules, &error) < 0) {
    if (rules || strncmp(error.text, "my.rules:", 9) != 0)
      abort();
    return 0;
  }
  size_t count = 0;
  const sl_user_rule *list = sl_user_rules_list(rules, &count);
  for (size_t i = 0; i < count; i++)
    for (const char *name : {"layers.0.attention", "FSDP::all_gather (blocks.0)", "", "\xff\xfe[", list[i].glob})
      sl_user_rule_find(rules, list[i].type, name, nullptr);
  sl_user_rules_free(rules);
  return 0;
}
