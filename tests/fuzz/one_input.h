// Properties that must hold for any input bytes. A violation is thrown as std::logic_error, which no reader
// throws; the mutation tests report it, and a fuzzer counts it as a crash.
#pragma once

#include <string_view>

namespace remat::fuzz {

/// The graph reader refuses the text with one line, or returns a consistent graph. True: accepted.
bool check_graph_text(std::string_view text);

/// The same for the plan reader, and for checking the plan against another graph.
bool check_plan_text(std::string_view text);

/// The same for layouts of a fixed plan.
bool check_layout_text(std::string_view text);

/// The same for tables of buffers, which are also laid out and written.
bool check_table_text(std::string_view text);

/// Runs the command line in this process: the arguments are the first line, the file "in" what follows it,
/// the file "in2" what follows a line "---". It ends with one of its exit codes, one line on failure, and
/// leaves no partial file. Only in the fuzz target.
void check_command(std::string_view input);

}  // namespace remat::fuzz
