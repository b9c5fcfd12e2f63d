/*
 * The environment options, once: the plugin reads them, `shardledger run --help-env` prints them.
 *
 * OPTION(id, name, default, values, meaning): values is what the parser accepts, in words for the user; words
 * separated by | are a closed choice.
 */
#ifndef SHARDLEDGER_CONFIG_H
#define SHARDLEDGER_CONFIG_H

#include <stdint.h>
#include <stdio.h>

/* clang-format off */
#define SL_OPTIONS(OPTION)                                                                                             \
  OPTION(dir, "SHARDLEDGER_DIR", "shardledger-out", "a directory",                                                     \
         "where each process puts the directory of its log; made when missing. %h in it is the host, %r the rank, %j "     \
         "the job's id, as torchrun or Slurm has it")                                        \
  OPTION(kernels, "SHARDLEDGER_KERNELS", "nccl", "nccl|all|none",                                                      \
         "which kernels' device times are kept")                                                                       \
  OPTION(steps, "SHARDLEDGER_STEPS", "auto", "auto|all|A:B, steps A up to but not including B",                        \
         "the training steps whose device times are kept: kernels, copies; auto is 0 to 9 and every 20th. Allocations "\
         "and ranges always are")                                                                                      \
  OPTION(cupti, "SHARDLEDGER_CUPTI", "auto", "auto|off",                                                               \
         "off leaves CUPTI to another tool; driver-level memory and device times are then not recorded")               \
  OPTION(nccl, "SHARDLEDGER_NCCL", "auto", "auto|off",                                                                 \
         "auto asks NCCL's profiler for buffers, datatype and algorithm too; off leaves NCCL_PROFILER_PLUGIN alone")   \
  OPTION(torch, "SHARDLEDGER_TORCH", "auto", "auto|bridge|history|off",                                                \
         "how PyTorch's allocations are seen: the compiled bridge, or its memory history where there is no compiler")  \
  OPTION(stacks, "SHARDLEDGER_STACKS", "auto", "auto|all|none|A:B, steps A up to but not including B",                 \
         "the training steps in which allocations get their Python call stack and operator; auto is 0, 1 and those "   \
         "that follow an unusual one. Outside of steps they have them, unless none")                                   \
  OPTION(python, "SHARDLEDGER_PYTHON", "auto", "auto|off",                                                             \
         "auto imports the companion package into a running Python interpreter; off leaves that to the program")       \
  OPTION(modules, "SHARDLEDGER_MODULES", "fsdp", "fsdp|all|N, a depth from 0",                                         \
         "which modules get phases of their own: FSDP units, all, or those down to a depth")                           \
  OPTION(max_bytes, "SHARDLEDGER_MAX_BYTES", "0", "bytes, with KiB, MiB, GiB or TiB; 0 for no limit",                  \
         "how large the log of one process may grow")                                                                  \
  OPTION(at_max, "SHARDLEDGER_AT_MAX", "stop", "stop|keep-last",                                                       \
         "what happens when the log has grown to SHARDLEDGER_MAX_BYTES: recording stops, or older steps are dropped, " \
         "but the first ones")                                                                                         \
  OPTION(files, "SHARDLEDGER_FILES", "auto", "auto|mapped|written",                                                    \
         "how the log gets on disk: mapped keeps every record at a kill; written all but the last second. auto maps "  \
         "where that can do no harm: ext2 to ext4, tmpfs, XFS without reflink")                                        \
  OPTION(log, "SHARDLEDGER_LOG", "info", "quiet|info|debug",                                                           \
         "what is said on stderr: nothing, failures, or everything")
/* clang-format on */

enum sl_option {
#define OPTION(id, name, fallback, values, meaning) SL_OPTION_##id,
  SL_OPTIONS(OPTION)
#undef OPTION
      SL_OPTION_count,
};

/*
 * Value of an option: the environment's when it is valid, else the default, after one line on stderr. The environment
 * is read once, at the first call. Never NULL, owned by the library. Set-user-ID programs get the defaults.
 */
const char *sl_option_text(enum sl_option option);

/* The same by its name in the environment; NULL when there is none of that name. */
const char *sl_option_named(const char *name);

/* SHARDLEDGER_MAX_BYTES as a number; 0 for no limit. */
uint64_t sl_option_max_bytes(void);

/* Name, default, accepted values and meaning of every option, for people. */
void sl_options_print(FILE *stream);

/*
 * One line on stderr, "shardledger: …". For what the user should know and can act on: sl_say (not with
 * SHARDLEDGER_LOG=quiet). For everything else: sl_debug (only with SHARDLEDGER_LOG=debug).
 */
void sl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sl_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
