/* docs/SKILL.md, which says to coding assistants what commands there are for. */
#ifndef SHARDLEDGER_SKILL_H
#define SHARDLEDGER_SKILL_H

extern const char sl_skill_text[];

#endif
