// A line that says how long work goes and what is left of it, for people at a terminal.
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

/// A live line on standard error, only where that is a terminal; a thread draws it, so that it moves where
/// nothing is found. It is gone when this is.
class ProgressLine {
 public:
  /// Without a graph it is an arena that is told about.
  /// which: of several such pieces of work, "2 of 3".
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
