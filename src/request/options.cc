// The table of a request's options, for the command line, Python and documentation.
#include "planning/options.h"

#include "remat/error.h"
#include "remat/request.h"

namespace remat {
namespace {

OrderMode& order(Request& request) { return request.problem.order; }
Objective& objective(Request& request) { return request.problem.objective; }

const OptionTable<Request>& table() {
  static const OptionTable<Request> kTable =
      OptionTable<Request>()
          .choice("order", order, {OrderMode::kFixed, OrderMode::kFree},
                  "fixed: first runs follow the graph's order; free: any valid order")
          .choice("objective", objective, {Objective::kTime, Objective::kPeak},
                  "time: least time within the budget; peak: smallest peak, then least time")
          .choice("budget_on", &Request::budget_on, {Measure::kPeak, Measure::kArena, Measure::kReserved},
                  "what the budget bounds: peak: live bytes; arena: the same with a fixed offset for each "
                  "buffer; reserved: bytes that the allocator takes from the device")
          .integer("alignment", &Request::alignment, 1, kMaxCount - 1, "bytes",
                   "alignment of offsets in the arena")
          .parsed(
              "allocator", &Request::allocator, [](const std::string& text) { return parse_allocator(text); },
              [](const AllocatorConfig& config) { return to_string(config); },
              "simulated allocator of PyTorch: cuda, cuda-expandable or exact, with options as in "
              "cuda:max_split_size_mb:200")
          .choice(
              "executor", &Request::executor,
              {Executor::kRemat, Executor::kPartitioner, Executor::kCheckpoint},
              "what runs the plan: remat: any plan; partitioner: PyTorch Inductor's, which takes a set of "
              "saved results; checkpoint: torch.utils.checkpoint around each numbered module");
  return kTable;
}

}  // namespace

std::string spelled_for_python(std::string_view option, std::string_view value) {
  const bool is_number = value.find_first_not_of("+-.0123456789e") == std::string_view::npos;
  const std::string quote = is_number ? "" : "'";
  return std::string(option) + "=" + quote + std::string(value) + quote;
}

std::span<const OptionInfo> request_options() { return table().list(); }

void set_option(Request& request, std::string_view name, const std::string& value, const Spelling& spelling) {
  table().set(request, name, value, spelling);
}

std::string option_of(const Request& request, std::string_view name) { return table().get(request, name); }

}  // namespace remat
