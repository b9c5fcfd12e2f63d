/* Without the workspaces that cuBLAS has in PyTorch's pool (CUBLAS_WORKSPACE_CONFIG=:0:0, CUBLASLT_WORKSPACE_SIZE=0).
 */
#ifndef SHARDLEDGER_CHANGE_WORKSPACES_H
#define SHARDLEDGER_CHANGE_WORKSPACES_H

#include "storage/predict/tape/tape.h"

/* Takes them out of the tape. 0, or -ENOTSUP where there are none, with the rest of a sentence in error. */
int sl_change_no_workspaces(struct sl_tape *tape, struct sl_error *error);

#endif
