// One input of a fuzzer, as libFuzzer calls it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/one_input.h"

/// The first byte says what the rest is: 'c' a command line with its files, 'p' a plan, anything else a
/// graph.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (*data) {
    case 'c':
      remat::fuzz::check_command(text);
      break;
    case 'p':
      remat::fuzz::check_plan_text(text);
      break;
    default:
      remat::fuzz::check_graph_text(text);
  }
  return 0;
}
