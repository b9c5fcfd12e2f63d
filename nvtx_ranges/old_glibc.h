/*
 * For what is compiled ahead on one machine and loaded on others, whose glibc and libstdc++ may be older
 * (scripts/bridges): names that newer ones gave a newer version, or that they alone have. Included before everything
 * else.
 */
#ifndef SHARDLEDGER_OLD_GLIBC_H
#define SHARDLEDGER_OLD_GLIBC_H

/* glibc 2.34 moved these from libdl and libpthread into libc; a process has all of them. */
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver pthread_rwlock_rdlock, pthread_rwlock_rdlock@GLIBC_2.2.5");
__asm__(".symver pthread_rwlock_tryrdlock, pthread_rwlock_tryrdlock@GLIBC_2.2.5");
__asm__(".symver pthread_rwlock_unlock, pthread_rwlock_unlock@GLIBC_2.2.5");

/* Since glibc 2.32 libstdc++'s shared_ptr asks it whether atomic counts can be spared: here, never. */
extern "C" {
extern __attribute__((visibility("hidden"))) char __libc_single_threaded;
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}

/* Since GCC 11 containers throw it where one is asked for more than there can be. */
namespace std {
[[noreturn]] __attribute__((visibility("default"))) void __throw_bad_alloc();
[[noreturn]] __attribute__((visibility("hidden"))) void __throw_bad_array_new_length();
void __throw_bad_array_new_length() {
  __throw_bad_alloc();
}
} // namespace std

#endif
