// Reports as lines and tables: plain numbers for scripts, units and fitted widths on a terminal.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <numeric>

#include "common.h"
#include "people.h"

namespace remat::cli {

std::string cell(const Report& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return one_line(value.get<std::string>());
  if (value.is_number_float()) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.6g", value.get<double>());
    return text.data();
  }
  return value.dump();
}

namespace {

std::ostream& report_stream() { return is_standard_output_taken() ? std::cerr : std::cout; }

constexpr std::size_t kBetween = 2;     // spaces before each column
constexpr std::size_t kLeastWrap = 16;  // least width of the last text column while others can be dropped

/// A table as texts, column by column.
struct Column {
  std::string key;
  std::vector<std::string> cells;  ///< the head first
  bool right = false;              ///< numbers flush right, texts flush left
  std::size_t width = 0;

  std::size_t least = 0;  ///< least width when wrapped

  void measure() {
    width = least = 0;
    for (const std::string& text : cells) {
      width = std::max(width, width_of(text));
      least = std::max(least, right ? width_of(text) : longest_word(text));
    }
  }
};

std::vector<Column> columns_of(const Report& rows, const std::string& time_unit, bool people) {
  std::vector<Column> columns;
  for (const auto& [key, value] : rows.front().items()) {
    Column column{.key = key, .cells = {people ? head_for_people(key) : key}};
    for (const Report& row : rows) {
      column.cells.push_back(people ? for_people(key, row.at(key), time_unit) : cell(row.at(key)));
      if (row.at(key).is_number()) column.right = true;
    }
    column.measure();
    columns.push_back(std::move(column));
  }
  return columns;
}

std::size_t table_width(const std::vector<Column>& columns) {
  return std::accumulate(columns.begin(), columns.end(), std::size_t{0},
                         [](std::size_t sum, const Column& column) { return sum + kBetween + column.width; });
}

/// True if the column is empty in all rows.
bool is_blank(const Column& column) {
  return std::all_of(column.cells.begin() + 1, column.cells.end(),
                     [](const std::string& text) { return text.empty() || text == "-"; });
}

/// Drops blank columns, then those in `spare`, until the table fits. The last text column describes the row:
/// it stays, and is wrapped into the rest of the width. If that is not enough, all texts are wrapped at
/// spaces; false if the table still does not fit.
bool fit(std::vector<Column>& columns, std::size_t room, const std::vector<std::string>& spare) {
  std::erase_if(columns, is_blank);
  if (columns.empty()) return true;
  const auto label =
      std::find_if(columns.rbegin(), columns.rend(), [](const Column& one) { return !one.right; });
  const std::string stays = label == columns.rend() ? "" : label->key;
  const auto least = [&] {
    const bool wraps = !columns.back().right;
    return table_width(columns) -
           (wraps ? columns.back().width - std::min(columns.back().width, kLeastWrap) : 0);
  };
  for (const std::string& key : spare) {
    if (least() <= room) break;
    std::erase_if(columns, [&](const Column& column) { return column.key == key && key != stays; });
  }
  const auto room_to_wrap = [](const Column& column) {
    return column.width - std::min(column.width, column.least);
  };
  while (table_width(columns) > room) {
    const auto widest =
        std::max_element(columns.begin(), columns.end(),
                         [&](const Column& a, const Column& b) { return room_to_wrap(a) < room_to_wrap(b); });
    if (room_to_wrap(*widest) == 0) return false;
    // The last one first: its lines need no padding.
    Column& last = columns.back();
    const bool is_last = room_to_wrap(last) > 0 && last.width > kLeastWrap;
    --(is_last ? last : *widest).width;
  }
  return true;
}

/// For tables that do not fit: prints each row as lines of a head and its cell.
void print_block(const std::vector<Column>& columns, std::size_t row, std::size_t room) {
  std::size_t heads = 0;
  for (const Column& column : columns) heads = std::max(heads, width_of(column.cells.front()));
  const std::size_t before = kBetween + heads + kBetween;
  if (row > 1) report_stream() << "\n";
  for (const Column& column : columns) {
    if (column.cells[row].empty()) continue;
    std::string head = std::string(kBetween, ' ') + column.cells.front();
    for (const std::string& line : wrapped(column.cells[row], room > before + 1 ? room - before : 1)) {
      report_stream() << head << std::string(before - width_of(head), ' ') << line << "\n";
      head.clear();
    }
  }
}

/// One row, in as many lines as its longest text takes; nothing behind the last text of a line.
void print_row(const std::vector<Column>& columns, std::size_t row) {
  std::vector<std::vector<std::string>> cells;
  std::size_t lines = 0;
  for (const Column& column : columns) {
    cells.push_back(wrapped(column.cells[row], std::max<std::size_t>(1, column.width)));
    lines = std::max(lines, cells.back().size());
  }
  for (std::size_t line = 0; line < lines; ++line) {
    std::string text;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string said = line < cells[i].size() ? cells[i][line] : "";
      const std::string padding(columns[i].width - std::min(columns[i].width, width_of(said)), ' ');
      text += std::string(kBetween, ' ') + (columns[i].right ? padding + said : said + padding);
    }
    report_stream() << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
  }
}

void print_table(const std::string& title, const Report& rows, const Look& look, int width) {
  if (rows.empty()) return;
  report_stream() << "\n" << (width > 0 ? head_for_people(title) : title) << ":\n";
  std::vector<Column> columns = columns_of(rows, look.time_unit, width > 0);
  const auto room = static_cast<std::size_t>(width);
  if (width > 0 && !fit(columns, room, look.spare)) {
    for (std::size_t row = 1; row <= rows.size(); ++row) print_block(columns, row, room);
    return;
  }
  for (std::size_t row = 0; row <= rows.size(); ++row) print_row(columns, row);
}

/// " (60 %)" behind amounts that are a share of the keep-all peak.
std::string share_of(const Report& report, const std::string& key, const Report& value) {
  const bool is_share = key == "budget" || key == "peak" || key == "floor" || key == "peak_lower_bound" ||
                        key.starts_with("smallest_") || key == "best_peak" || key == "allocated_peak" ||
                        key == "reserved_peak" || key == "best_reserved";
  const auto whole = report.find("keep_all_peak");
  if (!is_share || whole == report.end() || !value.is_number_integer() || *whole == 0) return "";
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), " (%.1f %% of keep-all)",
                100 * value.get<double>() / whole->get<double>());
  return text.data();
}

}  // namespace

void print(const Report& report, bool as_json, const Look& look) {
  if (as_json) {
    report_stream() << report.dump(2, ' ', false, Report::error_handler_t::replace) << "\n";
    return;
  }
  const int width = terminal_columns();
  for (const auto& [key, value] : report.items()) {
    if (value.is_structured()) continue;
    report_stream() << key << " = "
                    << (width > 0 ? for_people(key, value, look.time_unit) + share_of(report, key, value)
                                  : cell(value))
                    << "\n";
  }
  for (const auto& [key, value] : report.items()) {
    if (value.is_array() && (value.empty() || value.front().is_object())) {
      print_table(key, value, look, width);
    } else if (value.is_array()) {
      for (const Report& one : value) report_stream() << key << " = " << cell(one) << "\n";
    }
  }
}

}  // namespace remat::cli
