// Rows of the stage model under construction.
#pragma once

#include <vector>

#include "exact/stage_model.h"

namespace remat {

/// Literals and constants on the left, one number on the right.
class StageModel::Row {
 public:
  explicit Row(lp::Model& model) : model_(model) {}
  Row& add(Literal literal, double factor) {
    if (literal.column >= 0) {
      terms_.push_back({literal.column, factor});
    } else {
      constant_ += literal.constant * factor;
    }
    return *this;
  }
  Row& add(lp::Column column, double factor) {
    if (column >= 0) terms_.push_back({column, factor});
    return *this;
  }
  Row& constant(double c) {
    constant_ += c;
    return *this;
  }
  void at_least(double lo) { model_.add_row(lo - constant_, lp::kInfinity, terms_); }
  void at_most(double hi) { model_.add_row(-lp::kInfinity, hi - constant_, terms_); }
  void equals(double x) { model_.add_row(x - constant_, x - constant_, terms_); }

 private:
  lp::Model& model_;
  std::vector<lp::Term> terms_;
  double constant_ = 0;
};

}  // namespace remat
