#include "cpsat/solver.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/numbers.h"
#include "base/side_job.h"
#include "cpsat/library.h"
#include "remat/check.h"

namespace remat::cpsat {
namespace {

// SatParameters
constexpr int kRandomSeed = 5, kMaxTime = 36, kLogSearchProgress = 41, kMaxDeterministicTime = 67,
              kPresolve = 86, kLinearizationLevel = 90, kCatchSigint = 135, kSymmetryLevel = 183,
              kObjectiveLbSearch = 228, kLogToStdout = 186, kLogToResponse = 187, kNumWorkers = 206;
// CpSolverResponse
constexpr int kStatus = 1, kSolution = 2, kObjectiveValue = 3, kBestBound = 4, kDeterministicTime = 17,
              kSolutionInfo = 20, kSolveLog = 26;

std::string serialize(const Parameters& parameters, const Limits& limits) {
  WireWriter out;
  // With several workers, the order of solutions depends on the machine's load.
  const int workers = limits.work_left() ? 1 : std::max(1, parameters.threads);
  out.number(kNumWorkers, workers)
      .number(kRandomSeed, static_cast<std::int64_t>(parameters.seed & 0x7fffffff))
      .number(kPresolve, parameters.presolve)
      .number(kLinearizationLevel, parameters.linearization)
      .number(kObjectiveLbSearch, parameters.from_below)
      .number(kSymmetryLevel, 0)
      .number(kCatchSigint, false)
      .number(kLogSearchProgress, true)
      .number(kLogToStdout, false)
      .number(kLogToResponse, true);
  std::optional<double> seconds = limits.seconds_left();
  if (parameters.seconds && !limits.work_left()) {
    seconds = std::min(*parameters.seconds, seconds.value_or(*parameters.seconds));
  }
  if (seconds) out.real(kMaxTime, *seconds);
  std::optional<double> deterministic = parameters.deterministic_seconds;
  if (const auto work = limits.work_left()) {
    const double left = real(*work) / kUnitsPerDeterministicSecond;
    deterministic = std::min(left, deterministic.value_or(left));
  }
  if (deterministic) out.real(kMaxDeterministicTime, *deterministic);
  return out.data();
}

/// Reads "#12  3.45s best:678 next:[...]": a better solution in CP-SAT's search log.
std::vector<Improvement> read_log(std::string_view log) {
  std::vector<Improvement> found;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (line.size() < 2 || line[0] != '#' || line[1] < '0' || line[1] > '9') continue;
    const std::size_t best = line.find("best:");
    const std::size_t number = line.find_first_of("0123456789", line.find(' '));
    if (best == std::string_view::npos || number == std::string_view::npos) continue;
    Improvement one;
    std::from_chars(line.data() + number, line.data() + line.size(), one.seconds);
    double objective = 0;
    std::from_chars(line.data() + best + 5, line.data() + line.size(), objective);
    one.objective = std::llround(objective);
    found.push_back(one);
  }
  return found;
}

Response read(std::string_view message) {
  Response response;
  double objective = 0, bound = 0;
  WireReader reader(message);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case kStatus:
        response.status = static_cast<Status>(field->value);
        break;
      case kSolution: {
        WireReader packed(field->bytes);
        while (const auto value = packed.next_packed()) response.solution.push_back(*value);
        break;
      }
      case kObjectiveValue:
        objective = field->real;
        break;
      case kBestBound:
        bound = field->real;
        break;
      case kDeterministicTime:
        response.deterministic_time = field->real;
        break;
      case kSolutionInfo:
        response.message = field->bytes;
        break;
      case kSolveLog:
        response.improvements = read_log(field->bytes);
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return {};
  if (response.has_solution()) response.objective = std::llround(objective);
  // A bound that is only nearly an integer is rounded down, never up.
  response.bound = static_cast<std::int64_t>(std::floor(bound + 1e-6));
  return response;
}

/// One call of CP-SAT. Owns its arguments, since its thread may outlive the caller.
class Call {
 public:
  Call(const Library& library, std::string model, std::string parameters)
      : library_(library),
        env_(library.new_env()),
        model_(std::move(model)),
        parameters_(std::move(parameters)) {}
  ~Call() { library_.destroy_env(env_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void solve() {
    void* answer = nullptr;
    int size = 0;
    library_.solve(env_, model_.data(), narrow<int>(model_.size()), parameters_.data(),
                   narrow<int>(parameters_.size()), &answer, &size);
    response_ = read({static_cast<const char*>(answer), narrow<std::size_t>(size)});
    std::free(answer);
  }
  void stop() { library_.stop_search(env_); }
  Response take() { return std::move(response_); }

 private:
  const Library& library_;
  void* env_;
  std::string model_, parameters_;
  Response response_;
};

}  // namespace

Response solve(const Model& model, const Parameters& parameters, Limits& limits) {
  const Library* loaded = library();
  REMAT_CHECK(loaded != nullptr);
  if (limits.reached()) return {};
  const auto call = std::make_shared<Call>(*loaded, model.serialized(), serialize(parameters, limits));
  // CP-SAT checks its clock and the stop flag only between the steps of presolve and search.
  if (!run_beside({.work = [call] { call->solve(); }, .stop = [&] { call->stop(); }}, limits)) return {};
  Response response = call->take();
  REMAT_CHECK(!response.has_solution() || std::ssize(response.solution) == model.num_variables(),
              response.solution.size(), model.num_variables());
  REMAT_ASSERT(!response.objective || !response.bound || *response.bound <= *response.objective,
               *response.bound, *response.objective);
  limits.spend(
      static_cast<std::int64_t>(std::ceil(response.deterministic_time * kUnitsPerDeterministicSecond)));
  return response;
}

}  // namespace remat::cpsat
