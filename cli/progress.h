// A progress line on a terminal: elapsed time, and what is left of the limits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "remat/graph.h"
#include "remat/limits.h"

namespace remat::cli {

/// A live line on standard error if that is a terminal. A thread draws it, so that it moves even while
/// nothing is found. The destructor erases it.
class ProgressLine {
 public:
  /// Without a graph, reports on an arena. `which`: "2 of 3", if there are several such tasks.
  ProgressLine(const Graph* graph, Bytes keep_all_peak, std::string which = "");
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// Shows what is reported to the limits, and what is left of them. They must outlive this.
  void attach(Limits& limits);

 private:
  void draw_until_done();
  std::string line() const;

  const Graph* graph_;
  Bytes keep_all_peak_;
  std::string which_;
  bool is_terminal_;
  Limits* limits_ = nullptr;
  std::optional<Progress> newest_;
  bool is_done_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace remat::cli
