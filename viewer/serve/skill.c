/* Links docs/SKILL.md into the program. */
#include "serve/skill.h"
#include "embed_text.h"

SL_EMBED(sl_skill_text, SL_VIEWER_DIRECTORY "/../docs/SKILL.md");
