#include "effort.h"

#include "errors.h"

namespace remat::python {
namespace {

std::int64_t integer(nb::handle object, const std::string& what) {
  return with_fault<UsageError>([&] { return to_integer(object, what); });
}

PlanOptions read_options(nb::handle seed, nb::handle threads, nb::dict options) {
  PlanOptions result;
  const std::int64_t seed_count = integer(seed, "seed");
  const std::int64_t thread_count = integer(threads, "threads");
  if (seed_count < 0) throw UsageError("seed " + std::to_string(seed_count) + " is negative");
  if (thread_count < 1 || thread_count > 4096) {
    throw UsageError("threads " + std::to_string(thread_count) + " is outside [1, 4096]");
  }
  result.seed = static_cast<std::uint64_t>(seed_count);
  result.threads = static_cast<int>(thread_count);
  for (auto [key, value] : options) {
    result.set[with_fault<UsageError>([&] { return to_text(key, "option name"); })] = option_text(value);
  }
  return result;
}

std::optional<double> read_time_limit(nb::handle time_limit) {
  if (time_limit.is_none()) return std::nullopt;
  if (nb::isinstance<nb::str>(time_limit)) return parse_seconds(nb::cast<std::string>(time_limit));
  double seconds = 0;
  if (!nb::try_cast(time_limit, seconds)) {
    throw UsageError("time_limit is neither seconds nor a text such as '10s'");
  }
  if (!(seconds >= 0))
    throw UsageError("time_limit " + std::to_string(seconds) + " is not 0 or more seconds");
  return seconds;
}

/// Throws UsageError for negative limits, seeds and counts of threads.
Effort read_effort(nb::handle time_limit, nb::handle work_limit, const std::optional<std::string>& gap,
                   nb::handle seed, nb::handle threads, nb::dict options) {
  Effort effort;
  effort.options = read_options(seed, threads, options);
  effort.time_limit = read_time_limit(time_limit);
  if (gap) effort.gap = parse_gap(*gap);
  if (work_limit.is_none()) return effort;
  effort.work_limit = integer(work_limit, "work_limit");
  if (*effort.work_limit < 0)
    throw UsageError("work_limit " + std::to_string(*effort.work_limit) + " is negative");
  return effort;
}

}  // namespace

std::string option_text(nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(nb::handle(Py_True)) ? "on" : "off";
  return nb::cast<std::string>(nb::str(value));
}

PlanStore& plan_store() {
  static PlanStore store;
  return store;
}

void bind_effort(nb::module_& m) {
  nb::class_<Effort> effort_class(m, "Effort", "A planner's limits; see remat.planning.Effort.");
  effort_class.def(
      "__init__",
      [](Effort* self, nb::handle time_limit, nb::handle work_limit, const std::optional<std::string>& gap,
         nb::handle seed, nb::handle threads, nb::dict options) {
        new (self) Effort(read_effort(time_limit, work_limit, gap, seed, threads, options));
      },
      nb::arg("time_limit").none(), nb::arg("work_limit").none(), nb::arg("gap").none(), nb::arg("seed"),
      nb::arg("threads"), nb::arg("options"),
      nb::sig("def __init__(self, time_limit: float | str | None, work_limit: int | None, gap: str | None, "
              "seed: int, threads: int, options: dict[str, typing.Any]) -> None"));
  def_state<Effort>(effort_class, nullptr, &Effort::options, &Effort::time_limit, &Effort::work_limit,
                    &Effort::gap);
}

}  // namespace remat::python
