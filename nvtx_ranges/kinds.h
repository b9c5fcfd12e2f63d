/* enum sl_kind: the phase kinds of kinds.def. */
#ifndef SHARDLEDGER_KINDS_H
#define SHARDLEDGER_KINDS_H

enum sl_kind {
  SL_KIND_none = 0,
#define KIND(number, name, meaning) SL_KIND_##name = number,
#include "kinds.def"
#undef KIND
  SL_KIND_count,
};

#define SL_NVTX_DOMAIN "shardledger"

#endif
