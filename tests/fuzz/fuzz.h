/* What the fuzz targets share: taking an input apart, and files to put the pieces into. */
#ifndef SHARDLEDGER_TESTS_FUZZ_H
#define SHARDLEDGER_TESTS_FUZZ_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" int LLVMFuzzerInitialize(int *argc, char ***argv);

/* An input, taken from its front. What is used up reads as zero and "". */
class Input {
public:
  Input(const uint8_t *data, size_t size) : at(data), left(size) {}

  template <class Number> Number number() {
    Number value = 0;
    size_t bytes = left < sizeof(value) ? left : sizeof(value);
    memcpy(&value, at, bytes);
    skip(bytes);
    return value;
  }
  std::string bytes(size_t most) {
    std::string out((const char *)at, left < most ? left : most);
    skip(out.size());
    return out;
  }
  std::string rest() {
    return bytes(left);
  }
  bool empty() const {
    return left == 0;
  }

private:
  void skip(size_t bytes) {
    at += bytes;
    left -= bytes;
  }
  const uint8_t *at;
  size_t left;
};

/* A directory of this process, made empty; gone when it ends in order. In memory where there is /dev/shm. */
std::string scratch_directory(const std::string &name);
void write_file(const std::string &path, const std::string &content);

#endif
