/* Reads what `whatif` was asked, from its options. */
#include "commands/whatif_question.h"

#include "open_ledger.h"
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const optimizer_words[] = {"",
                                              "AdamW(foreach=True)",
                                              "AdamW(fused=True)",
                                              "AdamW(foreach=False)",
                                              "SGD(momentum=…)",
                                              "the optimizer on copies in the host's memory"};

void sl_whatif_say(struct sl_output *out, const struct sl_whatif_question *question) {
  char bytes[SL_UNIT_CHARS];
  if (question->alloc_conf)
    sl_output_line(out, "With PYTORCH_CUDA_ALLOC_CONF=%s", question->alloc_conf);
  if (question->optimizer)
    sl_output_line(out, "With %s%s%s", optimizer_words[question->optimizer], question->steps ? " in steps " : "",
                   question->steps ? question->steps : "");
  if (question->changes.reshard_ranks)
    sl_output_line(out, "With reshard_after_forward=%" PRIu64, question->changes.reshard_ranks);
  if (question->changes.reshard_on)
    sl_output_line(out, "With reshard_after_forward=True");
  if (question->changes.reshard_off)
    sl_output_line(out, "With reshard_after_forward=False%s%s", question->steps ? " in steps " : "",
                   question->steps ? question->steps : "");
  if (question->world_size >= 0)
    sl_output_line(out, "With %" PRId64 " ranks; what NCCL takes is not PyTorch's, and not in these figures",
                   question->world_size);
  if (question->mixed_precision)
    sl_output_line(out, "With MixedPrecisionPolicy(param_dtype=torch.%s, reduce_dtype=torch.%s)",
                   question->changes.param_dtype, question->changes.reduce_dtype);
  if (question->accumulate >= 0)
    sl_output_line(out, "With %" PRId64 " forwards and backwards a step%s", question->accumulate,
                   question->no_sync ? ", gradients reduced in the last one" : "");
  if (question->loss_chunks >= 0)
    sl_output_line(out, "With the last layer and the loss in %" PRId64 " pieces, each made again in backward",
                   question->loss_chunks);
  if (question->optimizer_in_backward)
    sl_output_line(out, "With an optimizer for each parameter that steps in backward, each gradient freed at once");
  if (question->offload_optimizer)
    sl_output_line(out, "With the optimizer's states in the host's memory but for its steps");
  if (question->batch)
    sl_output_line(out, "With %s times the batch", question->batch);
  if (question->sequence)
    sl_output_line(out, "With sequences %s times as long", question->sequence);
  if (question->recompute && strcmp(question->recompute, "none") == 0)
    sl_output_line(out, "With activations kept that were recomputed");
  else if (question->recompute)
    sl_output_line(out, "With activations recomputed in backward: %s", question->recompute);
  if (question->no_workspaces)
    sl_output_line(out, "Without cuBLAS's workspaces (CUBLAS_WORKSPACE_CONFIG=:0:0, CUBLASLT_WORKSPACE_SIZE=0)");
  if (question->device_bytes)
    sl_output_line(out, "On a device of %s", sl_format_bytes(bytes, question->device_bytes, out->exact_bytes));
  if (question->limit_bytes)
    sl_output_line(out, "In a process that may have %s",
                   sl_format_bytes(bytes, question->limit_bytes, out->exact_bytes));
  if (!question->alloc_conf && !question->device_bytes && !question->limit_bytes && !sl_changes_any(&question->changes))
    sl_output_line(out, "Nothing is changed: the run as it was, played again");
}

static bool steps_take(struct sl_whatif_question *question) {
  char *end = NULL;
  errno = 0;
  int64_t last = question->changes.first_step = strtoll(question->steps, &end, 10);
  if (*end == '-' && end > question->steps)
    last = strtoll(end + 1, &end, 10);
  question->changes.end_step = last + 1;
  return !errno && end > question->steps && !*end && question->steps[strlen(question->steps) - 1] != '-' &&
         question->changes.first_step >= 0 && last >= question->changes.first_step;
}

/* "1.5" or "2/3"; 0: it is neither. *end is what follows. */
static double factor_take(const char *text, const char **end) {
  char *after = NULL;
  double factor = strtod(text, &after);
  if (after > text && *after == '/') {
    const char *below = after + 1;
    const double by = strtod(below, &after);
    factor = after > below && by > 0 ? factor / by : 0;
  }
  *end = after;
  return after > text && factor > 0 && factor < 1e6 ? factor : 0;
}

static bool reshard_take(struct sl_whatif_question *question) {
  const char *text = question->reshard ? question->reshard : "as-recorded";
  char *end = NULL;
  question->changes.reshard_off = strcmp(text, "off") == 0;
  question->changes.reshard_on = strcmp(text, "on") == 0;
  if (question->changes.reshard_off || question->changes.reshard_on || strcmp(text, "as-recorded") == 0)
    return true;
  const long long ranks = strtoll(text, &end, 10);
  question->changes.reshard_ranks = ranks > 1 && ranks <= INT32_MAX && !*end ? (uint64_t)ranks : 0;
  if (!question->changes.reshard_ranks)
    sl_complain("--reshard: '%s' is not as-recorded, off, on, or a number of ranks from 2 on", text);
  return question->changes.reshard_ranks;
}

/* "bf16", or with the type of gradients, "bf16,fp32". */
static bool mixed_precision_take(struct sl_whatif_question *question) {
  static const struct {
    const char *word, *dtype;
  } types[] = {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}};
  const char *text = question->mixed_precision, *comma = text ? strchr(text, ',') : NULL;
  if (!text)
    return true;
  question->changes.reduce_dtype = comma ? NULL : "float32";
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    const size_t length = strlen(types[i].word);
    if (strncmp(text, types[i].word, length) == 0 && text + length == (comma ? comma : text + strlen(text)))
      question->changes.param_dtype = types[i].dtype;
    if (comma && strcmp(comma + 1, types[i].word) == 0)
      question->changes.reduce_dtype = types[i].dtype;
  }
  if (question->changes.param_dtype && question->changes.reduce_dtype)
    return true;
  sl_complain("--mixed-precision: '%s' is not bf16, fp16 or fp32, nor two of them such as bf16,fp32", text);
  return false;
}

static bool scale_take(struct sl_whatif_question *question) {
  const char *text = question->batch ? question->batch : question->sequence, *end = "";
  if (!text && !question->at.count)
    return true;
  if (!text || (question->batch && question->sequence)) {
    sl_complain("--at tells how sizes grow with --batch or with --sequence, of which one is to be given");
    return false;
  }
  question->changes.scale = factor_take(text, &end);
  if (!question->changes.scale || *end) {
    sl_complain("--%s: '%s' is no factor, such as 2, 1.5 or 2/3", question->batch ? "batch" : "sequence", text);
    return false;
  }
  if (question->at.count < (question->sequence ? 2 : 1) || question->at.count > SL_SCALE_RUNS) {
    sl_complain("--%s: how sizes grow is told by %s of the same job, as --at 2=DIR%s",
                question->batch ? "batch" : "sequence", question->batch ? "one or two other runs" : "two other runs",
                question->batch ? "" : " --at 3=DIR, since some grow with the square");
    return false;
  }
  return true;
}

int sl_whatif_open(struct sl_whatif_question *question, struct sl_error *error) {
  for (int i = 0; i < question->at.count; i++) {
    const char *end = "";
    const double factor = factor_take(question->at.items[i], &end);
    if (!factor || factor == 1 || *end != '=')
      return sl_error_set(error, -EINVAL, "--at: '%s' is not as 2=DIR, where the run in DIR has twice as much",
                          question->at.items[i]);
    struct sl_changes_run *run = &question->changes.runs[i];
    run->factor = factor;
    int r = sl_open_ledger(end + 1, &run->db, error);
    if (r < 0)
      return sl_say_other(r, error);
    question->changes.run_count++;
  }
  return 0;
}

void sl_whatif_close(struct sl_whatif_question *question) {
  for (size_t i = 0; i < question->changes.run_count; i++)
    question->changes.runs[i].db = sl_db_close(question->changes.runs[i].db);
}

/* What can't be together with an optimizer that steps in backward; NULL: nothing. */
static const char *in_backward_conflict(const struct sl_whatif_question *question) {
  if (!question->optimizer_in_backward)
    return NULL;
  if (question->accumulate >= 0)
    return "--accumulate: a gradient that is freed at once can't be added to";
  if (question->offload_optimizer)
    return "--offload-optimizer: it has no step of its own, for which its states would be on the device; "
           "'--optimizer host' keeps them in the host's memory";
  if (question->steps)
    return "--steps: the optimizer steps in backward in all steps, or in none";
  return NULL;
}

bool sl_whatif_take(struct sl_whatif_question *question) {
  char unknown[200];
  if (question->alloc_conf) {
    sl_alloc_conf_unknown(question->alloc_conf, unknown, sizeof unknown);
    if (*unknown) {
      sl_complain("--alloc-conf: PyTorch's allocator has no setting '%s' that changes what it takes; it is written as "
                  "PYTORCH_CUDA_ALLOC_CONF is, for example expandable_segments:True",
                  unknown);
      return false;
    }
    if (strstr(question->alloc_conf, "cudaMallocAsync")) {
      sl_complain("--alloc-conf: cudaMallocAsync leaves it to the driver what is taken, which nothing recorded tells");
      return false;
    }
  }
  if (question->steps && !steps_take(question)) {
    sl_complain("--steps: '%s' is no step and no range of steps, such as 3 or 3-5", question->steps);
    return false;
  }
  if (question->world_size == 0) {
    sl_complain("--world-size: there is at least one rank, as in --world-size 64");
    return false;
  }
  const char *conflict = in_backward_conflict(question);
  if (conflict) {
    sl_complain("--optimizer-in-backward: not with %s", conflict);
    return false;
  }
  question->changes.optimizer = (enum sl_optimizer)question->optimizer;
  question->changes.no_workspaces = question->no_workspaces;
  if (!reshard_take(question) || !mixed_precision_take(question) || !scale_take(question))
    return false;
  if (question->accumulate == 0 || (question->no_sync && question->accumulate < 0)) {
    sl_complain("--accumulate: at least one forward and backward a step, as in --accumulate 4; --no-sync goes with it");
    return false;
  }
  if (question->loss_chunks >= 0 && (question->loss_chunks < 2 || question->loss_chunks > 1 << 16)) {
    sl_complain("--loss-chunks: from 2 to 65536 pieces, as in --loss-chunks 8");
    return false;
  }
  question->changes.loss_chunks = question->loss_chunks < 0 ? 0 : (uint64_t)question->loss_chunks;
  question->changes.accumulate = question->accumulate < 0 ? 0 : (uint64_t)question->accumulate;
  question->changes.no_sync = question->no_sync;
  question->changes.optimizer_in_backward = question->optimizer_in_backward;
  question->changes.offload_optimizer = question->offload_optimizer;
  question->changes.recompute = question->recompute;
  question->changes.world_size = question->world_size < 0 ? 0 : (uint64_t)question->world_size;
  question->change = (struct sl_whatif_change){.alloc_conf = question->alloc_conf,
                                               .device_bytes = (uint64_t)question->device_bytes,
                                               .limit_bytes = (uint64_t)question->limit_bytes,
                                               .recorded_limit_bytes = (uint64_t)question->recorded_limit_bytes};
  return true;
}
