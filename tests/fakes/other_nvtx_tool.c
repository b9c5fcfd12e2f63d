/*
 * An NVTX tool that is not ours, as small as one can be: what a program does with its domains goes to the file named by
 * OTHER_TOOL_OUT, a line a call. Stands for Nsight Systems, which gets its ranges through the same interface.
 */
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <stdlib.h>

enum { DOMAINS = 64 };

static char names[DOMAINS][64]; /* a domain's handle is the address of its name */
static int domain_count;
static FILE *out;

static const char *domain_name(nvtxDomainHandle_t domain) {
  return domain ? (const char *)domain : "default";
}

static nvtxDomainHandle_t NVTX_API domain_create(const char *name) {
  char *place = names[domain_count++ % DOMAINS];
  snprintf(place, sizeof names[0], "%s", name);
  return (nvtxDomainHandle_t)place;
}

static void NVTX_API name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
  fprintf(out, "category\t%s\t%u\t%s\n", domain_name(domain), category, name);
}

static void note(const char *call, nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  const char *message = event->messageType == NVTX_MESSAGE_TYPE_ASCII        ? event->message.ascii
                        : event->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? (const char *)event->message.registered
                                                                             : "";
  fprintf(out, "%s\t%s\t%u\t%s\n", call, domain_name(domain), event->category, message);
}

static int NVTX_API range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  note("push", domain, event);
  return 0;
}

static int NVTX_API range_pop(nvtxDomainHandle_t domain) {
  fprintf(out, "pop\t%s\n", domain_name(domain));
  return 0;
}

static nvtxRangeId_t NVTX_API range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  static nvtxRangeId_t last;
  note("start", domain, event);
  return ++last;
}

static void NVTX_API range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
  (void)id;
  fprintf(out, "end\t%s\n", domain_name(domain));
}

static void NVTX_API mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  note("mark", domain, event);
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char *string) {
  char *copy = NULL;
  (void)domain;
  return asprintf(&copy, "%s", string) < 0 ? NULL : (nvtxStringHandle_t)copy; /* kept: handles live as long as we */
}

static const struct {
  unsigned id;
  void (*function)(void);
} handlers[] = {
    {NVTX_CBID_CORE2_DomainCreateA, (void (*)(void))domain_create},
    {NVTX_CBID_CORE2_DomainNameCategoryA, (void (*)(void))name_category},
    {NVTX_CBID_CORE2_DomainRangePushEx, (void (*)(void))range_push},
    {NVTX_CBID_CORE2_DomainRangePop, (void (*)(void))range_pop},
    {NVTX_CBID_CORE2_DomainRangeStartEx, (void (*)(void))range_start},
    {NVTX_CBID_CORE2_DomainRangeEnd, (void (*)(void))range_end},
    {NVTX_CBID_CORE2_DomainMarkEx, (void (*)(void))mark},
    {NVTX_CBID_CORE2_DomainRegisterStringA, (void (*)(void))register_string},
};

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const NvtxExportTableCallbacks *callbacks = get_export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  if (!out && !(out = fopen(getenv("OTHER_TOOL_OUT"), "w")))
    return 0;
  setvbuf(out, NULL, _IOLBF, 0);
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
    if (handlers[i].id < size)
      *table[handlers[i].id] = handlers[i].function;
  return 1;
}
