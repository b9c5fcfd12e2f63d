/*
 * Reading a page behind the file's end raises SIGBUS. Its handler looks whether the address is in a mapped file, puts a
 * page of zeros there, and the instruction that was interrupted reads these. Any other SIGBUS does what it did before.
 */
#include "mapped_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_MAX = 64 };

/* Where the files lie: what the handler may look at. begins 0: free. */
static struct { atomic_uintptr_t begins, ends; } places[OPEN_MAX];

static struct sigaction before;
static uintptr_t page_bytes;

static void page_is_gone(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  const uintptr_t at = (uintptr_t)info->si_addr;
  const int kept = errno;
  for (int i = 0; i < OPEN_MAX; i++)
    if (at >= atomic_load(&places[i].begins) && at < atomic_load(&places[i].ends) &&
        mmap((void *)(at & ~(page_bytes - 1)), page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
            MAP_FAILED) {
      errno = kept;
      return;
    }
  sigaction(SIGBUS, &before, NULL); /* nobody's: it comes again, to whoever had it */
}

static void handler_set(void) {
  struct sigaction action = {.sa_sigaction = page_is_gone, .sa_flags = SA_SIGINFO};
  page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

static bool place_take(const struct sl_mapped_file *file) {
  for (int i = 0; i < OPEN_MAX; i++) {
    uintptr_t nobody = 0;
    if (atomic_compare_exchange_strong(&places[i].begins, &nobody, (uintptr_t)file->data)) {
      atomic_store(&places[i].ends, (uintptr_t)file->data + file->length);
      return true;
    }
  }
  return false;
}

static void place_give(const struct sl_mapped_file *file) {
  for (int i = 0; i < OPEN_MAX; i++)
    if (atomic_load(&places[i].begins) == (uintptr_t)file->data) {
      atomic_store(&places[i].ends, 0);
      atomic_store(&places[i].begins, 0);
      return;
    }
}

static uint64_t change_of(const struct stat *status) {
  return (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
}

int sl_mapped_file_open(int fd, struct sl_mapped_file *out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  struct stat status;
  void *data = MAP_FAILED;
  *out = (struct sl_mapped_file){.fd = -1};
  int r = fstat(fd, &status) < 0 ? -errno : S_ISREG(status.st_mode) ? 0 : -EBADMSG;
  if (r == 0 && status.st_size > 0) {
    data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    r = data == MAP_FAILED ? -errno : 0;
  }
  if (r < 0) {
    close(fd);
    return r;
  }
  pthread_once(&once, handler_set);
  *out = (struct sl_mapped_file){.data = data == MAP_FAILED ? NULL : data,
                                 .length = (size_t)status.st_size,
                                 .changed_ns = change_of(&status),
                                 .fd = fd};
  if (out->data && !place_take(out)) {
    sl_mapped_file_close(out);
    return -EMFILE;
  }
  return 0;
}

void sl_mapped_file_close(struct sl_mapped_file *file) {
  if (file->data) {
    place_give(file); /* first: the address may be another file's at once */
    munmap((void *)(uintptr_t)file->data, file->length);
  }
  if (file->fd >= 0)
    close(file->fd);
  *file = (struct sl_mapped_file){.fd = -1};
}

bool sl_mapped_file_is_changed(const struct sl_mapped_file *file) {
  struct stat status;
  return file->fd >= 0 && (fstat(file->fd, &status) < 0 || (size_t)status.st_size != file->length ||
                           change_of(&status) != file->changed_ns);
}
