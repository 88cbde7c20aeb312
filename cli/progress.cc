#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "common.h"
#include "people.h"

namespace remat::cli {
namespace {

/// Columns of the terminal at standard error.
std::size_t columns() {
  constexpr std::size_t kUsual = 80;
  struct winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsual;
}

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

/// "7.2 s left", or the share left of the work limit.
std::string left_of(const Limits& limits) {
  if (const auto seconds = limits.seconds_left()) return "  " + seconds_text(*seconds) + " left";
  const auto work = limits.work_left();
  if (!work) return "";
  const double left = static_cast<double>(*work);
  return "  " + percent(left / std::max(1.0, left + static_cast<double>(limits.work()))) +
         " of the work left";
}

}  // namespace

ProgressLine::ProgressLine(const Graph* graph, Bytes keep_all_peak, std::string which)
    : graph_(graph),
      keep_all_peak_(keep_all_peak),
      which_(std::move(which)),
      is_terminal_(::isatty(STDERR_FILENO) == 1 && !is_dumb_terminal()) {}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  limits_->set_progress({});
  {
    const std::scoped_lock lock(mutex_);
    is_done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ProgressLine::attach(Limits& limits) {
  if (!is_terminal_) return;
  limits_ = &limits;
  limits.set_progress([this](const Progress& progress) {
    const std::scoped_lock lock(mutex_);
    newest_ = progress;
  });
  thread_ = std::thread([this] { draw_until_done(); });
}

void ProgressLine::draw_until_done() {
  constexpr std::chrono::milliseconds kPause{100};
  std::unique_lock lock(mutex_);
  std::size_t shown = 0;
  // Overwrites with spaces, not with a terminal code, so that captured output is plain text.
  const auto show = [&shown](const std::string& text) {
    const std::string rest(shown - std::min(shown, text.size()), ' ');
    std::fprintf(stderr, "\r%s%s", text.c_str(), rest.c_str());
    std::fflush(stderr);
    shown = text.size();
  };
  while (!changed_.wait_for(lock, kPause, [this] { return is_done_; })) show(line());
  if (shown == 0) return;
  show("");
  std::fputs("\r", stderr);
}

std::string ProgressLine::line() const {
  std::string line = which_;
  const auto add = [&line](const std::string& text) { line += (line.empty() ? "" : "  ") + text; };
  if (newest_) {
    add(newest_->planner);
    if (graph_ != nullptr && newest_->duration && newest_->within_budget) {
      add("overhead " + percent(overhead(*graph_, *newest_->duration)));
    }
  }
  if (newest_ && newest_->peak) {
    add((graph_ != nullptr ? "peak " : "arena ") + format_bytes(*newest_->peak));
    if (keep_all_peak_.count() > 0) {
      const double share =
          static_cast<double>(newest_->peak->count()) / static_cast<double>(keep_all_peak_.count());
      line += " (" + percent(share) + ")";
    }
    if (!newest_->within_budget) line += " over the budget";
  }
  add(seconds_text(limits_->seconds()));
  line += left_of(*limits_);
  // A wrapped line could not be overwritten. The line has only one-byte characters.
  return line.substr(0, columns() - 1);
}

}  // namespace remat::cli
