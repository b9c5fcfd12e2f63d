/* The plugin on threads that are interrupted anywhere: cancelled, by signal handlers, and in children of every kind. */
#include "fakes/sanitizers.h"
#include "plugin/marks.h"

extern "C" {
#include "plugin/log/event_log.h"
#include "plugin/shardledger.h"
}

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr unsigned TIME_OUT = 300; /* seconds; whatever hangs is killed, and so fails */

/* The log takes names and events of the calling thread; one that was lost is tried again. */
void expect_alive(uint64_t value) {
  const uint32_t name = sl_log_name(("alive " + std::to_string(value)).c_str());
  EXPECT_NE(name, 0u);
  for (int i = 0; i < 60'000 && !mark(value, name); i++)
    usleep(1'000);
}

void expect_alive_in(const Recording &recording, uint64_t value) {
  bool found = false;
  for (const auto &event : ALL(recording, range_mark))
    found |= event.value == value && recording.name(event.name) == "alive " + std::to_string(value);
  EXPECT_TRUE(found) << value;
}

/* Signals for the calling thread, from another, while the body runs. */
void under_signals(int number, useconds_t every, const std::function<void()> &body) {
  std::atomic<bool> over{false};
  const pthread_t self = pthread_self();
  std::thread sender([&] {
    while (!over) {
      pthread_kill(self, number);
      usleep(every);
    }
  });
  body();
  over = true;
  sender.join();
}

void handle(int number, void (*handler)(int), int flags = 0) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;
  sigaction(number, &action, nullptr);
}

/* Ranges with new names, which take the lock, and again without. */
void make_names(int count, const char *prefix) {
  for (int i = 0; i < count; i++) {
    sl_range_push(1, (prefix + std::to_string(i)).c_str(), 0);
    sl_range_pop();
    mark(1);
    if (i % 500 == 0)
      usleep(500);
  }
}

TEST(Interruption, ACancellationThatIsPendingWaitsUntilTheLogIsDone) {
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    pthread_t thread;
    void *result = nullptr;
    mark(0);
    pthread_create(
        &thread, nullptr,
        [](void *) -> void * {
          std::string name(1'400, 'x'); /* definitions take a new segment every few hundred of these */
          pthread_cancel(pthread_self());
          for (int i = 0; i < 5'000; i++) {
            name.replace(0, 6, std::to_string(100'000 + i));
            sl_range_push(1, name.c_str(), 0);
            sl_range_pop();
          }
          return const_cast<char *>("whole");
        },
        nullptr);
    pthread_join(thread, &result);
    EXPECT_NE(result, PTHREAD_CANCELED) << "it was cancelled inside the library";
    expect_alive(7);
  });
  expect_alive_in(recording, 7);
}

TEST(Interruption, AnAsynchronousCancellationMayHitAnyInstruction) {
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer can't be cancelled";
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    mark(0);
    for (int round = 0; round < 100; round++) {
      pthread_t thread;
      pthread_create(
          &thread, nullptr,
          [](void *round) -> void * {
            char name[64];
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
            for (uint64_t i = 0;; i++) {
              strcpy(name, "cancelled ");
              for (int digit = 0; digit < 10; digit++)
                name[10 + digit] = (char)('a' + (i >> 4 * digit & 15));
              name[20] = (char)('0' + (uintptr_t)round % 50);
              name[21] = '\0';
              if (i % 3 == 0)
                sl_range_push(1, name, i);
              else
                mark(i);
            }
            return nullptr;
          },
          reinterpret_cast<void *>((uintptr_t)round));
      usleep((useconds_t)(100 + round * 7));
      pthread_cancel(thread);
      pthread_join(thread, nullptr);
    }
    expect_alive(8);
    std::thread([] { expect_alive(9); }).join();
  });
  expect_alive_in(recording, 8);
  expect_alive_in(recording, 9);
}

TEST(Interruption, ASignalHandlerMayRecordAndNameWhereverItComes) {
  static std::atomic<uint64_t> signals;
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    mark(0);
    handle(SIGUSR1, [](int) {
      char name[32] = "in a handler ";
      uint64_t number = signals++;
      for (char *at = name + 13; number; number >>= 4)
        *at++ = (char)('a' + (number & 15));
      sl_range_push(1, name, 0);
      sl_range_pop();
    });
    under_signals(SIGUSR1, 50, [] {
      make_names(30'000, "name ");
      while (signals <= 200) /* where their sender has lacked a processor */
        make_names(10, "name ");
    });
    EXPECT_GT(signals, 100u);
    expect_alive(1 << 20);
  });
  expect_alive_in(recording, 1 << 20);
  size_t in_handlers = 0;
  for (const auto &name : recording.names)
    in_handlers += name.second.compare(0, 12, "in a handler") == 0;
  EXPECT_GT(in_handlers, 90u) << "names are defined there too";
}

TEST(Interruption, ASignalHandlerMayForkAndItsChildMayGoOn) {
  static volatile sig_atomic_t is_child, forks;
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer's lock may be held";
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    mark(0);
    handle(SIGUSR1, [](int) {
      const pid_t child = fork();
      forks = forks + 1;
      if (child == 0) {
        alarm(TIME_OUT / 2);
        if (forks % 2)
          _exit(0);
        is_child = 1; /* and what was interrupted goes on */
        return;
      }
      int status = -1;
      waitpid(child, &status, 0);
      if (status != 0)
        _exit(77);
    });
    under_signals(SIGUSR1, 3'000, [] {
      for (int i = 0; forks < 40 && (i < 2'000'000 || forks <= 5); i++) {
        mark(5);
        if (i % 4 == 0)
          sl_log_name(std::to_string(i).c_str());
        if (is_child) {
          sl_log_name("of the child");
          _exit(mark(6) ? 1 : 0);
        }
      }
      handle(SIGUSR1, SIG_IGN);
      if (is_child)
        _exit(0);
    });
    EXPECT_GT(forks, 5);
    expect_alive(1 << 20);
  });
  expect_alive_in(recording, 1 << 20);
  for (const auto &event : ALL(recording, range_mark))
    EXPECT_NE(event.value, 6u);
}

TEST(Interruption, AHandlerThatJumpsAwayLeavesNoLockAndLosesAtMostItsThread) {
  static sigjmp_buf jump;
  static std::atomic<uint64_t> jumps;
  static std::atomic<bool> over;
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer's lock may be held";
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    mark(0);
    handle(
        SIGUSR1,
        [](int) {
          jumps++;
          if (!over)
            siglongjmp(jump, 1);
        },
        SA_NODEFER);
    under_signals(SIGUSR1, 300, [] {
      static volatile unsigned i;
      sigsetjmp(jump, 1);
      char name[32] = "jump ";
      while ((i < 200'000 || jumps <= 10) && jumps < 2'000) {
        unsigned number = ++i;
        for (char *at = name + 5; number; number >>= 4)
          *at++ = (char)('a' + (number & 15));
        sl_range_push(1, name, 0);
        sl_range_pop();
      }
      over = true;
    });
    EXPECT_GT(jumps, 10u);
    EXPECT_NE(sl_log_name("a name after all"), 0u) << "the lock is free";
    std::thread([] { expect_alive(9); }).join();
  });
  expect_alive_in(recording, 9);
}

/* Children that no handler of fork has prepared: while other threads of the parent hold whatever they hold. */
TEST(Interruption, AChildThatCameWithoutForksHandlersIsInert) {
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer does not know such a child";
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    mark(1);
    static std::atomic<bool> over;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
      threads.emplace_back([t] {
        for (int i = 0; !over; i++) {
          sl_log_name((std::to_string(t) + " of many " + std::to_string(i % 200'000)).c_str());
          if (i % 64 == 0)
            usleep(50);
        }
      });
    for (int round = 0; round < 30; round++) {
      const pid_t child = round % 2 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
      if (child == 0) {
        alarm(TIME_OUT / 2);
        const bool recorded = mark(2);
        sl_range_push(1, "a name of the child", 0);
        sl_range_pop();
        if (round % 3 == 0)
          _exit(recorded);
        sl_log_end(500);
        _exit(sl_log_active() || recorded);
      }
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0) << round;
    }
    over = true;
    for (auto &thread : threads)
      thread.join();
    expect_alive(3);
  });
  expect_alive_in(recording, 3);
  EXPECT_EQ(recording.events.empty(), false);
  for (const auto &event : ALL(recording, range_mark))
    EXPECT_NE(event.value, 2u);
  EXPECT_EQ(ALL(recording, process_end).size(), 1u);
}

TEST(Interruption, AChildOfACloneMayExit) {
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    mark(1);
    fflush(nullptr);
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
      exit(0); /* the exit handlers of the parent run in it */
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    for (uint64_t i = 0; i < 5'000; i++) /* into the files that the child has not cut */
      EXPECT_TRUE(mark(4));
  });
  EXPECT_EQ(ALL(recording, range_mark).size(), 5'001u);
}

TEST(Interruption, ASmallSignalStackIsEnough) {
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer's frames are larger";
  const Recording recording = record({}, [] {
    alarm(TIME_OUT);
    const size_t page = 4096;
    size_t least = getauxval(AT_MINSIGSTKSZ); /* what the kernel's own frame takes */
    least = least ? least : 2048;
    const size_t size = (least + 3'000 + page - 1) / page * page;
    char *memory =
        static_cast<char *>(mmap(nullptr, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory, page, PROT_NONE); /* what overflows is killed */
    const stack_t stack = {memory + page + (size - least - 3'000), 0, least + 3'000};
    EXPECT_EQ(sigaltstack(&stack, nullptr), 0);
    static std::string name;
    static uint64_t number;
    name = std::string(990, 'n');
    mark(0);
    handle(
        SIGUSR1,
        [](int) {
          for (int i = 0; i < 100; i++) { /* the definitions go through several segments */
            for (int digit = 0; digit < 6; digit++)
              name[(size_t)digit] = (char)('a' + (number >> 4 * digit & 15));
            number++;
            sl_range_push(1, name.c_str(), 0);
            sl_range_pop();
          }
        },
        SA_ONSTACK);
    for (int i = 0; i < 20; i++)
      raise(SIGUSR1);
    EXPECT_EQ(number, 2'000u);
  });
  EXPECT_GT(ALL(recording, range_push).size(), 1'000u);
}

} // namespace
