// A small chart of memory over steps, for people at a terminal.
#pragma once

#include <string>
#include <vector>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat::cli {

/// Lines of at most `columns` characters, each ended by a newline; empty below 60 columns or without steps.
/// Each character shows the peak over some steps; the scale ends at `top`. With `colours`, the plan's peak is
/// highlighted.
std::string memory_chart(const Graph& graph, const Plan& plan, Bytes top, int columns, bool colours);

/// The lines of `left`, padded to `width` characters, each followed by one of `right`.
std::string beside(const std::string& left, std::size_t width, const std::vector<std::string>& right);

/// True if standard output is a terminal with colours and NO_COLOR is not set (https://no-color.org).
bool wants_colours();

}  // namespace remat::cli
