// The highest value since then, for many beginnings at once: the same as asking each of them.
extern "C" {
#include "storage/attribution/maxima.h"
}

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace {

struct Watch {
  int64_t number;
  uint64_t value, sample;
};

TEST(Maxima, EachWatchKnowsTheFirstHighestValueSinceItsOpening) {
  std::mt19937 choose(1);
  for (int round = 0; round < 200; round++) {
    sl_maxima maxima{};
    maxima.sample_bytes = sizeof(uint64_t);
    std::vector<Watch> open;
    for (uint64_t now = 1; now < 300; now++) {
      const uint64_t value = choose() % (round % 2 ? 10 : 1000);
      if (choose() % 3 == 0) {
        open.push_back({sl_maxima_open(&maxima, value, &now), value, now});
      } else if (choose() % 3 == 0 && !open.empty()) {
        const size_t at = choose() % open.size();
        sl_maxima_close(&maxima, open[at].number);
        open.erase(open.begin() + (long)at);
      } else {
        sl_maxima_raise(&maxima, value, &now);
        for (Watch &watch : open)
          if (value > watch.value)
            watch.value = value, watch.sample = now;
      }
      for (const Watch &watch : open) {
        const sl_maximum found = sl_maxima_of(&maxima, watch.number);
        ASSERT_EQ(found.value, watch.value);
        ASSERT_EQ(*(const uint64_t *)found.sample, watch.sample);
      }
    }
    sl_maxima_clear(&maxima);
  }
}

} // namespace
