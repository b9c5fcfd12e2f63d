#include "serve/skill.h"
#include "storage/tables/sql_embed.h"

SL_SQL_TEXT(sl_skill_text, SL_SQL_DIRECTORY "/../docs/SKILL.md");
