/* Another tool that CUDA would load: it takes CUPTI's seat, and says in the environment that it was there. */
#include <cupti.h>
#include <stdlib.h>

int InitializeInjection(void) {
  CUpti_SubscriberHandle subscriber;
  int first = cuptiSubscribe(&subscriber, NULL, NULL) == CUPTI_SUCCESS;
  setenv("OTHER_INJECTION", first ? "first" : "too late", 1);
  return 1;
}
