// Reports as lines and tables.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include "common.h"

namespace remat::cli {
namespace {

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

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

/// Numbers flush right, texts flush left, nothing behind the last text.
void print_table(const std::string& title, const Report& rows) {
  if (rows.empty()) return;
  std::cout << "\n" << title << ":\n";
  std::vector<std::string> head;
  for (const auto& [key, value] : rows.front().items()) head.push_back(key);
  std::vector<std::vector<std::string>> lines{head};
  std::vector<bool> right(head.size(), false);
  for (const Report& row : rows) {
    lines.emplace_back();
    for (std::size_t c = 0; c < head.size(); ++c) {
      lines.back().push_back(cell(row.at(head[c])));
      if (row.at(head[c]).is_number()) right[c] = true;
    }
  }
  std::vector<std::size_t> width(head.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], width_of(line[c]));
  }
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t c = 0; c < line.size(); ++c) {
      const std::string padding(width[c] - width_of(line[c]), ' ');
      text += "  " + (right[c] ? padding + line[c] : line[c] + padding);
    }
    std::cout << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
  }
}

}  // namespace

void print(const Report& report, bool as_json) {
  if (as_json) {
    std::cout << report.dump(2, ' ', false, Report::error_handler_t::replace) << "\n";
    return;
  }
  for (const auto& [key, value] : report.items()) {
    if (!value.is_structured()) std::cout << key << " = " << cell(value) << "\n";
  }
  for (const auto& [key, value] : report.items()) {
    if (value.is_array() && (value.empty() || value.front().is_object())) {
      print_table(key, value);
    } else if (value.is_array()) {
      for (const Report& one : value) std::cout << key << " = " << cell(one) << "\n";
    }
  }
}

}  // namespace remat::cli
